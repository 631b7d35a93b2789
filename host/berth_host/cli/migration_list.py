"""The list of a migration as text or as an object: what changed, was left out, or has no equivalent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from berth_host.cli.migration import Migration
from berth_host.config.decoding.types_v1 import API_VERSION
from berth_host.older_config.table import Change
from berth_host.older_config.warnings import Remark

_LEFT_OUT = "left out, because berth has no such plugin"
_HEADINGS: dict[Change | None, str] = {
    Change.EXACT: "changed, and decides the same",
    Change.APPROXIMATED: "changed, and decides nearly the same",
    Change.DROPPED: "dropped, because v1 has no equivalent",
}
_NOTES = "notes"


def list_text(migration: Migration) -> str:
    """Return the list as text, in parts with a heading each, with a newline at the end."""
    return "\n".join(_lines(migration)) + "\n"


def list_object(migration: Migration, files: list[str]) -> dict[str, Any]:
    """Return the list as an object. `files`: the paths of the result; empty if it was printed.

    `change` is `exact`, `approximated`, `dropped` or `note`; `plugin` names a plugin that was left out.
    """
    return {
        "source": migration.source,
        "from": str(migration.form or "v1"),
        "to": API_VERSION,
        "changes": [_entry(remark) for remark in migration.remarks],
        "notes": list(migration.notes),
        "files": files,
    }


def _entry(remark: Remark) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "line": remark.line,
        "field": remark.path,
        "change": "note" if remark.change is None else remark.change.value,
        "text": remark.text,
    }
    entry |= {"source": remark.source} if remark.source else {}
    return entry | ({"plugin": remark.plugin} if remark.plugin else {})


def _lines(migration: Migration) -> Iterator[str]:
    if migration.form is not None:
        yield f"{migration.source}: {migration.form} becomes {API_VERSION}"
    else:
        yield f"{migration.source} is {API_VERSION}{'' if migration.remarks else ': nothing changes'}"
    for change, heading in _HEADINGS.items():
        found = [one for one in migration.remarks if one.change is change and not one.plugin]
        yield from _part(heading, [str(one) for one in found])
    yield from _part(_LEFT_OUT, [str(one) for one in migration.remarks if one.plugin])
    notes = [str(one) for one in migration.remarks if one.change is None and not one.plugin]
    yield from _part(_NOTES, [*notes, *migration.notes])


def _part(heading: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield f"{heading}:"
        yield from (f"  {text}" for text in texts)
