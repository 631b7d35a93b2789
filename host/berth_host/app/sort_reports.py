"""Says which pods are queued without a key of the QueueSort plugin: an event on each, a log line for all of
one turn of the loop. Told by the queue through `QueueMetrics`; made by `parts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from berth_sdk.pod import Pod

from berth_host.log import get_logger
from berth_host.queue.queued_pod import QueuedPodInfo

log = get_logger()
REASON: Final = "SortKeyMissing"
Event = Callable[[Pod, str, str, str, str], None]


class SortReports:
    """`event`: writes an event (pod, type, reason, action, note) in the background."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._unlogged: dict[str, list[str]] = {}

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """Report one pod."""
        note = f'plugin "{plugin}" gave no sort key: the pod is queued by priority and time'
        self._event(info.pod, "Warning", REASON, "Queueing", note)
        if not self._unlogged:
            asyncio.get_running_loop().call_soon(self._log)
        self._unlogged.setdefault(plugin, []).append(info.key)

    def _log(self) -> None:
        unlogged, self._unlogged = self._unlogged, {}
        for plugin, keys in unlogged.items():
            log.warning("queue.sorted_by_fallback", plugin=plugin, pods=len(keys), first=keys[0])
