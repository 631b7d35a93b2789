"""Reads objects out of the bytes of lists, watch lines and answers, whatever the API server admits.

`metadata.managedFields`, which berth does not read, is cut out of the bytes first: any client may write it,
it is the larger half of many objects, and it may be nested deeper than parsers go. The quick way guesses
where it is and checks the guess afterwards; the exact way (`scanned_line`, `scanned_page`) finds it, and what
an object is called, without a parser. Used by `informer`, `calls` and `copying`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from berth_sdk.clocks import work_s
from berth_sdk.json.objects import Steps, finish, has_opaque, is_too_deep, object_steps
from berth_sdk.json.reader import read_deep_json
from berth_sdk.json.scanner import ITEMS, Paths, Span, cut, quick_cut, spans
from berth_sdk.kube_object import ObjectRef

SLICE_S: Final = 0.02
"""The longest time, in seconds, that reading one large document holds the loop."""
INLINE_BYTES: Final = 32 * 1024
"""A document up to this size is read in one go: it takes at most a few milliseconds."""

MOST_VALUES: Final = 150_000
"""The number of maps and lists of one object up to which the quick parser reads it, in about 0.1 s."""

_MARK: Final = secrets.token_hex(8)
_MARK_BYTES: Final = b'"%b"' % _MARK.encode()
_DROPPED, _OBJECT, _TYPE, _LIST = "dropped", "object", "type", "list"
_NAMES: Final = ("name", "namespace", "uid", "resourceVersion")
_METADATA: Final[Mapping[bytes, str]] = {name.encode(): name for name in _NAMES}


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object that was found by scanning. `content`: its bytes, without managedFields unless they are kept.

    Names that are missing, or are no strings, are empty.
    """

    ref: ObjectRef
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of a watch that was scanned. `type`: ADDED and so on; empty if it has none."""

    type: str
    item: FoundObject | None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `token`: for the next page; empty on the last one.

    `items` are parsed; `late` are objects that the quick parser refuses.
    """

    version: str
    token: str
    items: list[Any]
    late: list[FoundObject]


class NoListError(ValueError):
    """The answer is JSON, and no list of objects."""


class ObjectReader:
    """The reader of one kind's objects. `keeps_managed_fields`: they are wanted, because they are sent on."""

    def __init__(self, kind: str, *, keeps_managed_fields: bool = False) -> None:
        self.kind = kind
        self._keeps = keeps_managed_fields
        metadata = dict[bytes, Any](_METADATA)
        if not keeps_managed_fields:
            metadata[b"managedFields"] = _DROPPED
        self._paths: Paths = {b"": _OBJECT, b"metadata": metadata}

    # --- the quick way -----------------------------------------------------------------------------

    def line(self, line: bytes) -> dict[str, Any] | None:
        """Return a watch event; None if the line must be scanned. What is no event is returned as it is."""
        return None if _has_many_values(line) else self._quick(line, lambda event: [event.get("object")])

    def object(self, document: bytes) -> dict[str, Any] | None:
        """Return one object; None if the document must be scanned."""
        return None if _has_many_values(document) else self._quick(document, lambda item: [item])

    def page(self, document: bytes) -> Page | None:
        """Return a page of a list; None if the page must be scanned. Raises NoListError."""
        page = self._quick(document, lambda found: found.get("items") or ())
        return None if page is None else _page_of(page.get("metadata"), page.get("items") or [], [])

    def _quick(self, document: bytes, items_of: Any) -> dict[str, Any] | None:
        content, count = (document, 0) if self._keeps else quick_cut(document, _MARK_BYTES)
        if has_opaque(self.kind, content):
            return None
        try:
            parsed: Any = orjson.loads(content)
        except ValueError:
            return None
        if not isinstance(parsed, dict):
            return None
        items = items_of(parsed)
        if not isinstance(items, list):
            return None if count else parsed
        for item in items if count else ():
            metadata = item.get("metadata") if isinstance(item, dict) else None
            if isinstance(metadata, dict) and metadata.get("managedFields") == _MARK:
                del metadata["managedFields"]
                count -= 1
        if count:
            return None
        # Deep objects may have hundreds of thousands of values to keep as bytes.
        return None if any(is_too_deep(self.kind, item) for item in items) else parsed

    # --- the exact way -----------------------------------------------------------------------------

    def scanned_line(self, line: bytes) -> Generator[None, None, FoundLine]:
        """Find the object of a watch line. Raises ValueError for bytes that are no JSON."""
        kind, item = "", None
        collected = _Collected(line)
        for span in spans(line, {b"type": _TYPE, b"object": self._paths}):
            if span is None:
                yield
            elif span.label == _TYPE:
                kind = _string(line[span.start : span.end])
            elif (one := collected.take(span)) is not None:
                item = one
        return FoundLine(kind, item)

    def scanned_page(self, document: bytes) -> Generator[None, None, Page]:
        """Read a page of a list, each object by itself. Raises NoListError, and ValueError for no JSON."""
        metadata: Any = None
        items: list[Any] = []
        late: list[FoundObject] = []
        collected = _Collected(document)
        for span in spans(document, {b"metadata": _LIST, b"items": {ITEMS: self._paths}}):
            if span is None:
                yield
            elif span.label == _LIST:
                metadata = read_deep_json(document[span.start : span.end])
            elif (one := collected.take(span)) is not None:
                item = yield from self.parsed(one.content)
                if item is None:
                    late.append(one)
                else:
                    items.append(item)
        return _page_of(metadata, items, late)

    def scanned_object(self, document: bytes) -> Generator[None, None, Any]:
        """Read one object of any depth. Raises ValueError for bytes that are no JSON."""
        collected = _Collected(document)
        for span in spans(document, self._paths):
            if span is None:
                yield
            elif (one := collected.take(span)) is not None:
                return (yield from self.read(one.content))
        return read_deep_json(document)

    def only_item(self, document: bytes) -> Generator[None, None, Any]:
        """Read a list of one object of any depth; return the object, or None for an empty list.

        Raises NoListError, and ValueError for no JSON.
        """
        page = yield from self.scanned_page(document)
        for one in page.late:
            page.items.append((yield from self.read(one.content)))
        return page.items[0] if page.items else None

    def parsed(self, content: bytes) -> Steps:
        """Return an object that was found, or None if only `read` can read it."""
        try:
            return (yield from object_steps(self.kind, content, orjson.loads, only_decode=True))
        except ValueError:
            return None

    def read(self, content: bytes) -> Steps:
        """Read an object that was found, of any depth. Raises ValueError for bytes that are no JSON."""
        return object_steps(self.kind, content, orjson.loads)


class _Collected:
    """The parts of one object after the other, as `spans` finds them."""

    def __init__(self, document: bytes) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._dropped: list[Span] = []

    def take(self, span: Span) -> FoundObject | None:
        """Add a part; return the object if this completed one."""
        text = self._document
        if span.label == _DROPPED:
            self._dropped.append(span)
            return None
        if span.label != _OBJECT:
            self._names[span.label] = _string(text[span.start : span.end])
            return None
        inner = [Span(one.label, one.start - span.start, one.end - span.start) for one in self._dropped]
        names = self._names
        found = FoundObject(
            ObjectRef(
                name=names.get("name", ""),
                namespace=names.get("namespace", ""),
                uid=names.get("uid", ""),
                resource_version=names.get("resourceVersion", ""),
            ),
            cut(text[span.start : span.end], inner, [b"null"] * len(inner)),
        )
        self._names, self._dropped = {}, []
        return found


def _has_many_values(document: bytes) -> bool:
    """Return True if the quick parser, which reads an object in one piece, would hold the loop for long."""
    if len(document) < 2 * MOST_VALUES:
        return False
    return document.count(b"[") + document.count(b"{") > MOST_VALUES


def _string(text: bytes) -> str:
    value = read_deep_json(text) if text[:1] == b'"' else ""
    return value if isinstance(value, str) else ""


def _page_of(metadata: Any, items: Any, late: list[FoundObject]) -> Page:
    if not isinstance(metadata, dict) or not isinstance(items, list):
        raise NoListError
    version, token = metadata.get("resourceVersion") or "", metadata.get("continue") or ""
    return Page(str(version), str(token), items, late)


async def in_slices(steps: Generator[None, None, Any]) -> Any:
    """Do work that comes in steps; let other tasks run as long as every slice of it lasts."""
    began_s = work_s()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        spent_s = work_s() - began_s
        if spent_s >= SLICE_S:
            await asyncio.sleep(spent_s)
            began_s = work_s()


async def read_object(reader: ObjectReader, document: bytes) -> Any:
    """Read an answer that is one object. Raises ValueError for bytes that are no JSON."""
    found = reader.object(document)
    return found if found is not None else await _scanned(reader.scanned_object(document), len(document))


async def read_page(reader: ObjectReader, document: bytes) -> Page:
    """Read an answer that is a page of a list. Raises NoListError, and ValueError for no JSON."""
    found = reader.page(document)
    page: Page = found if found is not None else await _scanned(reader.scanned_page(document), len(document))
    return page


async def read_whole_page(reader: ObjectReader, document: bytes) -> Page:
    """Read a page with all its objects, those too that only the slow way reads."""
    page = await read_page(reader, document)
    for one in page.late:
        page.items.append(await in_slices(reader.read(one.content)))
    page.late.clear()
    return page


async def _scanned(steps: Steps, size_bytes: int) -> Any:
    return finish(steps) if size_bytes <= INLINE_BYTES else await in_slices(steps)
