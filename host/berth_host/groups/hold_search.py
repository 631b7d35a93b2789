"""`first_fit`: a group without room -> the nodes on which it fits first, as running pods end.

    the pods on nodes, in the order in which they are expected to end (`Leaving`)
      -> the fewest of them without which the group's algorithm finds places

Called by `gang_holds`. The order:

1. pods that declare an end (status.startTime plus spec.activeDeadlineSeconds, or metadata.deletionTimestamp),
   by time;
2. pods that run to completion (restartPolicy Never or OnFailure), lowest priority and oldest first;
3. pods that do not, which only their owner removes: lowest priority and youngest first, as a ReplicaSet does.

Pods of DaemonSets, static pods, pods of higher priority than the group, and the group's own pods stay in any
case, but for own pods that are being deleted. Pods that the group may evict are gone from the start.
The number of runs of the algorithm grows with the logarithm of the number of pods that must leave.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import orjson
from berth_sdk.pod import Pod, timestamp
from berth_sdk.results import Trial
from berth_sdk.status import Status
from berth_sdk.tables import PodTable

from berth_host.model.hold import deadline_s

NOTHING_LEAVES: Final = Status.unschedulable("no running pod is expected to leave")
_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the API server's copy of a static pod."""


_ALWAYS: Final = "Always"
_Key = tuple[int, float, float]


class Trials(Protocol):
    """The runs of the group's algorithm (`placements.Placements`)."""

    async def run_without(self, removed: Sequence[Pod]) -> Trial:
        """Run the algorithm as if the pods `removed` had left their nodes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """The pods that may leave their nodes. `at_once`: those that the group may evict. `in_order`: the others,
    with their ends in `ends` (Unix seconds; None: the pod declares no end).
    """

    at_once: Sequence[Pod]
    in_order: Sequence[Pod]
    ends: Sequence[float | None]

    def waits_for(self, count: int) -> dict[str, float | None]:
        """Return the first `count` of the pods in order, by uid, with their ends."""
        pairs = zip(self.in_order[:count], self.ends[:count], strict=True)
        return {pod.uid: end for pod, end in pairs}

    def chosen(self, uids: Collection[str], until_s: float | None) -> Leaving:
        """Return the pods at once, and of those in order the ones in `uids` and those that end by `until_s`
        (None: none).
        """
        rows = [
            row
            for row, (pod, end) in enumerate(zip(self.in_order, self.ends, strict=True))
            if pod.uid in uids or (until_s is not None and end is not None and end <= until_s)
        ]
        return Leaving(self.at_once, [self.in_order[row] for row in rows], [self.ends[row] for row in rows])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The first place where a group fits. `nodes`: the node of each member that gets one, by uid.

    `waits_for`: the pods that must leave before, by uid, with their ends.
    """

    nodes: Mapping[str, str]
    waits_for: Mapping[str, float | None]


class Ends:
    """The ends that pods on nodes declare, read once for each version of a pod."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Pod, _Declared]] = {}

    def leaving(
        self,
        pods: PodTable,
        own: Collection[str],
        priority: int,
        now_s: float,
        known: Mapping[str, float | None],
        *,
        preempts_lower: bool,
    ) -> Leaving:
        """Return the pods on nodes that may leave.

        Args:
            pods: The pods on nodes.
            own: The uids of the group's own pods.
            priority: The group's priority.
            now_s: Unix seconds.
            known: The ends that were estimated before, by uid, for pods whose start is still not known.
            preempts_lower: True if the group may evict pods of lower priority.
        """
        at_once = pods.priority < priority if preempts_lower else np.zeros(len(pods), dtype=np.bool_)
        others = np.flatnonzero((pods.priority <= priority) & ~at_once)
        before, self._read = self._read, {}
        found: list[tuple[_Key, Pod, float | None]] = []
        started = pods.start_time_s.take(others).tolist()
        for pod, start_s in zip(pods.several(others), started, strict=True):
            if pod.uid in own or _stays(pod):
                continue
            read = before.get(pod.uid)
            if read is None or read[0] is not pod:
                read = pod, _Declared.of(pod)
            self._read[pod.uid] = read
            is_started = not math.isnan(start_s)
            end = read[1].end_s(start_s if is_started else None, now_s, known.get(pod.uid))
            found.append((_key(pod, read[1], end, start_s if is_started else math.inf), pod, end))
        found.sort(key=lambda one: one[0])
        gone = [pod for pod in pods.several(np.flatnonzero(at_once)) if pod.uid not in own]
        return Leaving(gone, [pod for _, pod, _ in found], [end for _, _, end in found])


@dataclass(frozen=True, slots=True)
class _Declared:
    """The declared end of a pod: for how many seconds it may run, and when it is deleted (Unix seconds).
    None: nothing. `completes`: it ends by itself some time.
    """

    runs_s: float | None
    deleted_s: float | None
    completes: bool

    @classmethod
    def of(cls, pod: Pod) -> _Declared:
        item = pod.object
        if item is None:
            return cls(None, None, completes=False)
        was_parsed = item.is_parsed
        item.parse(orjson.loads)
        read = cls(
            deadline_s(pod),
            timestamp(item.get("metadata.deletionTimestamp")),
            completes=item.get("spec.restartPolicy", _ALWAYS) != _ALWAYS,
        )
        if not was_parsed:
            # One of many pods on nodes: no code reads more of the object, and the parsed form is large.
            item.release()
        return read

    def end_s(self, started_s: float | None, now_s: float, known_s: float | None) -> float | None:
        """Return when the pod ends, as far as it says so; None if it does not."""
        ends = [] if self.deleted_s is None else [self.deleted_s]
        if self.runs_s is not None:
            begins_s = now_s if started_s is None else started_s
            ends.append(known_s if started_s is None and known_s is not None else begins_s + self.runs_s)
        return min(ends) if ends else None


async def first_fit(trials: Trials, pods: Leaving) -> Fit | Status:
    """Return where the group fits after the fewest pods have left. A Status is a rejection: the group does
    not fit even without all of them; or an error.
    """
    total = len(pods.in_order)
    if not total and not pods.at_once:
        return NOTHING_LEAVES
    # Without a pod that leaves at once, the attempt itself has shown that 0 pods are too few.
    too_few = -1 if pods.at_once else 0
    count = 0 if pods.at_once else 1
    while True:
        trial = await _without(trials, pods, count)
        if trial.status.is_success:
            break
        if count == total or not trial.status.is_rejected:
            return trial.status
        too_few, count = count, min(total, max(1, 2 * count))
    while count - too_few > 1:
        middle = (too_few + count) // 2
        fewer = await _without(trials, pods, middle)
        if fewer.status.is_success:
            trial, count = fewer, middle
        elif fewer.status.is_rejected:
            too_few = middle
        else:
            return fewer.status
    return _fit(trial, pods.waits_for(count))


async def still_fits(trials: Trials, pods: Leaving) -> Fit | Status:
    """Return where the group fits without `pods`. A Status is a rejection or an error."""
    trial = await _without(trials, pods, len(pods.in_order))
    return _fit(trial, pods.waits_for(len(pods.in_order))) if trial.status.is_success else trial.status


async def _without(trials: Trials, pods: Leaving, count: int) -> Trial:
    return await trials.run_without([*pods.at_once, *pods.in_order[:count]])


def _fit(trial: Trial, waits_for: Mapping[str, float | None]) -> Fit:
    return Fit({one.pod.uid: one.node_name for one in trial.assignments}, waits_for)


def _key(pod: Pod, declared: _Declared, end: float | None, start_s: float) -> _Key:
    """Return the key that sorts pods in the order in which they are expected to leave."""
    if end is not None:
        return 0, end, start_s
    return (1, pod.priority, start_s) if declared.completes else (2, pod.priority, -start_s)


def _stays(pod: Pod) -> bool:
    """Return True for a pod that does not end by itself, or comes back to the same node."""
    return _MIRROR in pod.annotations or (pod.owner is not None and pod.owner.kind == "DaemonSet")
