"""The tables of a page in Markdown, between marks: read, and written again with rows that were measured anew.

    <!-- figures: large -->
    | workload | ... | command | date |
    ...
    <!-- end: figures -->

Rows of commands that did not run stay as they are, with their date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from berth_bench.figures.sections import Cells, Section, shown

_END: Final = "<!-- end: figures -->"
_MARK: Final = re.compile(r"<!-- figures: (?P<name>\S+) -->\n(?P<table>.*?)" + re.escape(_END), re.DOTALL)
Rows = Mapping[str, Sequence[Cells]]
"""By command, as the page shows it, the cells of its rows."""


def names_in(page: str) -> list[str]:
    """Return the sections that a page has marks for, in order."""
    return [match["name"] for match in _MARK.finditer(page)]


def rows_in(page: str, section: Section) -> dict[str, list[Cells]]:
    """Return the rows of a section's table by command; empty if the page has no such table."""
    found: dict[str, list[Cells]] = {}
    for match in _MARK.finditer(page):
        if match["name"] != section.name:
            continue
        for line in [line for line in match["table"].splitlines() if line.startswith("|")][2:]:
            cells = tuple(cell.strip() for cell in line.strip("| ").split(" | "))
            if len(cells) == len(section.columns):
                found.setdefault(cells[-2], []).append(cells)
    return found


def table(section: Section, rows: Rows) -> str:
    """Return a section's table, its commands in order; commands without a row are left out."""
    lines = [section.columns, ("---",) * len(section.columns)]
    for command in section.commands:
        lines += rows.get(shown(command), [])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def written(page: str, sections: Sequence[Section], rows: Rows) -> str:
    """Return the page with new rows in the tables that it has marks for."""
    by_name = {section.name: section for section in sections}

    def replaced(match: re.Match[str]) -> str:
        section = by_name.get(match["name"])
        if section is None:
            return match[0]
        text = table(section, {**rows_in(page, section), **rows})
        return f"<!-- figures: {section.name} -->\n\n{text}\n{_END}"

    return _MARK.sub(replaced, page)
