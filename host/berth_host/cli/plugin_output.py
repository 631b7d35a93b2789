"""Sends what in-process plugins print to standard error: a command's result alone is on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO


class _KeptOpen:
    """A stream that a plugin cannot close."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Do nothing: the command's errors are still to be written."""


@contextmanager
def on_standard_error() -> Iterator[None]:
    """Send to standard error what is printed meanwhile."""
    with redirect_stdout(_KeptOpen(sys.stderr)):
        yield
