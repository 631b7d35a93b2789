"""Reads the texts of the paths that a user gives, in a stable order.

Called by `loading.load`. A folder stands for all its files `*.yaml`, `*.yml` and `*.json`, at any depth and
in the order of their names. Names that begin with a dot are skipped. A folder that several links lead to is
read once. `-` is standard input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from berth_host.errors.manifests import ManifestProblem
from berth_sdk.yaml.encoding import read_text

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
STDIN_NAME: Final = "standard input"


@dataclass(frozen=True, slots=True)
class Source:
    """One text. `name`: its name in messages."""

    name: str
    text: str


def sources_of(
    paths: Sequence[str], read_stdin: Callable[[], str]
) -> tuple[list[Source], list[ManifestProblem]]:
    """Return the texts of `paths`, and the problems with unreadable paths.

    A file that is named twice is read once. `read_stdin` may raise OSError and UnicodeDecodeError.
    """
    sources: list[Source] = []
    problems: list[ManifestProblem] = []
    seen: set[Path] = set()

    def take(name: str, read: Callable[[], str]) -> None:
        try:
            sources.append(Source(name, read()))
        except OSError as err:
            problems.append(ManifestProblem(file=name, problem=f"cannot be read: {err.strerror}"))
        except UnicodeDecodeError as err:
            text = f"is not UTF-8 text (byte {err.start}): save it as UTF-8"
            problems.append(ManifestProblem(file=name, problem=text))

    if paths.count(STDIN) > 1:
        text = "is named twice, and can be read only once: name it once"
        problems.append(ManifestProblem(file="standard input", problem=text))
        paths = [path for path in paths if path != STDIN]
    for path in paths:
        if path == STDIN:
            take(STDIN_NAME, read_stdin)
            continue
        try:
            found = list(_files(Path(path), set()))
        except OSError as err:
            problems.append(
                ManifestProblem(file=str(err.filename), problem=f"cannot be read: {err.strerror}")
            )
            continue
        if not found:
            text = f"no manifests here: a folder needs files that end in {', '.join(SUFFIXES)}"
            problems.append(ManifestProblem(file=path, problem=text))
        for file in found:
            resolved = _resolved(file)
            if resolved in seen:
                continue
            seen.add(resolved)
            take(str(file), partial(read_text, file))
    return sources, problems


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # No working folder, or a link loop: reading the file will fail.
        return path


def _files(path: Path, seen_folders: set[Path]) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    resolved = _resolved(path)
    if resolved in seen_folders:
        return
    seen_folders.add(resolved)
    for entry in sorted(path.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(entry, seen_folders)
        elif entry.suffix in SUFFIXES:
            yield entry
