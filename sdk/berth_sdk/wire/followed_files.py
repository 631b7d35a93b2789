"""`FollowedFiles`: what is made of files that may be replaced while the process runs.

Certificates of gRPC (`wire.certificate`), of the extender (`serve.extender.tls`) and of the host's ports are
followed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from berth_sdk.errors import BerthError

T = TypeVar("T")
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]
"""The inode, the time of the last change (nanoseconds) and the size (bytes) of each file."""
_TRIES: Final = 3
"""Tries to read files that are being replaced one after the other."""


class TlsError(BerthError):
    """The error of files that cannot be used. The text names the file and the cure."""


def stamp_of(paths: Sequence[str | Path]) -> Stamp:
    """Return a value that differs once one of the files was replaced or written. Raises TlsError."""
    stamps = []
    for path in paths:
        try:
            found = Path(path).stat()
        except OSError as err:
            raise TlsError(f"{path}: {err.strerror}") from err
        stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)


class FollowedFiles(Generic[T]):
    """Holds a value made of files. loaded -the files change-> loaded again, or unchanged if they are bad.

    `load`: makes the value, and raises TlsError. `tell`: called after the files changed, with "", or with the
    problem if the last value stays in use; the same problem is told once.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], T], tell: Callable[[str], None]) -> None:
        """Load the files. Raises TlsError."""
        self._paths = paths
        self._load = load
        self._tell = tell
        self._problem = ""
        self._stamp, self.value = self._read_whole()

    def follow(self) -> T:
        """Return the value of the files as they are now; the last one if they are bad."""
        try:
            stamp = stamp_of(self._paths)
            if stamp == self._stamp:
                return self.value
            self._stamp = stamp
            self._stamp, self.value = self._read_whole()
        except TlsError as err:
            if str(err) != self._problem:
                self._problem = str(err)
                self._tell(self._problem)
        else:
            self._problem = ""
            self._tell("")
        return self.value

    def _read_whole(self) -> tuple[Stamp, T]:
        """Return the stamp of the files and their value. Raises TlsError.

        All files are of the same moment, as an old certificate with a new key would fail every handshake.
        """
        for _ in range(_TRIES):
            stamp = stamp_of(self._paths)
            value = self._load()
            if stamp_of(self._paths) == stamp:
                return stamp, value
        raise TlsError(f"{', '.join(self._paths)} are being replaced")
