"""JSON that is kept in memory: bytes of objects and events that outlive the call that made them.

Called by `cache` and `cluster`.
"""

from __future__ import annotations

from typing import Any

import orjson


def compact_json(value: Any) -> bytes:
    """Encode, into no more memory than the text has bytes. Raises TypeError for what JSON cannot say.

    `orjson.dumps` (3.13) does not shrink the buffer that it wrote into: each result holds on to 8 KiB, be it
    as short as it may. Bytes that are sent and let go need not care.
    """
    return compacted(orjson.dumps(value))


def compacted(encoded: bytes) -> bytes:
    """What `orjson.dumps` wrote, likewise."""
    return bytes(memoryview(encoded))
