"""Kubernetes' own files of scheduler_perf: their places, and missing files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from berth_bench.scheduler_perf import upstream
from berth_host.errors.manifests import ManifestError

from .conftest import WriteCase, measured, nodes

Folder = Path


@pytest.fixture
def data(tmp_path: Path, write_case: WriteCase) -> Folder:
    """Write two areas with one workload C/w each, as the script does."""
    write_case(nodes(1), measured(1), threshold=10)
    made = tmp_path / "data"
    for area in ("misc", "event_handling"):
        put(tmp_path, made / upstream.VERSION / area)
    return made


def put(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(source / "cases.yaml", folder / "performance-config.yaml")
    shutil.copy(source / "pod.yaml", folder / "pod.yaml")


def refusal(data: Folder, *given: str) -> str:
    with pytest.raises(ManifestError) as caught:
        upstream.files(given, data)
    return str(caught.value)


def test_names_select_areas_and_no_name_selects_all(data: Folder) -> None:
    own = data / upstream.VERSION
    every = [own / area / "performance-config.yaml" for area in ("event_handling", "misc")]
    assert upstream.files((), data) == every
    assert upstream.files(("misc",), data) == every[1:]
    inner = own / "misc" / "tas"
    inner.mkdir()
    shutil.copy(every[1], inner)
    assert upstream.files((), data) == every
    assert upstream.files(("misc/tas",), data) == [inner / "performance-config.yaml"]
    assert upstream.files(("misc", "a/b.yaml", "c.yaml"), data) == [
        every[1],
        Path("a/b.yaml"),
        Path("c.yaml"),
    ]


def test_missing_data_and_areas_are_named_with_the_remedy(data: Folder, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert "run `make scheduler-perf-data` in a clone of berth" in refusal(nothing)
    assert "there is no misc, nor any other file of scheduler_perf: run `make" in refusal(nothing, "misc")
    assert "there is no volumes: there are event_handling, misc" in refusal(data, "volumes")
