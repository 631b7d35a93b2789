"""The first YAML document of a text -> SourceNode, as sigs.k8s.io/yaml converts it to JSON.

Built on the parser's events, not on PyYAML's loader: lines stay known, words are resolved by the rules
of yaml.v2, repeated keys are kept for the strict decoder, and text behind the document is not read. Called by
`documents`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from berth_host.config.source.node import (
    MAX_DEPTH,
    Member,
    RepeatedKey,
    Scalar,
    SourceError,
    SourceNode,
)
from berth_host.config.source.scalars import resolve_tagged, resolve_word

_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_EXACT_FLOAT: Final = 1e21
"""Below this, Go writes a whole float64 as an integer, so that `4.0` decodes into an integer field."""


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A document's value, and where the rest of the text begins (both from 0)."""

    root: SourceNode
    end_line: int
    end_column: int


def read_yaml(text: str, *, first_line: int = 1) -> YamlDocument:
    """Read the first document. An empty text is the value null. Raises SourceError."""
    try:
        return _Reader(yaml.parse(text, Loader=yaml.CSafeLoader), first_line).document()
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        message = ", ".join(part for part in (err.context, err.problem) if part)
        if mark is not None and _is_tab(text, mark):
            message += ": a tab; indent with spaces"
        raise SourceError(f"yaml: {message}", mark.line + first_line if mark else None) from err
    except (yaml.YAMLError, UnicodeError) as err:
        raise SourceError(f"yaml: {' '.join(str(err).split())}", None) from err


def _is_tab(text: str, mark: yaml.Mark) -> bool:
    lines = text.split("\n")
    return mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t"


@dataclass(slots=True)
class _Mapping:
    """A mapping while it is read. `keys` are the keys with their types: 1 and "1" are different."""

    members: dict[str, Member] = field(default_factory=dict)
    keys: set[Hashable] = field(default_factory=set)
    repeated: list[RepeatedKey] = field(default_factory=list)

    def put(self, key: Scalar, member: Member) -> None:
        name = _key_name(key, member.key_line)
        identity = (type(key), key)
        if identity in self.keys:
            self.repeated.append(RepeatedKey(name, member.key_line))
        self.keys.add(identity)
        self.members[name] = member


class _Reader:
    """Turns events into nodes; recursive, so depth is limited."""

    def __init__(self, events: Iterator[yaml.Event], first_line: int) -> None:
        self._events = events
        self._first_line = first_line
        self._anchors: dict[str, SourceNode | None] = {}

    def document(self) -> YamlDocument:
        root: SourceNode | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                root = self._node(next(self._events), 0)
            elif isinstance(event, yaml.DocumentEndEvent):
                # An explicit end mark ("...") belongs to the document that it ends.
                end = event.end_mark if event.explicit else event.start_mark
                line, column = (end.line, end.column) if end else (0, 0)
                return YamlDocument(root or self._nothing(), line, column)
        return YamlDocument(self._nothing(), 0, 0)

    def _nothing(self) -> SourceNode:
        return SourceNode(None, self._first_line)

    def _line(self, event: yaml.Event) -> int:
        return (event.start_mark.line if event.start_mark else 0) + self._first_line

    def _node(self, event: yaml.Event, depth: int) -> SourceNode:
        line = self._line(event)
        if depth > MAX_DEPTH:
            raise SourceError(f"yaml: nested deeper than {MAX_DEPTH} levels", line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = SourceNode.of_list(tuple(self._items(depth)), line)
        else:
            node = self._mapping(depth, line)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _alias(self, anchor: str | None, line: int) -> SourceNode:
        if anchor is None or anchor not in self._anchors:
            raise SourceError(f"yaml: unknown anchor '{anchor}' referenced", line)
        node = self._anchors[anchor]
        if node is None:
            raise SourceError(f"yaml: anchor '{anchor}' value contains itself", line)
        return node

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> SourceNode:
        value = _scalar_value(event, line)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise SourceError(f"json: unsupported value: {event.value}", line)
            if value.is_integer() and abs(value) < _EXACT_FLOAT:
                value = int(value)
        return SourceNode(value, line, plain=event.value if event.implicit[0] else None)

    def _items(self, depth: int) -> Iterator[SourceNode]:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth + 1)

    def _mapping(self, depth: int, line: int) -> SourceNode:
        mapping = _Mapping()
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            is_merge = _is_merge(event)
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if is_merge:
                _merge(mapping, value, self._line(event))
            elif isinstance(key.value, tuple | dict):
                raise SourceError("yaml: invalid map key: it must be a word, not a list or map", key.line)
            else:
                mapping.put(_key_value(event, key), Member(self._line(event), value))
        return SourceNode.of_mapping(mapping.members, line, tuple(mapping.repeated))


def _scalar_value(event: yaml.ScalarEvent, line: int) -> Scalar:
    if event.tag is not None and event.tag != "!":
        return resolve_tagged(event.tag, event.value, line)
    return resolve_word(event.value) if event.implicit[0] else str(event.value)


def _is_merge(event: yaml.Event) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    return bool(event.implicit[0]) or event.tag == _MERGE_TAG


def _merge(mapping: _Mapping, value: SourceNode, line: int) -> None:
    # In a list of maps the earlier ones win, hence the reversal. A merged key that is also written out
    # counts as repeated: the strict reader of sigs.k8s.io/yaml refuses it too.
    sources = [value] if isinstance(value.value, dict) else list(reversed(value.items))
    if not sources or not all(isinstance(source.value, dict) for source in sources):
        raise SourceError("yaml: map merge requires map or sequence of maps as the value", line)
    for source in sources:
        for key, member in source.members.items():
            mapping.put(key, member)


def _key_value(event: yaml.Event, key: SourceNode) -> Scalar:
    if isinstance(event, yaml.ScalarEvent):
        return _scalar_value(event, key.line)
    return key.value if isinstance(key.value, None | bool | int | float | str) else None


def _key_name(key: Scalar, line: int) -> str:
    """The JSON key of a YAML key; numbers and booleans become their text."""
    if key is None:
        raise SourceError("yaml: unsupported map key: null", line)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return f"{key:g}"
    return str(key)
