"""The bytes of a Kubernetes object -> its parsed form, in which no value lies deeper than `MAX_DEPTH`.

A fast parser reads what it can; `json_reader` reads the rest. Opaque parameters of devices stay bytes,
because they are written unchanged into a claim's allocation. Used by `KubeObject`, and by the host for lists
and watches.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final

from berth_sdk.json.reader import MAX_DEPTH, RawJson, reading
from berth_sdk.json.scanner import ITEMS, Paths, Span, cut, spans
from berth_sdk.json.writer import is_deeper

Steps = Generator[None, None, Any]
"""Work in steps of a few milliseconds; its result is the generator's return value."""

KEPT: Final = "kept"
"""The label of values that stay bytes."""
_CONFIG: Final[Paths] = {b"config": {ITEMS: {b"opaque": {b"parameters": KEPT}}}}
OPAQUE: Final[dict[str, Paths]] = {
    "ResourceClaim": {
        b"spec": {b"devices": _CONFIG},
        b"status": {b"allocation": {b"devices": _CONFIG}, b"devices": {ITEMS: {b"data": KEPT}}},
    },
    "ResourceClaimTemplate": {b"spec": {b"spec": {b"devices": _CONFIG}}},
    "DeviceClass": {b"spec": _CONFIG},
}
"""The places of opaque values, by the object's kind. Source: `runtime.RawExtension` in
`resource/v1/types.go`.
"""
_LAST_KEYS: Final = (b"parameters", b"data")
_MARK: Final = secrets.token_hex(8)
_NEVER_DEEP: Final = frozenset({"Pod", "Node"})
"""Kinds all of whose fields have types: API servers drop every other field."""


def has_opaque(kind: str, document: bytes) -> bool:
    """Return True if objects of this kind have opaque values, and the document may have one."""
    return kind in OPAQUE and any(key in document for key in _LAST_KEYS)


def finish(steps: Steps) -> Any:
    """Do all the work at once; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def object_steps(
    kind: str, document: bytes, decode: Callable[[bytes], Any], *, only_decode: bool = False
) -> Steps:
    """Parse an object. `decode` raises ValueError or RecursionError for what it does not read; `only_decode`:
    such an object, and one with values deeper than MAX_DEPTH, is refused.

    Raises ValueError for bytes that are no JSON.
    """
    held: Sequence[Span] = ()
    content = document
    if has_opaque(kind, document):
        held = yield from found(document, OPAQUE[kind])
        content = cut(document, held, marks(len(held)))
    try:
        value = decode(content)
        if is_too_deep(kind, value, content):
            raise ValueError(f"more than {MAX_DEPTH} levels")
    except (ValueError, RecursionError):
        if only_decode:
            raise
        value = yield from reading(content)
    if held:
        put_back(value, OPAQUE[kind], [document[span.start : span.end] for span in held])
    return value


def is_too_deep(kind: str, value: Any, content: bytes | None = None) -> bool:
    """Return True if a value of an object lies deeper than MAX_DEPTH. `content`: its bytes, if at hand."""
    if kind in _NEVER_DEEP:
        return False
    if content is not None and content.count(b"{") + content.count(b"[") <= MAX_DEPTH:
        return False
    return is_deeper(value)


def found(document: bytes, paths: Paths) -> Generator[None, None, list[Span]]:
    """Return what lies at the paths; see `spans`."""
    result: list[Span] = []
    for span in spans(document, paths):
        if span is None:
            yield
        else:
            result.append(span)
    return result


def marks(count: int) -> list[bytes]:
    """Return as many JSON strings, to stand for values that stay bytes."""
    return [b'"%b%d."' % (_MARK.encode(), i) for i in range(count)]


def put_back(value: Any, paths: Any, held: Sequence[bytes]) -> None:
    """Put the values that stayed bytes in the place of their marks, as `RawJson`."""
    if isinstance(value, dict):
        rows: Iterable[tuple[Any, Any]] = [
            (key, steps) for step, steps in paths.items() if (key := step.decode()) in value
        ]
    elif isinstance(value, list) and ITEMS in paths:
        rows = [(i, paths[ITEMS]) for i in range(len(value))]
    else:
        return
    for key, steps in rows:
        item = value[key]
        if not isinstance(steps, str):
            put_back(item, steps, held)
        elif isinstance(item, str) and item.startswith(_MARK):
            value[key] = RawJson(held[int(item[len(_MARK) : -1])])
