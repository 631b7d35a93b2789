"""Files in memory, for libraries that read keys from files only.

Used wherever a private key is loaded into a TLS context. A key must not pass through TMPDIR, which other
processes of the same user may read: the sidecars of a pod, for one.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield a path at which this process alone reads `content`, until the block ends. Raises OSError.

    The file is in memory. Where the system has no such files, it is a private one in a private folder.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("berth", os.MFD_CLOEXEC)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate with its chain and its key, both in PEM, into `context`.

    Raises OSError (ssl.SSLError too) for content that is no pair, and for a key that is encrypted.
    """
    with as_file(certificate) as certificate_file, as_file(key) as key_file:
        # Without the empty password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate_file, key_file, password="")
