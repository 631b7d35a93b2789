"""`free_port`: ports for servers that a test or a bench starts, stops and starts again."""

from __future__ import annotations

import itertools
import secrets
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_GIVEN_BY_THE_SYSTEM: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUALLY_GIVEN: Final = (32_768, 60_999)
_FIRST: Final = 20_000
"""Below are ports that services are known by."""


def free_port() -> int:
    """Return a port of loopback on which no process listens now.

    The system gives such a port to no connection and to no other server by itself. So it stays free until the
    server listens, and while the server is away; and a client that calls there meanwhile does not meet
    itself, as it can at the port from which it calls.
    """
    for port in _ports():
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = one.getsockname()[1]
            return found
    raise AssertionError("the ports never end")


@cache
def _ports() -> Iterator[int]:
    """Return the ports to try, again and again. Each process begins elsewhere, so that two that look at the
    same time find different ones.
    """
    first, last = _given_by_the_system()
    others = [*range(_FIRST, first), *range(last + 1, 65_536)] or [0]
    begin = secrets.randbelow(len(others))
    return itertools.cycle(others[begin:] + others[:begin])


def _given_by_the_system() -> tuple[int, int]:
    """Return the first and the last port that the system gives by itself."""
    try:
        first, last = _GIVEN_BY_THE_SYSTEM.read_text().split()
    except OSError:
        return _USUALLY_GIVEN
    return int(first), int(last)
