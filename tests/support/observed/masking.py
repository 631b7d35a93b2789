"""Masks values that differ from run to run: uids, versions, times, host names, tails of Events' names.

Used on every observation before its comparison with the recording, which is masked already.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

UID: Final = "<uid>"
VERSION: Final = "<resourceVersion>"
TIME: Final = "<time>"
HOST: Final = "<host>"
ADDRESS: Final = "<address>"
NUMBER: Final = "<n>"
PRESENT: Final = "<present>"
DROPPED: Final = frozenset({"managedFields", "creationTimestamp"})
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_EVENT_TAIL: Final = re.compile(r"\.[0-9a-f]{8,}$")
_OPEN: Final = re.compile(f"({re.escape(UID)}|{re.escape(NUMBER)})")


def uid_of_pod(name: str) -> str:
    """Return the mask for the uid of a pod that is known by name."""
    return f"<uid of pod {name}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """The masks of one scenario; call it with a value to get a masked copy.

    `host`: a machine's name to mask, empty for none. `dropped`: fields to leave out. `present`: fields whose
    value is replaced by PRESENT. `pods`: names of pods by uid; these uids get a mask of their own.
    `addresses`: texts to replace by ADDRESS.
    """

    host: str = ""
    dropped: frozenset[str] = DROPPED
    present: frozenset[str] = frozenset()
    pods: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()

    def __call__(self, value: Any) -> Any:
        """Return a masked copy of a JSON value."""
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items() if key not in self.dropped}
        if isinstance(value, list):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _field(self, key: str, value: Any) -> Any:
        if key == "resourceVersion" and value:
            return VERSION
        if key == "uid" and value:
            return self._uid(str(value))
        if key in self.present and value:
            return PRESENT
        return self(value)

    def _uid(self, uid: str) -> str:
        return uid_of_pod(self.pods[uid]) if uid in self.pods else UID

    def _text(self, text: str) -> str:
        if _TIMESTAMP.fullmatch(text):
            return TIME
        text = _UUID.sub(lambda found: self._uid(found[0]), text)
        for address in self.addresses:
            text = text.replace(address, ADDRESS)
        return text.replace(self.host, HOST) if self.host else text


def masked(value: Any, host: str = "") -> Any:
    """Return a copy with masks for values that differ in every run. `host`: this machine's name if empty."""
    return Masks(host=host or socket.gethostname())(value)


def masked_event_name(name: str) -> str:
    """Return `pod.17f3a...` as `pod.<hex>`."""
    return _EVENT_TAIL.sub(".<hex>", name)


def as_recorded(value: Any, recorded: Any) -> Any:
    """Return a masked value with the masks of a recording that say less than `Masks` does.

    A recorded text may have `<uid>` where the pod is known by name, and `<n>` in the place of any number.
    """
    texts = set(_texts(recorded))
    patterns = {text: _pattern(text) for text in texts if _OPEN.search(text)}
    return _rewritten(value, texts, patterns)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _pattern(text: str) -> re.Pattern[str]:
    stands_for = {UID: f"(?:{re.escape(UID)}|<uid of pod [^>]+>)", NUMBER: r"\d+"}
    return re.compile("".join(stands_for.get(part) or re.escape(part) for part in _OPEN.split(text)))


def _rewritten(value: Any, texts: set[str], patterns: Mapping[str, re.Pattern[str]]) -> Any:
    if isinstance(value, dict):
        return {key: _rewritten(item, texts, patterns) for key, item in value.items()}
    if isinstance(value, list):
        return [_rewritten(item, texts, patterns) for item in value]
    if not isinstance(value, str) or value in texts:
        return value
    return next((text for text, pattern in patterns.items() if pattern.fullmatch(value)), value)
