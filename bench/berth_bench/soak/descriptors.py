"""List what a process holds open, by name: a count alone does not tell which descriptor leaked.

Called by `measures` and `stopped_server`. Source on Linux: /proc/PID/fd, and /proc/PID/net for the ends of
sockets.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_STATES: Final = {1: "established", 8: "in close-wait", 10: "listening"}
_OWN_PORT_FROM: Final = 32768
"""The system assigns ports from here on to clients; they do not identify the socket."""


def descriptors(pid: int) -> Counter[str]:
    """Return the number of open descriptors by name. Raises OSError if the process has ended."""
    sockets: dict[str, str] | None = None
    names: Counter[str] = Counter()
    for target in _targets(pid):
        kind, _, inode = target.partition(":[")
        if kind == "socket":
            sockets = dict(_sockets(pid)) if sockets is None else sockets
            names[sockets.get(inode.rstrip("]"), "socket")] += 1
        else:
            # Every pipe has a number of its own; leave it out.
            names[kind if kind == "pipe" else target] += 1
    return names


def more(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return what `after` has more than `before`, by name."""
    return dict(Counter(after) - Counter(before))


def connections_of(pid: int) -> set[tuple[int, int]]:
    """Return (own port, remote port) of each TCP connection. Raises OSError if the process has ended or is
    another user's.
    """
    held = set(_targets(pid))
    lines = [line.split() for name in ("tcp", "tcp6") for line in _lines(PROC / str(pid) / "net" / name)]
    return {(_port(fields[1]), _port(fields[2])) for fields in lines if f"socket:[{fields[9]}]" in held}


def _targets(pid: int) -> Iterator[str]:
    """Yield the targets of the open descriptors; skip those that are closed meanwhile."""
    for entry in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(entry.readlink())


def _sockets(pid: int) -> Iterator[tuple[str, str]]:
    """Yield (inode, name) of each socket."""
    net = PROC / str(pid) / "net"
    for line in _lines(net / "unix"):
        fields = line.split(maxsplit=7)
        yield fields[6], f"unix socket {fields[7] if len(fields) > 7 else 'without a name'}"
    for name in ("tcp", "tcp6"):
        for line in _lines(net / name):
            fields = line.split()
            ends = f"{_end(fields[1])} to {_end(fields[2])}"
            number = int(fields[3], 16)
            yield fields[9], f"{name} socket {ends} {_STATES.get(number, f'in state {number}')}"


def _lines(table: Path) -> list[str]:
    """Return the lines of a table without its header."""
    try:
        return table.read_text().splitlines()[1:]
    except FileNotFoundError:
        return []


def _end(text: str) -> str:
    """Return `0100007F:1F90` as 127.0.0.1:8080. The words of the address are in the machine's byte order."""
    address, _, _ = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    raw = b"".join(words)
    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
    number = _port(text)
    shown = str(number) if number < _OWN_PORT_FROM else "any"
    return f"{socket.inet_ntop(family, raw)}:{shown}"


def _port(text: str) -> int:
    return int(text.partition(":")[2], 16)
