"""The first YAML document of a text -> SourceNode, as sigs.k8s.io/yaml converts it to JSON.

The one reader of YAML with values that know their lines: repeated keys are kept for the strict decoder, and
text behind the document is not read. Called by `documents`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import yaml
from berth_sdk.yaml.reader import DocumentReader, Entries
from berth_sdk.yaml.scalars import Scalar, YamlTextError

from berth_host.config.source.node import (
    MAX_VALUES,
    Member,
    RepeatedKey,
    SourceError,
    SourceNode,
    too_many_values,
)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document's value, and where the rest of the text begins (both from 0)."""

    root: SourceNode
    end_line: int
    end_column: int


def read_yaml(text: str, *, first_line: int = 1) -> YamlDocument:
    """Read the first document. An empty text is the value null. Raises SourceError."""
    try:
        for root, event in _NodeReader(text, first_line).documents():
            # An explicit end mark ("...") belongs to the document that it ends.
            is_explicit = isinstance(event, yaml.DocumentEndEvent) and event.explicit
            end = event.end_mark if is_explicit else event.start_mark
            return YamlDocument(root, *((end.line, end.column) if end else (0, 0)))
    except YamlTextError as err:
        raise SourceError(err.message, err.line) from err
    return YamlDocument(SourceNode(None, first_line), 0, 0)


class _NodeReader(DocumentReader[SourceNode]):
    _scalars = 0

    def scalar(self, value: Scalar, event: yaml.ScalarEvent, line: int) -> SourceNode:
        self._scalars += 1
        if self._scalars > MAX_VALUES:  # at once: the rest of the text need not be read
            raise too_many_values(line)
        return SourceNode(value, line, plain=event.value if event.implicit[0] else None)

    def sequence(self, items: list[SourceNode], line: int) -> SourceNode:
        return SourceNode.of_list(tuple(items), line)

    def mapping(self, entries: Entries[SourceNode], line: int) -> SourceNode:
        members = {key: Member(entries.lines[key], node) for key, node in entries.members.items()}
        # A merged key that is also written out counts as repeated, as for sigs.k8s.io/yaml's strict reader.
        repeated = (RepeatedKey(key, at) for key, at in (*entries.repeated, *entries.overridden))
        return SourceNode.of_mapping(members, line, tuple(repeated))

    def members_of(self, value: SourceNode) -> Iterator[tuple[str, int, SourceNode]] | None:
        if not isinstance(value.value, dict):
            return None
        return ((key, member.key_line, member.node) for key, member in value.members.items())

    def is_list(self, value: SourceNode) -> bool:
        return isinstance(value.value, tuple)

    def items_of(self, value: SourceNode) -> Iterable[SourceNode]:
        return value.items

    def plain(self, value: SourceNode) -> object:
        return value.to_json()
