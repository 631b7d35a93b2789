"""Writes the files of a result into a folder: all of them whole, or none.

Every file is written beside its place and synced first; only then do the files move to their places. A file
with other content is replaced only by force.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SECRET_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to write. `is_secret` True: only the owner may read the file."""

    name: str
    text: str
    is_secret: bool = False


class FilesExistError(Exception):
    """Files with other content are there. Attribute: paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(", ".join(map(str, paths)))
        self.paths = tuple(paths)


def write_files(folder: Path, files: Sequence[TextFile], *, force: bool) -> list[tuple[Path, bool]]:
    """Write the files, and return the path of each, with True if the file was written or its mode changed.

    The folder is made if it is absent. Raises FilesExistError without `force`, and OSError. Nothing is
    written then.
    """
    planned = [(folder / file.name, file) for file in files]
    writing = [(path, file) for path, file in planned if not _has(path, file)]
    others = [path for path, _ in writing if os.path.lexists(path)]
    if others and not force:
        raise FilesExistError(others)
    folders = [path for path in others if path.is_dir()]
    if folders:
        raise IsADirectoryError(None, "Is a directory", str(folders[0]))
    with _made(folder), ExitStack() as stack:
        moves = [(stack.enter_context(_beside(path, file)), path) for path, file in writing]
        for written, path in moves:
            written.replace(path)
    changed = {path for path, _ in writing} | set(_closed_to_others(planned))
    return [(path, path in changed) for path, _ in planned]


def _has(path: Path, file: TextFile) -> bool:
    """Return True if the file is there with the same content."""
    try:
        return not path.is_symlink() and path.read_bytes() == file.text.encode()
    except OSError:
        return False


def _closed_to_others(planned: Sequence[tuple[Path, TextFile]]) -> Iterator[Path]:
    """Take the files with secrets from all users but the owner, and yield those that others could read."""
    for path, file in planned:
        if file.is_secret and path.stat().st_mode & 0o077:
            path.chmod(_SECRET_MODE)
            yield path


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make the folder, and the folders above it; remove the new ones if the block fails."""
    absent = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for one in absent:
            with suppress(OSError):
                one.rmdir()
        raise


@contextmanager
def _beside(path: Path, file: TextFile) -> Iterator[Path]:
    """Write the file under another name in the same folder; remove it if it is still there at the end.

    Raises OSError with the file's own path.
    """
    written: Path | None = None
    try:
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            written = Path(name)
            with os.fdopen(handle, "wb") as opened:
                opened.write(file.text.encode())
                opened.flush()
                os.fsync(opened.fileno())
                os.fchmod(opened.fileno(), _SECRET_MODE if file.is_secret else 0o666 & ~_umask())
        except OSError as err:
            raise OSError(err.errno, err.strerror, str(path)) from err
        yield written
    finally:
        if written is not None:
            written.unlink(missing_ok=True)


def _umask() -> int:
    # There is no other way to read it; the command has one thread.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
