"""Files in memory, for libraries that read keys from files only.

Used wherever a private key is loaded into a TLS context. A key must not pass through TMPDIR, which other
processes of the same user may read: the sidecars of a pod, for one.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Final

_OPEN_FILES: Final = Path("/proc/self/fd")
_NOEXEC_SEAL: Final = 8
"""MFD_NOEXEC_SEAL, which `vm.memfd_noexec=2` demands and kernels before 6.3 refuse."""
_MEMORY_FLAGS: Final = (os.MFD_CLOEXEC | _NOEXEC_SEAL, os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else ()


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield a path at which this process alone reads `content`, until the block ends. Raises OSError.

    The file is in memory, or, where the system refuses that, one without a name, which other processes cannot
    open. Only a system without /proc has a private file with a name.
    """
    if not _OPEN_FILES.is_dir():
        with NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name
        return
    with _nameless() as file:
        file.write(content)
        file.flush()
        yield str(_OPEN_FILES / str(file.fileno()))


def _nameless() -> IO[bytes]:
    for flags in _MEMORY_FLAGS:
        with suppress(OSError):
            return os.fdopen(os.memfd_create("berth", flags), "wb")
    return TemporaryFile()


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate with its chain and its key, both in PEM, into `context`.

    Raises OSError (ssl.SSLError too) for content that is no pair, and for a key that is encrypted.
    """
    with as_file(certificate) as certificate_file, as_file(key) as key_file:
        # Without the empty password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate_file, key_file, password="")
