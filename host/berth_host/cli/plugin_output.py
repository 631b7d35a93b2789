"""Sends prints of in-process plugins to standard error, as standard output has only a command's result."""

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
        """Do nothing, as the command may still write errors."""


@contextmanager
def on_standard_error() -> Iterator[None]:
    """Send prints of the block to standard error."""
    with redirect_stdout(_KeptOpen(sys.stderr)):
        yield
