"""`Rivals`: notices that another client binds pods of this host's queue, as a second scheduler does.

Told by `handlers` of each such pod; `app.host` says when this host begins to schedule. Two schedulers of one
name over-commit nodes, and nothing else tells their owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_sdk.pod import Pod

from berth_host.cluster.port import EventRecord
from berth_host.log import get_logger
from berth_host.model.clock import Clock

log = get_logger()
GRACE_S: Final = 30.0
"""Seconds after the begin in which the Bindings that an earlier leader had sent may still show."""
PAUSE_S: Final = 60.0
"""Seconds after a warning in which pods are counted and no further warning is written."""
REASON: Final = "BoundByOthers"
"""The reason of the Kubernetes Event about a pod of this host's queue that another client bound."""


class Rivals:
    """The pods of one host's queue that others bound while the host led. `count`: how many.

    `report`: writes a Kubernetes Event.
    """

    def __init__(self, clock: Clock, report: Callable[[EventRecord], None]) -> None:
        self._clock = clock
        self._report = report
        self._begun_s: float | None = None
        self._quiet_until_s = float("-inf")
        self._told = 0
        self.count = 0

    def begin(self) -> None:
        """Watch from now on, after GRACE_S: the host leads, or schedules without a Lease."""
        self._begun_s = self._clock.monotonic_s()

    def bound(self, pod: Pod) -> None:
        """Note that another client bound a pod of the queue; `pod` is as the watch shows it now."""
        now_s = self._clock.monotonic_s()
        if self._begun_s is None or now_s < self._begun_s + GRACE_S:
            return
        self.count += 1
        if now_s < self._quiet_until_s:
            return
        self._quiet_until_s = now_s + PAUSE_S
        cure = (
            f"a second scheduler named {pod.scheduler_name} over-commits nodes: give both the same Lease"
            " (leaderElection.resourceName and resourceNamespace), or different schedulerNames"
        )
        pods = self.count - self._told
        log.warning("pod.bound_by_others", pod=pod.key, node=pod.node_name, pods=pods, cure=cure)
        self._told = self.count
        where = f"to {pod.node_name} while it was in this scheduler's queue"
        note = f"another client bound this pod {where}; {cure}"
        self._report(
            EventRecord(
                regarding=pod.ref,
                type="Warning",
                reason=REASON,
                action="Binding",
                note=note,
                reporter=pod.scheduler_name,
            )
        )
