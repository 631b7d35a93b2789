"""The envelope of a call that travels on an open stream: a message of `SchedulingService` as one field.

Host and server wrap and unwrap it as bytes. So the message inside is written and parsed only once, by the
code that does it for unary calls too. Source: the contract's stream.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import DecodeError

from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.wire.scores import read_varint, varint

FEATURE: Final = "call-stream"
"""The name that both sides give in the handshake."""
_REQUEST: Final[Any] = stream_pb2.StreamCallsRequest
_ANSWER: Final[Any] = stream_pb2.StreamCallsResponse
_BYTES: Final = 2  # the wire type of length-delimited fields


def _numbers() -> Mapping[str, int]:
    """Call -> the number of its request and of its answer."""
    fields = _REQUEST.DESCRIPTOR.fields
    return MappingProxyType(
        {field.message_type.name.removesuffix("Request"): field.number for field in fields}
    )


NUMBERS: Final = _numbers()
"""Call (`PreFilter`) -> number; calls that are not here never travel on a stream."""
_TAGS: Final = {number: varint(number << 3 | _BYTES) for number in NUMBERS.values()}
_NUMBER_OF: Final = {tag[0]: number for number, tag in _TAGS.items()}


def wrap(number: int, raw: bytes) -> bytes:
    """The request or answer `raw` of the call with this number, in its envelope."""
    return b"".join((_TAGS[number], varint(len(raw)), raw))


def unwrap_request(raw: bytes) -> tuple[int, bytes]:
    """(the call's number, its request). Raises ValueError for bytes that are no request."""
    return _unwrapped(raw) or _parsed(raw, _REQUEST, "call")


def unwrap_answer(raw: bytes) -> tuple[int, bytes]:
    """(the call's number, its answer). Raises ValueError for bytes that are no answer."""
    return _unwrapped(raw) or _parsed(raw, _ANSWER, "answer")


def _unwrapped(raw: bytes) -> tuple[int, bytes] | None:
    """Read the bytes of `wrap`; None: written in another way, or with fields of a later minor version."""
    number = _NUMBER_OF.get(raw[0]) if raw else None
    if number is None:
        return None
    size, start = read_varint(raw, 1)
    return (number, raw[start:]) if start + size == len(raw) else None


def _parsed(raw: bytes, envelope: Any, oneof: str) -> tuple[int, bytes]:
    try:
        message = envelope.FromString(raw)
    except DecodeError as err:
        raise ValueError(str(err)) from err
    name = message.WhichOneof(oneof)
    if name is None:
        raise ValueError("it names no call that is known here")
    return envelope.DESCRIPTOR.fields_by_name[name].number, getattr(message, name).SerializeToString()
