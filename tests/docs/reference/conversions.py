"""Generate docs/reference/older-configurations.md from the mapping table of `berth_host.older_config`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_host.older_config.other_plugins import OTHER_PLUGINS
from berth_host.older_config.table import (
    ARGUMENTS,
    FIELDS,
    PLUGINS,
    POINTS,
    PREDICATES,
    PRIORITIES,
    Form,
    Row,
)

from docs.reference.markdown import code, codes, table

_TABLES: Final[dict[str, Sequence[Row]]] = {
    "Fields": FIELDS,
    "Extension points": POINTS,
    "Plugins": PLUGINS,
    "Predicates": PREDICATES,
    "Priorities": PRIORITIES,
    "Arguments of predicates and priorities": ARGUMENTS,
}
_HEADER: Final = ("Older name", "In", "In v1", "How near", "Since", "Note")
_OTHER_HEADER: Final = ("Plugin", "Part of", "Points", "What it does", "How near", "Instead")


def conversions() -> str:
    """Return every row of the mapping table, by subject."""
    parts = []
    for heading, rows in _TABLES.items():
        parts += [f"### {heading}", table(_HEADER, (_row(row) for row in rows))]
    return "\n\n".join(parts)


def other_plugins() -> str:
    """Return every plugin of scheduler-plugins, with what berth has instead."""
    rows = (
        (
            code(plugin.name),
            plugin.group,
            codes(plugin.points),
            plugin.decides,
            plugin.change.value,
            plugin.instead,
        )
        for plugin in OTHER_PLUGINS
    )
    return table(_OTHER_HEADER, rows)


def _row(row: Row) -> tuple[str, ...]:
    forms = ", ".join(form.value for form in Form if form in row.forms)
    note = "; ".join(text for text in (_strategy(row), row.note) if text)
    return (code(row.name), forms, codes(row.becomes), row.change.value, row.since, note)


def _strategy(row: Row) -> str:
    return "" if row.strategy is None else f"scoringStrategy {code(row.strategy)}"
