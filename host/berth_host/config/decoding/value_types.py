"""The scalar and container types that the versioned types are made of. Source: Go `encoding/json`."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any, Final

from berth_host.config.decoding.duration import format_duration, parse_duration
from berth_host.config.decoding.go_types import Context, GoType, decode_value
from berth_host.config.errors import Finding
from berth_host.config.source.node import Json, SourceNode, child


def _is_falsy(value: Any) -> bool:
    return not value


def _never(value: Any) -> bool:
    return False


def _decode_string(node: SourceNode, path: str, context: Context) -> str:
    if isinstance(node.value, str):
        return node.value
    context.reject(path, node, "a string")
    return ""


STRING: Final = GoType(zero="", decode=_decode_string, encode=str, is_empty=_is_falsy)


def _decode_bool(node: SourceNode, path: str, context: Context) -> bool:
    if isinstance(node.value, bool):
        return node.value
    context.reject(path, node, "true or false")
    return False


BOOL: Final = GoType(zero=False, decode=_decode_bool, encode=bool, is_empty=_is_falsy)


def _integer(bits: int) -> GoType:
    def decode(node: SourceNode, path: str, context: Context) -> int:
        limit = 1 << (bits - 1)
        if type(node.value) is int and -limit <= node.value < limit:
            return node.value
        context.reject(path, node, f"an integer of {bits} bits")
        return 0

    return GoType(zero=0, decode=decode, encode=int, is_empty=_is_falsy)


INT32: Final = _integer(32)
INT64: Final = _integer(64)


def _decode_float32(node: SourceNode, path: str, context: Context) -> float:
    value = node.value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        packed = _pack_float32(float(value))
        if packed is not None:
            return float(struct.unpack("<f", packed)[0])
    context.reject(path, node, "a number of 32 bits")
    return 0.0


def _pack_float32(number: float) -> bytes | None:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return None


def _encode_float32(value: Any) -> Json:
    """The shortest text that is the same 32-bit number, as Go prints it; whole numbers as integers."""
    number = float(value)
    if number.is_integer():
        return int(number)
    candidates = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next((c for c in candidates if _pack_float32(c) == _pack_float32(number)), number)


FLOAT32: Final = GoType(zero=0.0, decode=_decode_float32, encode=_encode_float32, is_empty=_is_falsy)


def _decode_duration(node: SourceNode, path: str, context: Context) -> int:
    if not isinstance(node.value, str):
        context.reject(path, node, 'a duration with a unit, such as "15s"')
        return 0
    try:
        return parse_duration(node.value)
    except ValueError as err:
        context.findings.append(Finding(str(err), field=path, line=node.line))
        return 0


DURATION: Final = GoType(
    zero=0, decode=_decode_duration, encode=format_duration, is_empty=_never, reads_null=True
)
"""metav1.Duration: a text such as `1m30s`, kept in nanoseconds. It rejects null."""


def _decode_bytes(node: SourceNode, path: str, context: Context) -> bytes:
    try:
        if isinstance(node.value, str):
            # Go skips line ends inside, and wants padding.
            return base64.b64decode(node.value.replace("\r", "").replace("\n", ""), validate=True)
        if isinstance(node.value, tuple):
            return bytes(_byte(item) for item in node.items)
    except ValueError:  # binascii.Error is a ValueError
        pass
    context.reject(path, node, "base64 data")
    return b""


def _byte(node: SourceNode) -> int:
    if type(node.value) is int:
        return node.value
    raise ValueError("not a byte")


def _encode_bytes(value: bytes) -> Json:
    return base64.b64encode(value).decode()


BYTES: Final = GoType(zero=b"", decode=_decode_bytes, encode=_encode_bytes, is_empty=_is_falsy)


def _decode_raw(node: SourceNode, path: str, context: Context) -> SourceNode:
    if context.is_yaml:
        context.reject_repeated(path, node, everywhere=True)
    return node


def _encode_raw(value: SourceNode | None) -> Json:
    return None if value is None else value.to_json()


RAW: Final = GoType(zero=None, decode=_decode_raw, encode=_encode_raw, is_empty=_never)
"""runtime.RawExtension: anything, kept as a SourceNode; None for null."""


def pointer_to(of: GoType) -> GoType:
    """A value that may be absent: None, where the plain type has its zero value."""
    return GoType(
        zero=None,
        decode=of.decode,
        encode=lambda value: None if value is None else of.encode(value),
        is_empty=lambda value: value is None,
    )


def slice_of(of: GoType) -> GoType:
    """A list as a tuple; None is Go's nil slice, which some defaults treat unlike an empty one."""

    def decode(node: SourceNode, path: str, context: Context) -> tuple[object, ...] | None:
        if not isinstance(node.value, tuple):
            context.reject(path, node, "a list")
            return None
        return tuple(
            decode_value(of, item, f"{path}[{index}]", context) for index, item in enumerate(node.items)
        )

    return GoType(
        zero=None,
        decode=decode,
        encode=lambda value: None if value is None else [of.encode(item) for item in value],
        is_empty=_is_falsy,
    )


def map_of(of: GoType) -> GoType:
    """An object with free keys, as a dict; None is Go's nil map."""

    def decode(node: SourceNode, path: str, context: Context) -> dict[str, object] | None:
        if not isinstance(node.value, Mapping):
            context.reject(path, node, "an object")
            return None
        context.reject_repeated(path, node, everywhere=False)
        return {
            key: decode_value(of, member.node, child(path, key), context)
            for key, member in node.members.items()
        }

    return GoType(
        zero=None,
        decode=decode,
        encode=lambda value: None if value is None else {key: of.encode(v) for key, v in value.items()},
        is_empty=_is_falsy,
    )
