"""Standard streams of the commands, of host and SDK alike: closed ones (`>&-`), and those that take no more.

`prepare_streams` is called before anything else is opened. The next file or socket would otherwise get the
number 0, 1 or 2: what is printed would go there, and libuv ends the process when it closes such a one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper


def prepare_streams() -> None:
    """Point the numbers of closed streams at /dev/null, and let no message fail. What is lost, is lost.

    A closed standard input stays None in `sys`: to read from it is an error that names the cause.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is what `open` answers, and those below are taken by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, TextIOWrapper):
        # A locale may lack the characters of what is printed.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = _Unfailing(sys.stderr)


class _Unfailing(TextIOWrapper):
    """A standard error that loses what its disk or its reader does not take: the exit code still counts."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=True
        )

    def write(self, text: str) -> int:
        """Write the text, or lose it; answers its length."""
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Write what is left, or lose it."""
        with suppress(OSError):
            super().flush()


@contextmanager
def result_written(name: str) -> Iterator[None]:
    """Exit with 1 where standard output does not take what the command prints; `name` is the command's."""
    try:
        try:
            yield
        finally:
            # Now, where a full disk can still be reported; at the end of the process it could not.
            sys.stdout.flush()
    except OSError as err:
        # The rest of the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(err, BrokenPipeError):  # who has read enough wants to hear no more
            cure = "free some space, or send the result elsewhere"
            sys.stderr.write(f"{name}: the result cannot be written: {err.strerror}: {cure}\n")
        sys.exit(1)
