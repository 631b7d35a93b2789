"""PrioritySort: the order of the queue. Called for a key when a pod enters the queue or comes back.

Source: `pkg/scheduler/framework/plugins/queuesort/priority_sort.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.results import QueuedPod
from berth_sdk.sort_keys import descending, integer, join, time


class PrioritySort(Plugin):
    """Orders by highest priority first; among equals, by the earliest time of the last return to the
    queue.
    """

    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.OTHER

    def sort_key(self, pod: QueuedPod) -> bytes:
        """Return 16 bytes: the priority, descending, then the time when the pod last entered the queue."""
        return join(_highest_first(pod.pod.priority), time(pod.added_at_s))


_MOST_PRIORITIES: Final = 256


@lru_cache(_MOST_PRIORITIES)
def _highest_first(priority: int) -> bytes:
    """Return the part of the key for a priority; most pods of a cluster have one of a few."""
    return descending(integer(priority))
