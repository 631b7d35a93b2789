"""PrioritySort: the order of the queue. Asked for a key when a pod enters or comes back.

Source: `pkg/scheduler/framework/plugins/queuesort/priority_sort.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.results import QueuedPod
from berth_sdk.sort_keys import descending, integer, join, time


class PrioritySort(Plugin):
    """Highest priority first; among equals the pod that has waited longest since it last came back."""

    needs: ClassVar[Sequence[Need]] = ()
    depends_on: ClassVar[DependsOn | None] = DependsOn.OTHER

    def sort_key(self, pod: QueuedPod) -> bytes:
        """16 bytes: priority, turned round, then the time of the last (re)queue."""
        return join(descending(integer(pod.pod.priority)), time(pod.added_at_s))
