"""Which events of plugins are passed on: those that the API server would take.

They wait in the memory of the host until they are written, thousands of them. Asked by `HandleService`.
Source: pkg/apis/core/validation/events.go, v1.36.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.plugin.v1 import handle_pb2

MAX_EVENTS: Final = 100
"""In one call; the others are dropped, and counted in the answer."""
MAX_NOTE_BYTES: Final = 1024
MAX_WORD_BYTES: Final = 128
"""Of the reason and the action."""
_TYPES: Final = frozenset({"", "Normal", "Warning"})


def is_writable(event: handle_pb2.EventRecord) -> bool:
    """Whether it has a known type, a reason, and words that are short enough."""
    words = (event.reason, event.action)
    return bool(event.type in _TYPES and event.reason) and all(
        len(word.encode()) <= MAX_WORD_BYTES for word in words
    )
