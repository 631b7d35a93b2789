"""Splits a text into its YAML or JSON documents as plain values, and finds the line of a field.

Called by `loading`. `berth_sdk.yaml` reads YAML as Kubernetes does. The last value of a repeated key counts,
as in kubectl; the caller warns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import yaml
from berth_sdk.json.scanner import ITEMS, ScanError, cut, spans
from berth_sdk.yaml.reader import MAX_DEPTH, read_values
from berth_sdk.yaml.scalars import YamlTextError

_JSON_START: Final = re.compile(r"\s*\{")
_NO_SEPARATOR: Final = re.compile(
    r"^(?:---[^\S\n]*(?P<content>[^\s#][^\n]*)|(?P<directive>%(?:YAML|TAG)\b))", re.MULTILINE
)
_SPACE: Final = re.compile(r"\s*")


_METADATA: Final = {b"managedFields": "managedFields"}
_MANAGED: Final = {b"metadata": _METADATA, b"items": {ITEMS: {b"metadata": _METADATA}}}


class DocumentError(Exception):
    """The text is not YAML or JSON. Attributes: line (from 1; 0: unknown), problem."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(problem)


Repeated: TypeAlias = list[tuple[str, int]]
"""The repeated keys of mappings, each with its line (0: unknown)."""


def documents_of(text: str) -> Iterator[tuple[Any, Repeated]]:
    """Yield the documents of a text, each with its repeated keys; an empty document is None.

    Raises DocumentError at the first document that cannot be read.
    """
    if _JSON_START.match(text):
        try:
            documents = _shallow_documents(text)
        except (json.JSONDecodeError, RecursionError):
            pass  # YAML in braces, or nested too deeply: the YAML reader has the better message.
        else:
            yield from documents
            return
    text = text.removeprefix("\ufeff")
    _check_separators(text)
    try:
        yield from read_values(text)
    except YamlTextError as err:
        # For a text that ends too early, the reader gives a line behind the last one.
        line = min(err.line or 0, text.count("\n") + 1)
        raise DocumentError(line, f"is not YAML that Kubernetes reads: {err.message}") from err


def _shallow_documents(text: str) -> list[tuple[Any, Repeated]]:
    """Return the documents of a JSON text. Where it is too deep, it is read without managedFields, which any
    user of the cluster that it was read from may have nested deeply.
    """
    try:
        return _json_documents(text)
    except (json.JSONDecodeError, RecursionError, DocumentError):
        cut_text = _without_managed_fields(text)
        if cut_text == text:
            raise
        return _json_documents(cut_text)


def _without_managed_fields(text: str) -> str:
    """Return a JSON document without the managedFields of its object, or of the items of its list. Every line
    stays where it is.
    """
    content = text.encode(errors="surrogatepass")
    try:
        places = [span for span in spans(content, _MANAGED) if span is not None]
    except ScanError:
        return text
    left = [b"null" + b"\n" * content.count(b"\n", one.start, one.end) for one in places]
    return cut(content, places, left).decode(errors="surrogatepass")


def _check_separators(text: str) -> None:
    """Raise DocumentError for a separator that kubectl, which splits a text at its lines `---`, refuses.

    Source: `k8s.io/apimachinery/pkg/util/yaml/decoder.go`, v1.36.
    """
    found = _NO_SEPARATOR.search(text)
    if found is None:
        return
    line = text.count("\n", 0, found.start()) + 1
    if found["directive"]:
        raise DocumentError(line, f"has a directive, {found['directive']}, which kubectl refuses: remove it")
    content = found["content"].strip()
    raise DocumentError(line, f"{content!r:.60} is on the line of a separator: write it on the next line")


def line_of(text: str, document: int, path: str) -> int:
    """Return the line of a field, or of the nearest parent field found; 0 if the text cannot be parsed."""
    composed = _composed(text)
    node = composed.document(document)
    return 0 if node is None else _line(composed, node, re.findall(r"[^.\[\]]+|\[\d+\]", path))


Children: TypeAlias = dict[str, tuple[yaml.Node, yaml.Node]]


class _Composed:
    """The YAML nodes of a text, composed on demand and kept, because a text may have many problems."""

    def __init__(self, text: str) -> None:
        self._rest = yaml.compose_all(text, Loader=yaml.CSafeLoader)
        self._nodes: list[yaml.Node] = []
        self._children: dict[int, Children] = {}

    def children(self, node: yaml.MappingNode) -> Children:
        """Return the keys and values of a map by name; kept, because a map may have many problems."""
        found = self._children.get(id(node))
        if found is None:
            found = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            self._children[id(node)] = found
        return found

    def document(self, number: int) -> yaml.Node | None:
        """Return the root node of a document, counted from 1; None if there is none."""
        try:
            while len(self._nodes) < number:
                self._nodes.append(next(self._rest))
        except (StopIteration, yaml.YAMLError):
            return None
        return self._nodes[number - 1]


@lru_cache(maxsize=1)
def _composed(text: str) -> _Composed:
    return _Composed(text)


def _json_documents(text: str) -> list[tuple[Any, Repeated]]:
    """Return the values of a JSON text, which may contain several, one after the other."""
    repeated: Repeated = []
    decoder = json.JSONDecoder(
        object_pairs_hook=partial(_pairs, repeated), parse_constant=_no_constant, parse_int=_json_integer
    )
    documents: list[tuple[Any, Repeated]] = []
    position = _after_space(text, 0)
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        if _is_deeper(value, MAX_DEPTH):
            raise DocumentError(0, f"is nested deeper than {MAX_DEPTH} levels: no Kubernetes object is")
        documents.append((value, list(repeated)))
        repeated.clear()
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


def _line_number(of: yaml.Node | yaml.Event) -> int:
    return int(of.start_mark.line) + 1 if of.start_mark else 0


def _line(composed: _Composed, node: yaml.Node, tokens: list[str]) -> int:
    line = _line_number(node)
    while tokens:
        found = _child(composed, node, tokens)
        if found is None:
            break
        line, node, used = found
        tokens = tokens[used:]
    return line


def _child(composed: _Composed, node: yaml.Node, tokens: list[str]) -> tuple[int, yaml.Node, int] | None:
    """Return line and node of the child that the first tokens name, and the number of tokens used.

    A key may contain dots, so one key may use several tokens. None: there is no such child.
    """
    if isinstance(node, yaml.SequenceNode) and tokens[0].startswith("["):
        index = int(tokens[0][1:-1])
        if index < len(node.value):
            item = node.value[index]
            return _line_number(item), item, 1
    elif isinstance(node, yaml.MappingNode):
        names = composed.children(node)
        for used in range(1, len(tokens) + 1):
            if (name := ".".join(tokens[:used])) in names:
                key, value = names[name]
                return _line_number(key), value, used
    return None


def _pairs(repeated: Repeated, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                repeated.append((key, 0))
            seen.add(key)
    return result


def _no_constant(name: str) -> Any:
    raise DocumentError(0, f"{name} is not a number of JSON: write one, or quote it")


def _json_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as err:  # thousands of digits
        raise DocumentError(0, f"{text:.40} is not an integer of 64 bits: write one, or quote it") from err
