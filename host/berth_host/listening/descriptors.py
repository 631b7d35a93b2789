"""The limit on file descriptors of this process, which sockets count towards."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

_MOST: Final = 1 << 20
"""Descriptors that are asked for where the hard limit is infinite."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, and return it. A container's soft limit may be as low as 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A limit that the kernel does not grant stays as it is.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    """Return the number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft
