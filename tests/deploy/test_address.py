"""The project's address has one home, and stands elsewhere as it is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from support.places import ROOT

from deploy import address

FILES = [
    *(f"{folder}pyproject.toml" for folder in ("", "sdk/", "plugins/", "bench/")),
    *(f"{folder}/README.md" for folder in ("sdk", "plugins", "bench", "deploy/helm/berth")),
    "deploy/helm/berth/values.yaml",
]
"""The files with the address."""


def test_packages_readmes_and_runbooks_have_the_address_of_the_home() -> None:
    home = address.urls(ROOT / "pyproject.toml")["Homepage"]
    for name in FILES[:4]:
        assert address.urls(ROOT / name) == address.urls(ROOT / "pyproject.toml")
    assert all(url.startswith(home) for url in address.urls(ROOT / "pyproject.toml").values())
    for name in FILES[4:7]:
        assert f"[berth]({home})" in (ROOT / name).read_text()
    values = yaml.safe_load((ROOT / "deploy/helm/berth/values.yaml").read_text())
    assert values["metrics"]["prometheusRule"]["runbookUrl"] == f"{home}/docs/how-to/alerts/"
    assert address.main(["--check"]) == 0


def test_new_address_is_written_wherever_the_old_one_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = address.urls(ROOT / "pyproject.toml")["Homepage"]
    new = "https://scheduler.example/berth"
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    own = tmp_path / "pyproject.toml"
    own.write_text(own.read_text().replace(f'Homepage = "{home}"', f'Homepage = "{new}"'))
    assert address.main(["--check"], tmp_path) == 1
    said = capsys.readouterr().out
    assert all(f"address: {name} has another address than pyproject.toml" in said for name in FILES)
    assert address.main([], tmp_path) == 0
    for name in FILES:
        text = (tmp_path / name).read_text()
        assert text == (ROOT / name).read_text().replace(home, new)
    assert address.main(["--check"], tmp_path) == 0
