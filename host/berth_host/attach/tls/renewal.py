"""`Renewal`: decides when a TLS connection must be made again. Made by `look`, called by `Keeper`.

TLS checks certificates only when a connection begins, so a connection could outlive them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from berth_host.attach.peer import DialError
from berth_host.attach.tls.files import own_certificate, trust
from berth_host.config.berth.configuration import TlsFiles
from berth_host.log import get_logger

_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
_LOG = get_logger()


class Renewal:
    """The renewal of one connection; made before the connection's files are read.

    `ends_s`: when the first certificate of the two sides expires, by the wall clock (Unix seconds).
    """

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = time.time) -> None:
        self.ends_s = float("inf")
        self._files = files
        self._clock = clock
        self._stamp = _stamp(files)
        self._told = ""

    def due(self) -> str:
        """Return why the connection must be made again, as the end of a sentence; empty if it may stay.

        Unusable new files are no reason: they may be about to be replaced, and the connection still works.
        """
        if self._clock() >= self.ends_s:
            return "reconnects: a certificate of this connection has expired"
        if _stamp(self._files) == self._stamp:
            return ""
        try:
            own_certificate(self._files, trust(self._files))
        except DialError as err:
            if str(err) != self._told:
                self._told = str(err)
                _LOG.warning("attachment.not_renewed", error=self._told)
            return ""
        return "reconnects: the files of its tls were replaced"


def _stamp(files: TlsFiles) -> _Stamp:
    return tuple(_identity(path) for path in (files.ca_file, files.cert_file, files.key_file))


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
