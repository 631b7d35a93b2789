"""Kubernetes' own files of scheduler_perf: their places, missing files, and later thresholds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from berth_bench.scheduler_perf import upstream
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.workload import Workload
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


def workloads(data: Folder, *given: str) -> list[Workload]:
    return upstream.with_later_thresholds(read_workloads(upstream.files(given, data)), data)


def refusal(data: Folder, *given: str) -> str:
    with pytest.raises(ManifestError) as caught:
        upstream.files(given, data)
    return str(caught.value)


def test_names_select_areas_and_no_name_selects_all(data: Folder) -> None:
    own = data / upstream.VERSION
    every = [own / area / "performance-config.yaml" for area in ("event_handling", "misc")]
    assert upstream.files((), data) == every
    assert upstream.files(("misc",), data) == every[1:]
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


def test_later_thresholds_are_added_to_their_workloads(
    data: Folder, tmp_path: Path, write_case: WriteCase
) -> None:
    write_case(nodes(1), measured(1), threshold=25)
    put(tmp_path, data / upstream.LATER / "misc")
    first, second = workloads(data)
    assert (first.threshold, first.later_thresholds, first.notes) == (10, {}, ())
    assert (second.threshold, second.later_thresholds) == (10, {upstream.LATER: 25.0})


def test_without_later_files_a_note_says_so(data: Folder, tmp_path: Path) -> None:
    (workload,) = workloads(data, "misc")
    (note,) = workload.notes
    assert note.startswith(f"the thresholds of {upstream.LATER} are not in {data / upstream.LATER}")
    assert "make scheduler-perf-data" in note
    (other,) = workloads(data, str(tmp_path / "cases.yaml"))
    assert other.notes == ()
