"""The warning about each change: its place in the file, the name in v1, the release and the precision."""

from __future__ import annotations

from dataclasses import dataclass, field

from berth_host.config.errors import ConfigurationError, Finding
from berth_host.config.source.node import SourceNode
from berth_host.older_config.table import Change, Form, Row


@dataclass(slots=True)
class Remarks:
    """The warnings of one conversion. `form`: the form of the document. `source`: its name."""

    form: Form
    source: str
    texts: list[str] = field(default_factory=list)

    def changed(self, row: Row, path: str, line: int, *, what: str | None = None, more: str = "") -> None:
        """Warn of a name of the table. `what`: shown instead of the table's name. `more`: another note."""
        shown = what or f"{row.subject} {row.name}"
        if row.change is Change.DROPPED:
            said = f"{shown} is dropped (gone since {row.since})"
        else:
            nearly = ", approximated" if row.change is Change.APPROXIMATED else ""
            said = f"{shown} becomes {' and '.join(row.becomes)} (since {row.since}{nearly})"
        notes = "; ".join(note for note in (row.note, more) if note)
        self.say(f"{said}: {notes}" if notes else said, path, line)

    def say(self, text: str, path: str, line: int) -> None:
        """Add any other warning. A repeated warning is added only once."""
        said = f"line {line}: {path}: {text}"
        if said not in self.texts:
            self.texts.append(said)

    def refusal(
        self, message: str, path: str, node: SourceNode, *, suggestion: str | None = None
    ) -> ConfigurationError:
        """Return the error to raise for a field that cannot be converted."""
        finding = Finding(message, field=path, line=node.line, suggestion=suggestion)
        return ConfigurationError("decode", [finding], source=self.source)
