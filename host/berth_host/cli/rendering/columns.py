"""Rows -> aligned columns, as kubectl prints them. Used by all readable output."""

from __future__ import annotations

from collections.abc import Sequence

GAP = 3


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 0
) -> str:
    """Lines without a trailing newline; the columns numbered in `right` are aligned to the right."""
    table = [header, *rows] if header else list(rows)
    if not table:
        return ""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((" " * indent + (" " * GAP).join(cells)).rstrip())
    return "\n".join(lines)


def count_of(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
