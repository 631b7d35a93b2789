"""`Diagnosis`: the record of one attempt; `Diagnoses`: the latest records.

Written once per attempt by the scheduler; read by `berth why` and the simulation's report. Node sets are
packed bits over the snapshot's slots: 625 bytes for 5000 nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.extenders.client import ExtenderName
from berth_host.model.node_statuses import NodeStatuses

ATTEMPTS_KEPT: Final = 5
"""The most attempts kept per pod. Most pods have one; the limit is for pods that are retried forever."""

NO_REASON: Final = "rejected without a reason"


class Outcome(Enum):
    """The end of an attempt."""

    RUNNING = "running"
    WAITING = "waiting"
    BOUND = "bound"
    DECIDED = "decided"
    """A shadow chose a node, and binds nothing."""
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """The nodes that one plugin rejected with one list of reasons. `nodes`: packed bits over slots."""

    status: Status
    node_count: int
    nodes: NDArray[np.uint8]

    def slots(self) -> NDArray[np.intp]:
        """Return the nodes' slots, ascending."""
        return np.flatnonzero(np.unpackbits(self.nodes, bitorder="little"))


@dataclass(frozen=True, slots=True)
class NodeScore:
    """One of the best nodes: its total score, and (raw, normalized, weight) by plugin."""

    node_name: str
    total: int
    plugins: dict[str, tuple[int, int, int]]


@dataclass(slots=True, eq=False)
class TopScores:
    """The best nodes of an attempt, as lists of equal length.

    This form is the cheapest to write, and most records are never read. `plugins`: (name, weight, raw,
    normalized).
    """

    node_names: list[str]
    totals: list[int]
    plugins: list[tuple[str, int, list[int], list[int]]]

    def nodes(self) -> list[NodeScore]:
        """Return the nodes, best first."""
        found = [
            NodeScore(
                name,
                self.totals[i],
                {plugin: (raw[i], normalized[i], weight) for plugin, weight, raw, normalized in self.plugins},
            )
            for i, name in enumerate(self.node_names)
        ]
        return sorted(found, key=lambda item: -item.total)


@dataclass(slots=True, eq=False, kw_only=True)
class Diagnosis:
    """The record of one attempt. Times are Unix seconds, durations milliseconds.

    `counts_resources`: the plugins whose rejections say that a node lacks resources.
    `reserve_skipped`: the plugins that answered Reserve with SKIP: they hold nothing for the pod.
    `outside_scopes`: the plugins that were not called, because the pod was outside their scope.
    `timings_s`: seconds by (plugin, extension point). `notes`: plugins whose missing answer was ignored, and
    overruns. `cycle_ms`: the scheduling cycle. `duration_ms`: from the same start to the end of the attempt.
    `algorithm_ms`: from PreFilter to the chosen node, 0 without one. `first_tried_at_s`: when the pod first
    entered activeQ. `after_flush`: the only reason for the attempt was that the pod had waited too long.
    `history`: the pod's events in the queue, as (Unix microseconds, event, detail), shared by all its
    attempts. `slot_names`: the node in each slot at the time of the rejections; only in the latest attempt.
    `previous`: the kept attempt before this one; all of them have the latest attempt's pod.
    """

    pod: Pod
    profile: str
    cycle_id: str
    attempt: int
    started_at_s: float
    ended_at_s: float | None = None
    first_tried_at_s: float | None = None
    after_flush: bool = False
    node_count: int = 0
    feasible_count: int = 0
    evaluated_count: int = 0
    outcome: Outcome = Outcome.RUNNING
    node_name: str = ""
    message: str = ""
    pre_filter_message: str = ""
    post_filter_message: str = ""
    nominated_node: str = ""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    rejections: list[Rejection] = field(default_factory=list)
    counts_resources: frozenset[str] = frozenset()
    scores: TopScores | None = None
    timings_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    reserve_skipped: tuple[str, ...] = ()
    outside_scopes: tuple[str, ...] = ()
    algorithm_ms: float = 0.0
    cycle_ms: float = 0.0
    duration_ms: float = 0.0
    history: Sequence[tuple[int, str, str]] = ()
    slot_names: NDArray[np.object_] | None = None
    previous: Diagnosis | None = None

    @property
    def top_scores(self) -> list[NodeScore]:
        """The best nodes with each plugin's scores; empty if no plugin scored."""
        return [] if self.scores is None else self.scores.nodes()

    def record_rejections(
        self,
        statuses: NodeStatuses,
        counted: Iterable[tuple[Status, int]],
        names: NDArray[np.object_] | None = None,
    ) -> None:
        """Record the node set of every explicit rejection.

        `counted`: the `group_counts` of `statuses`. `names`: the node in each slot (`SlotNames`), to read the
        sets later, when other nodes may have the slots.
        """
        table = statuses.table
        if names is not None:
            self.slot_names = names
        for status, _ in counted:
            if status.plugin:
                self.record_rejection(table, status, statuses.groups == statuses.group_of(status))

    def record_rejection(self, table: NodeTable, status: Status, rows: NDArray[np.bool_]) -> None:
        """Record the node set of one rejection, and its plugin. `rows`: bool[n] over `table`."""
        self.rejections.append(Rejection(status, int(np.count_nonzero(rows)), pack_rows(table, rows)))
        self.blame(status)

    def record_at_node(self, status: Status, node_name: str) -> None:
        """Record the rejection of the chosen node at Reserve or Permit, and its plugin."""
        # The slots may belong to other nodes now, so the attempt's other sets are dropped.
        self.slot_names = np.array([node_name], dtype=np.object_)
        self.rejections = [Rejection(status, 1, np.packbits([True], bitorder="little"))]
        self.blame(status)

    def attempts(self) -> Iterator[Diagnosis]:
        """Yield this attempt and the kept ones before it, latest first."""
        one: Diagnosis | None = self
        while one is not None:
            yield one
            one = one.previous

    def cause_of(self, status: Status) -> tuple[str, str]:
        """Return the plugin that rejected most nodes, and its reasons; else plugin and text of `status`.

        `status`: how the attempt ended. The plugin is "" if no plugin caused the end.
        """
        if not self.rejections or not status.is_rejected:
            return status.plugin, status.message or self.message
        most = max(self.rejections, key=lambda item: item.node_count)
        return most.status.plugin, ", ".join(most.status.reasons) or self.pre_filter_message or NO_REASON

    def blame(self, status: Status) -> None:
        """Record the plugin of a rejection; a Pending rejection is recorded in both sets.

        The queue knows extenders by one name, which the scheduler adds.
        """
        if status.plugin and status.is_rejected and not isinstance(status.plugin, ExtenderName):
            self.unschedulable_plugins.add(status.plugin)
            if status.code.name == "PENDING":
                self.pending_plugins.add(status.plugin)


def pack_rows(table: NodeTable, chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the slots of the chosen rows as packed bits, least significant bit first."""
    slots = table.slots[chosen]
    bits = np.zeros(int(slots.max()) + 1 if len(slots) else 0, dtype=np.bool_)
    bits[slots] = True
    return np.packbits(bits, bitorder="little")


class Diagnoses:
    """The records of ended attempts.

    Kept are the latest attempt of each of the `capacity` pods that were tried last, and at most `capacity`
    earlier attempts of these pods. The records of the pods tried longest ago are dropped first.
    """

    def __init__(
        self,
        capacity: int = 4096,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """Create the records. `now_s`: returns Unix seconds."""
        self._capacity = capacity
        self._now_s = now_s
        self._by_uid: OrderedDict[str, Diagnosis] = OrderedDict()
        self._earlier: OrderedDict[str, int] = OrderedDict()
        """The number of kept attempts before the latest one, by pod; only for pods that have any."""
        self._earlier_count = 0

    def add(self, diagnosis: Diagnosis) -> None:
        """Add an ended attempt; keep up to ATTEMPTS_KEPT - 1 before it, and drop the oldest pod if needed."""
        uid = diagnosis.pod.uid
        if self._now_s is not None:
            diagnosis.ended_at_s = self._now_s()
        previous = self._by_uid.get(uid)
        if previous is not None:
            # The node sets of earlier attempts are never read, and their names would take much memory.
            previous.slot_names = None
            diagnosis.previous = previous
            self._note_earlier(uid, _cut(diagnosis))
            # One version of the pod is enough for all its attempts.
            for earlier in previous.attempts():
                earlier.pod = diagnosis.pod
        self._by_uid[uid] = diagnosis
        self._by_uid.move_to_end(uid)
        while len(self._by_uid) > self._capacity:
            dropped, _ = self._by_uid.popitem(last=False)
            self._earlier_count -= self._earlier.pop(dropped, 0)
        while self._earlier_count > self._capacity:
            oldest, count = self._earlier.popitem(last=False)
            self._by_uid[oldest].previous = None
            self._earlier_count -= count

    def get(self, uid: str) -> Diagnosis | None:
        """Return the latest attempt of a pod, or None."""
        return self._by_uid.get(uid)

    def find(self, key: str) -> Diagnosis | None:
        """Return the latest attempt of the pod called `namespace/name`, or None."""
        return next((item for item in reversed(self._by_uid.values()) if item.pod.key == key), None)

    def _note_earlier(self, uid: str, count: int) -> None:
        self._earlier_count += count - self._earlier.get(uid, 0)
        self._earlier[uid] = count
        self._earlier.move_to_end(uid)

    @property
    def attempt_count(self) -> int:
        """The number of all kept attempts."""
        return len(self._by_uid) + self._earlier_count

    def __iter__(self) -> Iterator[Diagnosis]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)


def _cut(latest: Diagnosis) -> int:
    """Drop the attempts beyond ATTEMPTS_KEPT; return how many are left before the latest one."""
    kept = latest
    for count in range(ATTEMPTS_KEPT - 1):
        if kept.previous is None:
            return count
        kept = kept.previous
    kept.previous = None
    return ATTEMPTS_KEPT - 1
