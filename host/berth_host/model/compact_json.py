"""Encodes parsed objects as JSON: to be sent, or to be kept in memory.

Called by `cache`, `cluster`, `rpc` and `extenders`.
"""

from __future__ import annotations

from typing import Any

import orjson
from berth_sdk.json.reader import RawJson
from berth_sdk.json.writer import write_json


def json_bytes(value: Any) -> bytes:
    """Encode a value of any depth as JSON; each `RawJson` as its bytes. Raises TypeError for a value that
    JSON lacks.
    """
    try:
        return orjson.dumps(value, default=_fragment)
    except orjson.JSONEncodeError:
        # orjson refuses more than 254 levels, and texts with half of a surrogate pair.
        return write_json(value)


def compact_json(value: Any) -> bytes:
    """Encode a value as `json_bytes` does, in a buffer of exactly its size.

    `orjson.dumps` (3.13) does not shrink its buffer, so even a short result occupies 8 KiB. That does not
    matter for bytes that are sent and then freed.
    """
    return compacted(json_bytes(value))


def compacted(encoded: bytes) -> bytes:
    """Copy the result of `orjson.dumps` into a buffer of exactly its size."""
    return bytes(memoryview(encoded))


def _fragment(value: Any) -> Any:
    if isinstance(value, RawJson):
        return orjson.Fragment(value.content)
    raise TypeError(f"{type(value).__name__} is no value of JSON")
