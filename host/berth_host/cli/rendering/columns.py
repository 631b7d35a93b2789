"""Rows -> aligned columns, as kubectl prints them, for all tables of the command line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

GAP: Final = 3
_NARROW_GAP: Final = 1
_NARROWEST: Final = 12


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    indent: int = 0,
    width: int | None = None,
    heading: Callable[[str], str] = str,
) -> str:
    """Return the lines of the table, without a trailing newline.

    `right`: numbers of the columns that are aligned to the right. `width`: of the terminal; a wider table
    gets narrow gaps, and the text in its widest columns is folded. `heading`: styles the header's line.
    """
    table = [header, *rows] if header else list(rows)
    if not table:
        return ""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    gap = GAP
    if width is not None and indent + sum(widths) + GAP * (len(widths) - 1) > width:
        gap = _NARROW_GAP
        widths = _fitted(widths, right, width - indent - gap * (len(widths) - 1))
    lines = []
    for number, row in enumerate(table):
        style = heading if header and not number else str
        for part in _folded(row, widths):
            cells = [
                cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(part)
            ]
            lines.append(style((" " * indent + (" " * gap).join(cells)).rstrip()))
    return "\n".join(lines)


def _fitted(widths: Sequence[int], right: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into `room`. The widest columns of text shrink first, to _NARROWEST at least."""
    fitted = list(widths)
    while sum(fitted) > room:
        able = [i for i, width in enumerate(fitted) if i not in right and width > _NARROWEST]
        if not able:
            break
        fitted[max(able, key=fitted.__getitem__)] -= 1
    return fitted


def _folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    if all(len(cell) <= width for cell, width in zip(row, widths, strict=True)):
        yield tuple(row)
        return
    cells = [
        textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)
    ]
    yield from zip_longest(*cells, fillvalue="")


def count_of(count: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
