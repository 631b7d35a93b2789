"""Another user, where tests run as root and where they do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_NOBODY = 65534


def another_user(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the id of a user that is neither root nor the host's own. Only root may give files away, so
    elsewhere the tests' own user becomes the stranger: from now on `os.getuid` answers another one.
    """
    own = os.getuid()
    if own == 0:
        return _NOBODY
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    return own


def give(path: Path, uid: int) -> None:
    """The file belongs to that user, as far as `check_socket` sees."""
    if os.geteuid() == 0:
        os.chown(path, uid, -1)


_LISTEN: Final = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
if os.getuid() == 0:
    os.setuid(int(sys.argv[2]))
listening.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@contextmanager
def foreign_listener(path: Path, uid: int) -> Iterator[int]:
    """Yield the pid of a process of that user. The process listens at `path`, a socket that belongs to the
    tests' own user where the tests run as root.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _LISTEN, str(path), str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listens\n"
            yield process.pid
        finally:
            process.kill()
