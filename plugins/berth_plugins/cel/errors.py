"""What can go wrong with an expression, and the text of a compile error with its place in the source.

Source: `cel-go` common/errors.go and common/error.go, v0.29.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.errors import BerthError

NO_PLACE: Final = -1
_MAX_ISSUES: Final = 100
_MAX_SNIPPET_BYTES: Final = 16384


class CelError(BerthError):
    """An expression cannot be compiled or evaluated."""


class EvalError(CelError):
    """An error value of the language. `||`, `&&` and optional macros may absorb it."""


class CostError(CelError):
    """The evaluation cost more than its limit. Nothing absorbs this error."""


class Issues:
    """The errors that were found in one expression. `offset` counts code points from 0."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._found: list[tuple[int, int, str]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, offset: int, message: str) -> None:
        """Record an error at an offset, or at NO_PLACE."""
        self._count += 1
        if self._count <= _MAX_ISSUES:
            self._found.append((*self._place(offset), message))

    def __str__(self) -> str:
        found = sorted(self._found, key=lambda one: one[:2])
        shown = [self._shown(*one) for one in found]
        if self._count > _MAX_ISSUES:
            shown.append(f"{self._count - _MAX_ISSUES} more errors were truncated")
        return "\n".join(shown)

    def _place(self, offset: int) -> tuple[int, int]:
        """Return the line from 1 and the column from 0."""
        if offset == NO_PLACE:
            return -1, -1
        if self._lines == [""]:
            return 1, -1
        for number, line in enumerate(self._lines, start=1):
            if offset <= len(line):
                return number, offset
            offset -= len(line) + 1
        return len(self._lines), len(self._lines[-1])

    def _shown(self, line: int, column: int, message: str) -> str:
        text = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if line < 1 or column < 0:
            return text
        snippet = self._lines[line - 1].replace("\t", " ")
        if len(snippet.encode(errors="replace")) > _MAX_SNIPPET_BYTES:
            return text
        dots = "".join("．" if ord(one) > 127 else "." for one in snippet[:column])
        mark = "＾" if snippet[column : column + 1] > "\x7f" else "^"
        return f"{text}\n | {snippet}\n | {dots}{mark}"
