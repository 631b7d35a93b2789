"""Encodes JSON that is kept in memory, such as the bytes of objects and events.

Called by `cache` and `cluster`.
"""

from __future__ import annotations

from typing import Any

import orjson


def compact_json(value: Any) -> bytes:
    """Encode a value as JSON in a buffer of exactly its size. Raises TypeError for values that JSON lacks.

    `orjson.dumps` (3.13) does not shrink its buffer, so even a short result occupies 8 KiB. That does not
    matter for bytes that are sent and then freed.
    """
    return compacted(orjson.dumps(value))


def compacted(encoded: bytes) -> bytes:
    """Copy the result of `orjson.dumps` into a buffer of exactly its size."""
    return bytes(memoryview(encoded))
