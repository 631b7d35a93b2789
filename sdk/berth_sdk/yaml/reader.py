"""Reads the documents of a YAML text with the rules of sigs.k8s.io/yaml.

Called for manifests and kubeconfigs (`read_values`, `read_one`) and, by `config.source`, for configurations,
whose values keep their lines. Built on libyaml's events: PyYAML's own loader resolves words by other rules.
Source: sigs.k8s.io/yaml v1.6 `yaml.go`, go.yaml.in/yaml v2 `decode.go`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

import numpy as np
import yaml

from berth_sdk.yaml.scalars import Scalar, YamlTextError, resolve_tagged, resolve_word

V = TypeVar("V")

MAX_DEPTH: Final = 100
"""The deepest nesting of a document; Kubernetes objects have far less."""
_MERGE_PROBLEM: Final = "yaml: map merge requires map or sequence of maps as the value"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_MAX_INT: Final = 2**63 - 1
_LONG: Final = 6
_STRING_TAG: Final = "tag:yaml.org,2002:str"
_EXACT_FLOAT: Final = 1e21
"""The limit below which Go writes a whole float64 as an integer, so that `4.0` fits an integer field."""
# yaml.v2's limit against aliases of aliases: the share of values that may come from aliases, by the number
# of values.
_FREE_VALUES: Final = 100
_FEW_VALUES: Final = 400_000
_MANY_VALUES: Final = 4_000_000
_SHARE_OF_FEW: Final = 0.99
_SHARE_OF_MANY: Final = 0.10


@dataclass(slots=True)
class Entries(Generic[V]):
    """The contents of a mapping; the last value of a key counts. `lines`: the lines of the keys.

    `repeated`: keys written twice, with the lines of the later ones. `overridden`: keys that are both written
    and merged in by `<<`, or merged in twice.
    """

    members: dict[str, V] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    repeated: list[tuple[str, int]] = field(default_factory=list)
    overridden: list[tuple[str, int]] = field(default_factory=list)


class DocumentReader(ABC, Generic[V]):
    """A reader of one text. A subclass makes the values of scalars, lists and mappings.

    `first_line`: the line of the text's first line, from 1. Values of aliases are shared.
    """

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._words: dict[str, Scalar] = {}
        self._forget()

    @abstractmethod
    def scalar(self, value: Scalar, event: yaml.ScalarEvent, line: int) -> V:
        """Make a scalar's value."""

    @abstractmethod
    def sequence(self, items: list[V], line: int) -> V:
        """Make a list's value."""

    @abstractmethod
    def mapping(self, entries: Entries[V], line: int) -> V:
        """Make a mapping's value."""

    @abstractmethod
    def members_of(self, value: V) -> Iterable[tuple[str, int, V]] | None:
        """Return the keys, their lines and values of a mapping that is merged; None for any other value."""

    @abstractmethod
    def is_list(self, value: V) -> bool:
        """Return True for the value of a list."""

    @abstractmethod
    def items_of(self, value: V) -> Iterable[V]:
        """Return the items of a list."""

    def documents(self) -> Iterator[tuple[V, yaml.Event]]:
        """Yield each document's value with the event that ends the document. Raises YamlTextError."""
        try:
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    self._forget()
                    value = self._node(next(self._events), 0)
                    yield value, next(self._events)
        except yaml.MarkedYAMLError as err:
            raise self._marked(err) from err
        except (yaml.YAMLError, UnicodeError) as err:
            raise YamlTextError(f"yaml: {' '.join(str(err).split())}", None) from err

    def _marked(self, error: yaml.MarkedYAMLError) -> YamlTextError:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        if mark is None:
            return YamlTextError(f"yaml: {message}", None)
        lines = self._text.split("\n")
        if mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
            message += ": a tab; indent with spaces"
        return YamlTextError(f"yaml: {message}", mark.line + self._first_line)

    def _forget(self) -> None:
        # Per anchor: whether its value is complete, the value, and the number of values in it.
        self._anchors: dict[str, tuple[bool, Any, int]] = {}
        self._count = 0
        self._aliased = 0

    def _line(self, event: yaml.Event) -> int:
        return (event.start_mark.line if event.start_mark else 0) + self._first_line

    def _node(self, event: yaml.Event, depth: int) -> V:
        self._count += 1
        if isinstance(event, yaml.ScalarEvent) and event.anchor is None:
            line = self._line(event)
            value = self._scalar(event, line)
            return self.scalar(_json_number(value, line) if type(value) is float else value, event, line)
        line = self._line(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", line)
        if depth > MAX_DEPTH:
            raise YamlTextError(f"yaml: nested deeper than {MAX_DEPTH} levels", line)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        before = self._count
        if anchor is not None:
            self._anchors[anchor] = (False, None, 0)
        if isinstance(event, yaml.ScalarEvent):
            made = self.scalar(_json_number(self._scalar(event, line), line), event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            made = self._sequence(depth, line)
        else:
            made = self._mapping(depth, line)
        if anchor is not None:
            self._anchors[anchor] = (True, made, self._count - before + 1)
        return made

    def _alias(self, anchor: str, line: int) -> V:
        if anchor not in self._anchors:
            raise YamlTextError(f"yaml: unknown anchor '{anchor}' referenced", line)
        is_complete, value, size = self._anchors[anchor]
        if not is_complete:
            raise YamlTextError(f"yaml: anchor '{anchor}' value contains itself", line)
        self._count += size
        self._aliased += size
        share = self._aliased / self._count
        if self._aliased > _FREE_VALUES and share > _allowed_share(self._count):
            raise YamlTextError(
                "yaml: document contains excessive aliasing: its aliases stand for too many values; write "
                "the values out",
                line,
            )
        return value  # type: ignore[no-any-return]

    def _sequence(self, depth: int, line: int) -> V:
        items: list[V] = []
        for event in self._events:
            if type(event) is yaml.SequenceEndEvent:
                break
            items.append(self._node(event, depth + 1))
        return self.sequence(items, line)

    def _mapping(self, depth: int, line: int) -> V:
        entries = Entries[V]()
        members, lines = entries.members, entries.lines
        keys: set[Hashable] = set()  # with their types: 1 and "1" are different
        inherited: set[str] = set()
        for event in self._events:
            if type(event) is yaml.MappingEndEvent:
                break
            key_line = self._line(event)
            key = self._key(event, depth, key_line)
            value_event = next(self._events)
            value = self._node(value_event, depth + 1)
            if key == "<<" and _is_merge(event):
                if isinstance(value_event, yaml.AliasEvent) and self.is_list(value):
                    raise YamlTextError(_MERGE_PROBLEM, key_line)
                for name, at, merged in self._merged(value, key_line):
                    if name in members:
                        entries.overridden.append((name, at))
                    members[name], lines[name] = merged, at
                    inherited.add(name)
                continue
            name, identity = (
                (key, key) if isinstance(key, str) else (_key_name(key, key_line), (type(key), key))
            )
            if identity in keys:
                entries.repeated.append((name, key_line))
            elif name in inherited:
                entries.overridden.append((name, key_line))
            keys.add(identity)
            members[name], lines[name] = value, key_line
        return self.mapping(entries, line)

    def _key(self, event: yaml.Event, depth: int, line: int) -> Scalar:
        if isinstance(event, yaml.ScalarEvent):
            self._count += 1
            value = self._scalar(event, line)
            if event.anchor is not None:
                self._anchors[event.anchor] = (
                    True,
                    self.scalar(_json_number(value, line), event, line),
                    1,
                )
            return value
        if isinstance(event, yaml.AliasEvent):
            value = self.plain(self._node(event, depth + 1))
            if not isinstance(value, list | dict):
                return value  # type: ignore[no-any-return]
        else:
            self._node(event, depth + 1)
        raise YamlTextError("yaml: invalid map key: it must be a word, not a list or map", line)

    @abstractmethod
    def plain(self, value: V) -> Any:
        """Return a value without its lines; any list or dict for a collection."""

    def _merged(self, value: V, line: int) -> Iterator[tuple[str, int, V]]:
        # Reversed, because the earlier maps of a list take precedence.
        sources = list(self.items_of(value))[::-1] if self.is_list(value) else [value]
        for source in sources:
            members = self.members_of(source)
            if members is None:
                raise YamlTextError(_MERGE_PROBLEM, line)
            yield from members

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> Scalar:
        tag = event.tag
        if tag is not None:
            return str(event.value) if tag in (_STRING_TAG, "!") else resolve_tagged(tag, event.value, line)
        if not event.implicit[0]:
            return str(event.value)
        text = event.value
        try:
            return self._words[text]
        except KeyError:
            value = self._words[text] = resolve_word(text)
            return value


class _ValueReader(DocumentReader[Any]):
    """A reader that makes plain values: dict, list, str, bool, int, float and None.

    `repeated`: the repeated keys of the document, with their lines.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[str, int]] = []

    def scalar(self, value: Scalar, event: yaml.ScalarEvent, line: int) -> Any:
        return value

    def sequence(self, items: list[Any], line: int) -> Any:
        return items

    def mapping(self, entries: Entries[Any], line: int) -> Any:
        if entries.repeated:
            self.repeated += entries.repeated
        return entries.members

    def members_of(self, value: Any) -> Iterable[tuple[str, int, Any]] | None:
        return ((key, 0, item) for key, item in value.items()) if isinstance(value, dict) else None

    def is_list(self, value: Any) -> bool:
        return isinstance(value, list)

    def items_of(self, value: Any) -> Iterable[Any]:
        return value  # type: ignore[no-any-return]

    def plain(self, value: Any) -> Any:
        return value


def read_values(text: str) -> Iterator[tuple[Any, list[tuple[str, int]]]]:
    """Yield the documents of a text, each with its repeated keys and their lines; an empty one is None.

    Raises YamlTextError at the first document that cannot be read.
    """
    reader = _ValueReader(text)
    for value, _ in reader.documents():
        yield value, reader.repeated
        reader.repeated = []


def read_one(text: str) -> Any:
    """Return the value of a text's first document, None for an empty text. Raises YamlTextError."""
    return next((value for value, _ in read_values(text)), None)


def _allowed_share(count: int) -> float:
    if count <= _FEW_VALUES:
        return _SHARE_OF_FEW
    if count >= _MANY_VALUES:
        return _SHARE_OF_MANY
    part = (count - _FEW_VALUES) / (_MANY_VALUES - _FEW_VALUES)
    return _SHARE_OF_FEW - (_SHARE_OF_FEW - _SHARE_OF_MANY) * part


def _json_number(value: Scalar, line: int) -> Scalar:
    """Return a number as Go writes it to JSON, and any other value unchanged."""
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        raise YamlTextError(f"json: unsupported value: {value} is not a number of JSON; quote it", line)
    if value.is_integer() and abs(value) < _EXACT_FLOAT:
        return int(Decimal(repr(value)))
    return value


def _is_merge(event: yaml.Event) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    return (event.tag is None and bool(event.implicit[0])) or event.tag == _MERGE_TAG


def _key_name(key: Scalar, line: int) -> str:
    """Return the JSON key for a YAML key that is not text."""
    if key is None or (type(key) is int and key > _MAX_INT):
        raise YamlTextError(f"yaml: unsupported map key: {'null' if key is None else key}; quote it", line)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return _float_key(key)
    return str(key)


def _float_key(key: float) -> str:
    # Go writes the key with the digits of a float32, and with an exponent from six digits on.
    with np.errstate(over="ignore"):
        number = np.float32(key)
    if not np.isfinite(number):
        return ".nan" if math.isnan(key) else (".inf" if key > 0 else "-.inf")
    text = np.format_float_scientific(number, unique=True, trim="-", exp_digits=2)
    exponent = int(text.partition("e")[2])
    return text if not -5 < exponent < _LONG else np.format_float_positional(number, unique=True, trim="-")
