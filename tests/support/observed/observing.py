"""The traces of a scheduler on a cluster since the last look: pods, Events and writes, masked.

The form is that of the recordings (`pods`, `events`, `writes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from berth_bench.versus.api import ApiClient
from support.observed.audit import AuditLog, writes_of
from support.observed.masking import masked, masked_event_name

Json = dict[str, Any]
_LEFT_OUT_WHEN_EMPTY: Final = ("deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")


class Observer:
    """The observer of one cluster. `begin_step` begins a step; `look` returns the observation so far.

    `mask`: returns a masked copy of a JSON value.
    """

    def __init__(self, api: ApiClient, audit: AuditLog, mask: Callable[[Any], Any] = masked) -> None:
        self._api = api
        self._mask = mask
        self._audit = audit
        self._before: dict[str, str] = {}
        self._audited: list[Json] = []
        self._events: dict[str, str] = {}

    def begin_step(self) -> None:
        """Begin a step: leave out everything that was observed before."""
        self._before = dict(self._events)
        self._audited.clear()

    @property
    def write_count(self) -> int:
        """The number of writes of the step so far."""
        return len(self._audited)

    async def look(self) -> Json:
        """Return the observation of this step as of now."""
        pods, _ = await self._api.all_of("Pod")
        events, _ = await self._api.all_of("Event")
        self._audited.extend(self._audit.read())
        self._events = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in events}
        news = [item for item in events if self._is_news(item)]
        news.sort(key=lambda item: int(item["metadata"]["resourceVersion"]))
        return {
            "pods": {item["metadata"]["name"]: self._pod(item) for item in pods},
            "events": [self._event(item) for item in news],
            "writes": writes_of(self._audited, self._mask),
        }

    def _is_news(self, event: Json) -> bool:
        metadata = event["metadata"]
        return self._before.get(metadata["uid"]) != str(metadata["resourceVersion"])

    def _event(self, event: Json) -> Json:
        metadata = event["metadata"]
        seen = {key: item for key, item in event.items() if key not in ("kind", "apiVersion")}
        seen["metadata"] = {
            "name": masked_event_name(metadata["name"]),
            "namespace": metadata["namespace"],
        }
        for key in _LEFT_OUT_WHEN_EMPTY:
            if not seen.get(key):
                seen.pop(key, None)
        if metadata["uid"] in self._before:
            seen["changed"] = True
        result: Json = self._mask(seen)
        return result

    def _pod(self, pod: Json) -> Json:
        status = pod.get("status") or {}
        shown: Json = {
            "phase": status.get("phase", ""),
            "nodeName": pod["spec"].get("nodeName"),
            "nominatedNodeName": status.get("nominatedNodeName"),
            "terminating": True if pod["metadata"].get("deletionTimestamp") else None,
            "conditions": status.get("conditions"),
        }
        result: Json = self._mask({key: value for key, value in shown.items() if value is not None})
        return result
