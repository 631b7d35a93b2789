"""A text -> its documents as plain values, as Kubernetes reads YAML; and the line of a field.

Called by `reading`. Builds the values from libyaml's events itself: keys are strings, a key that is there
twice is an error, dates stay text, and there are no base-60 numbers; `yes` and `on` are true, as Kubernetes'
own YAML 1.1 reader has it, so a label with such a value is refused with a cure. Depth is limited, and so is
the size of expanded aliases: a small text cannot become a huge object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import yaml
from yaml.resolver import BaseResolver

_TAG: Final = "tag:yaml.org,2002:"
_TRUE: Final = frozenset({"yes", "true", "on"})
_JSON_START: Final = re.compile(r"\s*\{")
_SPACE: Final = re.compile(r"\s*")
MAX_DEPTH: Final = 100
MAX_ALIASED_VALUES: Final = 1_000_000


class DocumentError(Exception):
    """A text that is not YAML or JSON. Attributes: line (from 1; 0: unknown), problem."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(problem)


class _Resolver(BaseResolver):
    """Finds the type of a plain scalar: the types that Kubernetes knows."""


_Resolver.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in (f"{_TAG}timestamp", f"{_TAG}int", f"{_TAG}float", f"{_TAG}value")
    ]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Resolver.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(
        r"[-+]?(?:0b_*[01][01_]*|0o?_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0|[1-9][0-9_]*)\Z",
    ),
    list("-+0123456789"),
)
_Resolver.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+0123456789."),
)


@lru_cache(maxsize=4096)
def _tag_of_plain(value: str) -> str:
    return str(_Resolver().resolve(yaml.ScalarNode, value, (True, False)))  # type: ignore[no-untyped-call]


def documents_of(text: str) -> Iterator[Any]:
    """The documents of a text, in order; an empty one is None. Raises DocumentError at the first bad one."""
    if _JSON_START.match(text):
        try:
            documents = _json_documents(text)
        except (json.JSONDecodeError, RecursionError):
            pass  # YAML in braces, or much too deep: the YAML reader has the better message
        else:
            yield from documents
            return
    yield from _Reader(text).documents()


def line_of(text: str, document: int, path: str) -> int:
    """The line of a field, or of the nearest field above it; 0 where the text cannot be read again."""
    node = _composed(text).document(document)
    return 0 if node is None else _line(node, re.findall(r"[^.\[\]]+|\[\d+\]", path))


class _Composed:
    """The nodes of a text, composed as far as they were asked for: a text may have many problems."""

    def __init__(self, text: str) -> None:
        self._rest = yaml.compose_all(text, Loader=yaml.CSafeLoader)
        self._nodes: list[yaml.Node] = []

    def document(self, number: int) -> yaml.Node | None:
        """The root of a document, counted from 1; None where there is none."""
        try:
            while len(self._nodes) < number:
                self._nodes.append(next(self._rest))
        except (StopIteration, yaml.YAMLError):
            return None
        return self._nodes[number - 1]


@lru_cache(maxsize=1)
def _composed(text: str) -> _Composed:
    return _Composed(text)


def _json_documents(text: str) -> list[Any]:
    """The values of a JSON text, which may hold several, one after the other."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_pairs, parse_constant=_no_constant, parse_int=_json_integer
    )
    documents: list[Any] = []
    position = _after_space(text, 0)
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        if _is_deeper(value, MAX_DEPTH):
            raise DocumentError(0, f"is nested deeper than {MAX_DEPTH} levels: no Kubernetes object is")
        documents.append(value)
        position = _after_space(text, position)
    return documents


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found is not None else position


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)


class _Reader:
    """Builds the values of a YAML text. Aliased values are shared; no code changes them."""

    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._last_line = text.count("\n") + 1
        # Per anchor its line, and once it is complete its value and how many values that holds.
        self._anchors: dict[str, tuple[int, Any, int | None]] = {}
        self._built_count = 0
        self._aliased_count = 0

    def documents(self) -> Iterator[Any]:
        """One by one."""
        try:
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    self._anchors.clear()
                    self._built_count = self._aliased_count = 0
                    yield self._value(next(self._events), 0)
        except yaml.MarkedYAMLError as err:
            mark = err.problem_mark or err.context_mark
            # A text that ends too early is marked behind its last line.
            line = min(mark.line + 1, self._last_line) if mark else 0
            raise DocumentError(line, f"is not YAML: {err.problem}") from err
        except (yaml.YAMLError, UnicodeError) as err:
            raise DocumentError(0, f"is not YAML: {err}") from err

    def _value(self, event: yaml.Event, depth: int) -> Any:
        line = _line_number(event)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, line)
        if depth > MAX_DEPTH:
            raise DocumentError(line, f"is nested deeper than {MAX_DEPTH} levels: no Kubernetes object is")
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        before = self._built_count + self._aliased_count
        if anchor is not None:
            self._anchors[anchor] = (line, None, None)
        self._built_count += 1
        value = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else self._collection(event, depth)
        if anchor is not None:
            self._anchors[anchor] = (line, value, self._built_count + self._aliased_count - before)
        return value

    def _aliased(self, event: yaml.AliasEvent, line: int) -> Any:
        if event.anchor not in self._anchors:
            raise DocumentError(line, f"is not YAML: no anchor &{event.anchor} stands before *{event.anchor}")
        anchor_line, value, count = self._anchors[event.anchor]
        if count is None:
            raise DocumentError(anchor_line, "an alias refers to itself: write the value out")
        self._aliased_count += count
        if self._aliased_count > MAX_ALIASED_VALUES:
            text = f"its aliases stand for more than {MAX_ALIASED_VALUES} values: write out what is meant"
            raise DocumentError(line, text)
        return value

    def _collection(self, event: yaml.Event, depth: int) -> Any:
        tag = event.tag if isinstance(event, yaml.CollectionStartEvent) else None
        if tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise DocumentError(_line_number(event), f"the tag {tag!r} is not known: remove it")
        return self._mapping(depth) if isinstance(event, yaml.MappingStartEvent) else self._items(depth)

    def _items(self, depth: int) -> list[Any]:
        items = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        inherited: dict[str, Any] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line = _line_number(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise DocumentError(line, "a key must be a string")
            if event.value == "<<" and self._tag(event) == f"{_TAG}merge":
                inherited = _merged(self._value(next(self._events), depth + 1), line) | inherited
                continue
            if event.value in result:
                raise DocumentError(line, f"key {event.value!r} is there twice: remove one")
            result[event.value] = self._value(next(self._events), depth + 1)
        return inherited | result if inherited else result

    def _tag(self, event: yaml.ScalarEvent) -> str:
        tag: str | None = event.tag
        if tag is None or tag == "!":
            tag = _tag_of_plain(event.value) if event.implicit[0] else f"{_TAG}str"
        return tag

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag, text = self._tag(event), event.value
        if tag == f"{_TAG}str":
            return text
        if tag == f"{_TAG}bool":
            return text.lower() in _TRUE
        if tag == f"{_TAG}null":
            return None
        if tag == f"{_TAG}int":
            return _integer(text.replace("_", ""), _line_number(event))
        if tag == f"{_TAG}float":
            return _float(text.replace("_", ""), _line_number(event))
        raise DocumentError(
            _line_number(event), f"the tag {tag!r} is not known: remove it, or quote the value"
        )


def _merged(value: Any, line: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for part in value if isinstance(value, list) else [value]:
        if not isinstance(part, dict):
            raise DocumentError(line, "'<<' needs a map, or a list of maps")
        result = part | result
    return result


def _integer(text: str, line: int) -> int:
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    try:
        return int(text, 8 if octal else 0)
    except ValueError as err:  # thousands of digits, or a tag that lies
        raise DocumentError(line, f"{text:.40} is not an integer of 64 bits: write one, or quote it") from err


def _float(text: str, line: int) -> float:
    if text.lower().endswith(("inf", "nan")):
        raise DocumentError(line, f"{text} is not a number of JSON: write one, or quote it")
    try:
        return float(text)
    except ValueError as err:
        raise DocumentError(line, f"{text:.40} is not a number: write one, or quote it") from err


def _line_number(of: yaml.Node | yaml.Event) -> int:
    return int(of.start_mark.line) + 1 if of.start_mark else 0


def _line(node: yaml.Node, tokens: list[str]) -> int:
    line = _line_number(node)
    while tokens:
        found = _child(node, tokens)
        if found is None:
            break
        line, node, used = found
        tokens = tokens[used:]
    return line


def _child(node: yaml.Node, tokens: list[str]) -> tuple[int, yaml.Node, int] | None:
    """Line and node of the child that the first tokens name; keys may hold dots themselves."""
    if isinstance(node, yaml.SequenceNode) and tokens[0].startswith("["):
        index = int(tokens[0][1:-1])
        if index < len(node.value):
            item = node.value[index]
            return _line_number(item), item, 1
    elif isinstance(node, yaml.MappingNode):
        names = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        for used in range(1, len(tokens) + 1):
            if (name := ".".join(tokens[:used])) in names:
                key, value = names[name]
                return _line_number(key), value, used
    return None


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DocumentError(0, f"key {twice!r} is there twice: remove one")
    return result


def _no_constant(name: str) -> Any:
    raise DocumentError(0, f"{name} is not a number of JSON: write one, or quote it")


def _json_integer(text: str) -> int:
    return _integer(text, 0)
