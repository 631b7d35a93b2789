"""Kubernetes' own files of scheduler_perf, in the folder of `make scheduler-perf-data`.

`<data>/<version>/<area>/performance-config.yaml`, where an area may have areas of its own (`podgroup/tas`).
Called by the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_host.model.paths import is_file

DATA: Final = Path(".cache/scheduler-perf")
VERSION: Final = "v1.37.2"
"""The release whose files are read unless the command names another one."""
FILE: Final = "performance-config.yaml"
CURE: Final = "run `make scheduler-perf-data` in a clone of berth, or name its folder with --data"


def files(given: Sequence[str], data: Path, release: str = VERSION) -> list[Path]:
    """Return the files: paths unchanged, names of areas (`misc`, `podgroup/tas`) within the data of a
    release; if none is given, the areas that are in no other area.

    Raises ManifestError for a name if the data, or an area of that name, is missing.
    """
    own = data / f"v{release.removeprefix('v')}"
    try:
        known = {path.parent.relative_to(own).as_posix(): path for path in sorted(own.rglob(FILE))}
    except OSError as err:
        raise _failed(own, f"cannot be read: {err.strerror}: {CURE}") from err
    if not given:
        if not known:
            raise _failed(own, f"there are no files of scheduler_perf: {CURE}")
        return [path for name, path in known.items() if "/" not in name]
    return [known[name] if name in known else _path(name, own, list(known)) for name in given]


def _path(name: str, own: Path, known: Sequence[str]) -> Path:
    path = Path(name)
    if is_file(path) or path.is_absolute() or path.suffix:
        return path  # errors of the file are reported when it is read
    if known:
        raise _failed(own, f"there is no {name}: there are {', '.join(known)}, or give the path of a file")
    raise _failed(own, f"there is no {name}, nor any other file of scheduler_perf: {CURE}")


def _failed(own: Path, problem: str) -> ManifestError:
    return ManifestError([ManifestProblem(file=str(own), line=0, problem=problem)])
