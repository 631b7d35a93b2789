"""Masks values that differ from run to run: uids, versions, times, host names, tails of Events' names.

Used on every observation before its comparison with the recording, which is masked already.
"""

from __future__ import annotations

import re
import socket
from typing import Any, Final

UID: Final = "<uid>"
VERSION: Final = "<resourceVersion>"
TIME: Final = "<time>"
HOST: Final = "<host>"
DROPPED: Final = frozenset({"managedFields", "creationTimestamp"})
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_EVENT_TAIL: Final = re.compile(r"\.[0-9a-f]{8,}$")


def masked(value: Any, host: str = "") -> Any:
    """Return a copy with masks for values that differ in every run. `host`: this machine's name if empty."""
    name = host or socket.gethostname()
    return _masked(value, name)


def masked_event_name(name: str) -> str:
    """Return `pod.17f3a...` as `pod.<hex>`."""
    return _EVENT_TAIL.sub(".<hex>", name)


def _masked(value: Any, host: str) -> Any:
    if isinstance(value, dict):
        return {key: _field(key, item, host) for key, item in value.items() if key not in DROPPED}
    if isinstance(value, list):
        return [_masked(item, host) for item in value]
    if isinstance(value, str):
        return _text(value, host)
    return value


def _field(key: str, value: Any, host: str) -> Any:
    if key == "resourceVersion" and value:
        return VERSION
    if key == "uid" and value:
        return UID
    return _masked(value, host)


def _text(text: str, host: str) -> str:
    if _TIMESTAMP.fullmatch(text):
        return TIME
    return _UUID.sub(UID, text).replace(host, HOST)
