"""`make dist`: packages that install into an empty environment and do there what the README says."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import missing_programs
from berth_sdk.cli import scaffold_sources
from support.places import ROOT

from deploy import dist


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(bool(missing_programs(["helm"])), reason=missing_programs(["helm"]) or "helm is there")
def test_packages_are_built_installed_and_tried(tmp_path: Path) -> None:
    into = tmp_path / "dist"
    assert dist.make(into) == []
    kinds = sorted(path.name.partition("-0.")[0] + "".join(path.suffixes[-2:]) for path in into.iterdir())
    assert len(kinds) == 2 * len(dist.PACKAGES) + 2, kinds


def test_a_folder_with_other_files_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("berth_sdk-0.1.0.tar.gz", "thesis.txt"):
        (tmp_path / name).touch()
    assert dist.main(["--into", str(tmp_path)]) == 1
    assert "holds thesis.txt, which is of no package: give a folder of its own" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "thesis.txt").unlink()
    dist.empty(tmp_path)
    assert list(tmp_path.iterdir()) == []


def wheel_of_sdk(folder: Path, *without: str) -> Path:
    """Return a wheel of the SDK, made here, without some of its files and lines of metadata."""
    path = folder / "berth_sdk-0.1.0-py3-none-any.whl"
    fields = [f"{name}: x" for name in ("License-Expression", "License-File", "Description-Content-Type")]
    fields += ["Project-URL: x", "Classifier: x"]
    metadata = "\n".join(field for field in fields if not field.startswith(without))
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted((ROOT / "sdk/berth_sdk").rglob("*")):
            name = source.relative_to(ROOT / "sdk").as_posix()
            if source.is_file() and "__pycache__" not in name and name not in without:
                archive.write(source, name)
        for part, text in scaffold_sources.copies(ROOT).items():
            name = f"berth_sdk/cli/scaffold/{part}"
            if name not in without:
                archive.writestr(name, text)
        readme = "" if "README" in without else "text"
        archive.writestr("berth_sdk-0.1.0.dist-info/METADATA", f"{metadata}\n\n{readme}")
        if "tests" in without:
            archive.writestr("tests/test_it.py", "")
    return path


@pytest.mark.parametrize(
    ("without", "fault"),
    [
        ((), ""),
        (("berth_sdk/py.typed",), "not typed"),
        (("berth_sdk/pod.py",), "without berth_sdk/pod.py"),
        (("berth_sdk/cli/scaffold/proto/berth/plugin/v1/common.proto",), "without the scaffold's proto/"),
        (("Project-URL",), "no Project-URL"),
        (("README",), "no README"),
        (("tests",), "tests/test_it.py is of no package"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_fault_of_a_wheel_is_named(tmp_path: Path, without: tuple[str, ...], fault: str) -> None:
    found = list(dist.faults_of(wheel_of_sdk(tmp_path, *without), "sdk"))
    assert any(fault in one for one in found) if fault else found == []


def test_failed_step_shows_what_its_command_printed() -> None:
    with pytest.raises(dist.DistError, match=r"(?s)exit code 2.*No such file"):
        dist.run(shutil.which("ls") or "ls", "/no/such/folder")
