"""Kubernetes' own files of scheduler_perf, in the folder of `make scheduler-perf-data`.

`<data>/<version>/<area>/performance-config.yaml`: the workloads of VERSION run; the thresholds of LATER are
printed beside VERSION's. Called by the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_host.model.paths import is_file

from berth_bench.scheduler_perf.cases import read_thresholds
from berth_bench.workload import Workload

DATA: Final = Path(".cache/scheduler-perf")
VERSION: Final = "v1.36.2"
LATER: Final = "v1.37.2"
FILE: Final = "performance-config.yaml"
CURE: Final = "run `make scheduler-perf-data` in a clone of berth, or name its folder with --data"


def files(given: Sequence[str], data: Path) -> list[Path]:
    """Return the files: paths unchanged, names of areas (`misc`) within the data; all areas if none is given.

    Raises ManifestError for a name if the data, or an area of that name, is missing.
    """
    try:
        known = {path.parent.name: path for path in sorted((data / VERSION).glob(f"*/{FILE}"))}
    except OSError as err:
        raise _failed(data, f"cannot be read: {err.strerror}: {CURE}") from err
    if not given:
        if not known:
            raise _failed(data, f"there are no files of scheduler_perf: {CURE}")
        return list(known.values())
    return [known[name] if name in known else _path(name, data, list(known)) for name in given]


def _path(name: str, data: Path, known: Sequence[str]) -> Path:
    path = Path(name)
    if is_file(path) or path.name != name or path.suffix:
        return path  # errors of the file are reported when it is read
    if known:
        raise _failed(data, f"there is no {name}: there are {', '.join(known)}, or give the path of a file")
    raise _failed(data, f"there is no {name}, nor any other file of scheduler_perf: {CURE}")


def _failed(data: Path, problem: str) -> ManifestError:
    return ManifestError([ManifestProblem(file=str(data / VERSION), line=0, problem=problem)])


def with_later_thresholds(workloads: Sequence[Workload], data: Path) -> list[Workload]:
    """Return workloads of VERSION's own files with the thresholds of LATER; other workloads unchanged.

    If LATER's files are missing, a note says so. Raises ManifestError for a file that cannot be read.
    """
    folder = data / LATER
    found: dict[str, dict[str, float]] = {}
    made: list[Workload] = []
    for workload in workloads:
        source = Path(workload.source)
        if source.resolve().parent.parent != (data / VERSION).resolve():
            made.append(workload)
            continue
        if not folder.is_dir():
            note = f"the thresholds of {LATER} are not in {folder}: `make scheduler-perf-data` downloads them"
            made.append(replace(workload, notes=(*workload.notes, note)))
            continue
        area = source.parent.name
        if area not in found:
            path = folder / area / FILE
            found[area] = dict(read_thresholds(path)) if path.exists() else {}
        later = found[area].get(workload.name)
        made.append(workload if later is None else replace(workload, later_thresholds={LATER: later}))
    return made
