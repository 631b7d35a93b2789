"""The example `fits`, which tells whether a pod would fit on a node of a given shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.examples import example
from support.manifest_objects import node_object, pod_object

fits: Any = example("fits/fits.py")


def written(folder: Path, name: str, obj: Any) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(obj))
    return str(path)


def template(name: str, cpu: str) -> dict[str, Any]:
    node = node_object(name, cpu=cpu)
    node["status"]["allocatable"] = node["status"]["capacity"]
    return node


@pytest.mark.parametrize(("cpu", "code"), [("2", 0), ("16", 1)])
def test_exit_code_is_0_when_the_pod_fits_on_a_node_and_1_when_on_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cpu: str, code: int
) -> None:
    pod = written(tmp_path, "pod.yaml", pod_object("web", cpu=cpu))
    small = written(tmp_path, "small.yaml", template("small", "1"))
    large = written(tmp_path, "large.yaml", template("large", "8"))
    assert fits.main([pod, small, large]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small: Insufficient cpu (NodeResourcesFit)"
    assert lines[1] == ("large: fits" if code == 0 else "large: Insufficient cpu (NodeResourcesFit)")


def test_command_without_arguments_prints_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert fits.main([]) == 2
    assert "fits.py POD.yaml NODE.yaml" in capsys.readouterr().err


def test_files_may_have_several_documents_and_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {"apiVersion": "v1", "kind": "List", "items": [template("small", "1"), template("large", "8")]}
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([pod_object("a", cpu="2"), nodes, pod_object("b", cpu="16")]))
    assert fits.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "default/a on small: Insufficient cpu (NodeResourcesFit)",
        "default/a on large: fits",
        "default/b on small: Insufficient cpu (NodeResourcesFit)",
        "default/b on large: Insufficient cpu (NodeResourcesFit)",
    ]
