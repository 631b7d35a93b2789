"""Standard streams of the commands of host and SDK that are closed (`>&-`) or cannot be written.

`prepare_streams` is called before anything else is opened. Otherwise the next file or socket would get the
number of a closed stream: prints would go there, and libuv aborts when it closes such a number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper


def prepare_streams() -> None:
    """Open /dev/null for closed streams, and make prints to standard error never fail; their text is lost.

    A closed standard input stays None in `sys`, so that readers can report the cause.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free number, which is this one, as lower numbers are in use.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Not the numbers 1 and 2: what Python imported before this call, such as libffi, may have taken them.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, TextIOWrapper):
        # The locale's encoding may lack printed characters.
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = _Unfailing(sys.stderr)


class _Unfailing(TextIOWrapper):
    """A standard error that drops text which cannot be written, so that the exit code stays right."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=True
        )

    def write(self, text: str) -> int:
        """Write the text, or drop it; return its length."""
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Write the buffered text, or drop it."""
        with suppress(OSError):
            super().flush()


@contextmanager
def result_written(name: str) -> Iterator[None]:
    """Exit with 1 if the block's prints cannot be written to standard output. `name`: of the command."""
    try:
        try:
            yield
        finally:
            # Here, as an error at the end of the process could not be reported.
            sys.stdout.flush()
    except OSError as err:
        # Discard the rest of the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(err, BrokenPipeError):  # a reader that closes the pipe has read enough
            cure = "free some space, or send the result elsewhere"
            sys.stderr.write(f"{name}: the result cannot be written: {err.strerror}: {cure}\n")
        sys.exit(1)
