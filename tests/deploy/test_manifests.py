"""The plain manifests equal what the chart renders."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import chart

from deploy import render

each_file = pytest.mark.parametrize(
    "values", [pytest.param(path, id=path.stem) for path in chart.values_files()]
)


def test_no_manifest_differs_from_the_chart(capsys: pytest.CaptureFixture[str]) -> None:
    code = render.main(["--check"])
    assert (code, capsys.readouterr().out) == (0, ""), "run: python tests/deploy/render.py"


def test_changed_missing_and_surplus_manifests_are_found_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render, "MANIFESTS", tmp_path)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "made", lambda values: f"made of {values.name}\n")
    assert render.main([]) == 0
    assert (tmp_path / "beside.yaml").read_text() == "made of beside.yaml\n"
    (tmp_path / "beside.yaml").write_text("edited")
    (tmp_path / "demo.yaml").unlink()
    (tmp_path / "gone.yaml").touch()
    capsys.readouterr()

    assert render.main(["--check"]) == 1
    assert capsys.readouterr().out.split() == ["beside.yaml", "demo.yaml", "gone.yaml"]
    assert render.main([]) == 0
    assert render.main(["--check"]) == 0


@each_file
def test_plain_manifest_has_no_labels_of_helm(values: Path) -> None:
    text = (chart.MANIFESTS / values.name).read_text()
    assert "helm.sh" not in text
    assert "managed-by" not in text
    assert chart.documents(text), "and has something in it"
