"""The width and the colours of the terminal behind a stream. A stream that is no terminal has neither.

`NO_COLOR` and `TERM=dumb` turn colours off, `FORCE_COLOR` turns them on for any stream. `COLUMNS` takes
precedence over the terminal's own width.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TextIO

import click

MIN_WIDTH: Final = 20


@dataclass(frozen=True, slots=True)
class Terminal:
    """The abilities of a terminal. `width`: in columns; None: lines are not wrapped."""

    width: int | None = None
    has_colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> Terminal:
        """Return the terminal that `stream` leads to; PLAIN for a stream that is no terminal."""
        is_terminal = stream.isatty()
        width = _columns(stream, environment) if is_terminal else None
        allows = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        return cls(width, bool(environment.get("FORCE_COLOR")) or (is_terminal and allows))

    def at_most(self, width: int) -> Terminal:
        """Return the same terminal with at most `width` columns, for text that is easier to read so."""
        return replace(self, width=min(self.width or width, width))

    def wrapped(self, text: str, indent: int = 0, hanging: int | None = None) -> str:
        """Return `text`, wrapped to the width.

        `indent`: spaces before the first line. `hanging`: before the other lines; None: as `indent`.
        """
        first, others = " " * indent, " " * (indent if hanging is None else hanging)
        if self.width is None:
            return first + text
        return textwrap.fill(
            text,
            max(self.width, MIN_WIDTH),
            initial_indent=first,
            subsequent_indent=others,
            break_on_hyphens=False,
        )

    def heading(self, text: str) -> str:
        """Return `text` in bold, if the terminal has colours."""
        return click.style(text, bold=True) if self.has_colour else text

    def alarming(self, text: str) -> str:
        """Return `text` in yellow, if the terminal has colours."""
        return click.style(text, fg="yellow") if self.has_colour else text


PLAIN: Final = Terminal()
"""A file or a pipe."""


def _columns(stream: TextIO, environment: Mapping[str, str]) -> int | None:
    given = environment.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None
