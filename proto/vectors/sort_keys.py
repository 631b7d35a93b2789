"""Write sort_keys.json: parts of sort keys as bytes, and the order that keys give to pods.

    python proto/write_vectors.py sort_keys

The keys come from `berth_sdk.sort_keys`; the orders are written by hand. The host compares keys as bytes, so
any encoding with the right order will do: a plugin need not use this one.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.plugin.v1 import queue_pb2
from berth_sdk.sort_keys import descending, integer, join, string, time
from vectors.writing import written


def document() -> dict[str, Any]:
    """Return the content of sort_keys.json."""
    return {
        "source": "SortKeysResponse in queue.proto; written by proto/write_vectors.py",
        "integers": [{"value": value, "hex": integer(value).hex()} for value in _INTEGERS],
        "times": [{"seconds": value, "hex": time(value).hex()} for value in _TIMES],
        "strings": [{"value": value, "hex": string(value).hex()} for value in _STRINGS],
        "descending": [
            {"part": part.hex(), "hex": descending(part).hex()} for part in (integer(100), string("a"))
        ],
        "queues": [
            {"name": name, "answer": written(queue_pb2.SortKeysResponse(keys=keys)), "order": order}
            for name, keys, order in _queues()
        ],
    }


_INTEGERS = (-(2**63), -1, 0, 1, 1000, 2_000_000_000, 2**63 - 1)
_TIMES = (-1.5, 0.0, 0.25, 1763638000.0, 1763638000.25)
_STRINGS = ("", "a", "ab", "b", "ä", "a\0b")


def _queues() -> list[tuple[str, list[bytes], list[int]]]:
    """Return the keys of pods as they arrive, and the pods' numbers in the order of the queue."""

    def of(priority: int, added_s: float) -> bytes:
        return join(descending(integer(priority)), time(added_s))

    return [
        ("by priority, then by time", [of(0, 2.0), of(100, 3.0), of(0, 1.0), of(-5, 0.0)], [1, 2, 0, 3]),
        ("equal keys: in the order of arrival", [b"k", b"k", b"a"], [2, 0, 1]),
        ("the beginning of another key is smaller", [b"ab", b"a", b"\xff"], [1, 0, 2]),
        ("bytes are unsigned", [b"\x80", b"\x7f"], [1, 0]),
    ]
