"""The remark about each change: its place in the file, the name in v1, the release and the precision.

`conversion` hands remarks on as warnings; `berth migrate` lists them by precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.source.node import SourceNode
from berth_host.older_config.table import Change, Form, Row


@dataclass(frozen=True, slots=True)
class Remark:
    """One change. `path` and `line`: its place in the older file. `change` None: a note, and no change.

    `source`: the policy that has the place; empty for the file itself. `plugin`: the plugin that was left
    out; empty for every other change.
    """

    text: str
    path: str
    line: int
    change: Change | None = None
    source: str = ""
    plugin: str = ""

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source else ""
        return f"{place}line {self.line}: {self.path}: {self.text}"


@dataclass(slots=True)
class Remarks:
    """The remarks of one conversion. `form`: the form of the document. `source`: its name."""

    form: Form
    source: str
    all: list[Remark] = field(default_factory=list)

    @property
    def texts(self) -> tuple[str, ...]:
        """The remarks as warnings, each with its place."""
        return tuple(map(str, self.all))

    def changed(self, row: Row, path: str, line: int, *, what: str | None = None, more: str = "") -> None:
        """Warn of a name of the table. `what`: shown instead of the table's name. `more`: another note."""
        shown = what or f"{row.subject} {row.name}"
        if row.change is Change.DROPPED:
            said = f"{shown} is dropped (gone since {row.since})"
        else:
            nearly = ", approximated" if row.change is Change.APPROXIMATED else ""
            said = f"{shown} becomes {' and '.join(row.becomes)} (since {row.since}{nearly})"
        notes = "; ".join(note for note in (row.note, more) if note)
        self.say(f"{said}: {notes}" if notes else said, path, line, change=row.change)

    def say(self, text: str, path: str, line: int, *, change: Change | None = None) -> None:
        """Add any other remark. A repeated remark is added only once."""
        said = Remark(text, path, line, change)
        if said not in self.all:
            self.all.append(said)

    def refusal(
        self, message: str, path: str, node: SourceNode, *, suggestion: str | None = None
    ) -> ConfigurationError:
        """Return the error to raise for a field that cannot be converted."""
        finding = Finding(message, field=path, line=node.line, suggestion=suggestion)
        return ConfigurationError("decode", [finding], source=self.source)
