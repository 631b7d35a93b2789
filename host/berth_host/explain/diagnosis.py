"""One attempt's diagnosis, and the ring that keeps the latest ones.

Written once per attempt by the scheduler; read by `berth why`, the simulation's report and, later, by
events and traces. Node sets are kept as packed bits over the snapshot's slots: 625 bytes for 5000 nodes.
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

from berth_host.explain.slot_names import SlotNames
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.model.node_statuses import NodeStatuses

ATTEMPTS_KEPT: Final = 5
"""Attempts kept per pod. Most pods have one; the limit is for pods that are tried for ever."""


class Outcome(Enum):
    """How an attempt ended."""

    RUNNING = "running"
    WAITING = "waiting"
    BOUND = "bound"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """The nodes that one plugin rejected for one list of reasons. `nodes`: packed bits over slots."""

    status: Status
    node_count: int
    nodes: NDArray[np.uint8]

    def slots(self) -> NDArray[np.intp]:
        """The nodes' slots, ascending."""
        return np.flatnonzero(np.unpackbits(self.nodes, bitorder="little"))


@dataclass(frozen=True, slots=True)
class NodeScore:
    """One of the best nodes: its total, and per plugin (raw, normalized, weight)."""

    node_name: str
    total: int
    plugins: dict[str, tuple[int, int, int]]


@dataclass(slots=True, eq=False)
class TopScores:
    """The best nodes of an attempt as lists of equal length, which cost least to write: nearly all of them
    are never read. `plugins`: (name, weight, raw, normalized).
    """

    node_names: list[str]
    totals: list[int]
    plugins: list[tuple[str, int, list[int], list[int]]]

    def nodes(self) -> list[NodeScore]:
        """Node by node, the best one first."""
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
    """The findings of one attempt. Times: Unix seconds, durations in milliseconds.

    `timings_s`: seconds per (plugin, extension point) of this attempt. `notes`: plugins without whose
    answer the attempt went on, and overruns. `cycle_ms`: the scheduling cycle, `duration_ms`: from the same
    start to the end of the attempt. `algorithm_ms`: from PreFilter to the chosen node, 0 without one.
    `first_tried_at_s`: when the pod first came into activeQ. `after_flush`: it was tried this time for no
    other reason than that it had waited too long. `history`: the pod's events in the queue, `(Unix
    microseconds, event, detail)`, shared by all its attempts. `slot_names`: the node in each slot at the
    time of the rejections, for as long as this is the latest attempt. `previous`: the attempt before, of
    those that are kept; its pod is the latest attempt's.
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
    scores: TopScores | None = None
    timings_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    algorithm_ms: float = 0.0
    cycle_ms: float = 0.0
    duration_ms: float = 0.0
    history: Sequence[tuple[int, str, str]] = ()
    slot_names: NDArray[np.object_] | None = None
    previous: Diagnosis | None = None

    @property
    def top_scores(self) -> list[NodeScore]:
        """The best nodes with each plugin's scores; none if no plugin scored."""
        return [] if self.scores is None else self.scores.nodes()

    def record_rejections(
        self, statuses: NodeStatuses, counted: Iterable[tuple[Status, int]], names: SlotNames | None = None
    ) -> None:
        """Keep the node set of every explicit rejection. `counted`: the `group_counts` of `statuses`;
        `names`: the names by which the sets are read later, when other nodes may have the slots.
        """
        table = statuses.table
        if names is not None:
            self.slot_names = names.of(table)
        for status, _ in counted:
            if status.plugin:
                self.record_rejection(table, status, statuses.groups == statuses.group_of(status))

    def record_rejection(self, table: NodeTable, status: Status, rows: NDArray[np.bool_]) -> None:
        """Keep the node set of one rejection, and blame its plugin. `rows`: bool[n] over `table`."""
        self.rejections.append(Rejection(status, int(np.count_nonzero(rows)), pack_rows(table, rows)))
        self.blame(status)

    def record_at_node(self, status: Status, node_name: str) -> None:
        """Keep the rejection of the chosen node at Reserve or Permit, and blame its plugin."""
        # The slots of that time may belong to other nodes by now; no other set of this attempt is kept.
        self.slot_names = np.array([node_name], dtype=np.object_)
        self.rejections = [Rejection(status, 1, np.packbits([True], bitorder="little"))]
        self.blame(status)

    def attempts(self) -> Iterator[Diagnosis]:
        """This one and those before it that are kept, the latest first."""
        one: Diagnosis | None = self
        while one is not None:
            yield one
            one = one.previous

    def blame(self, status: Status) -> None:
        """Note which plugin rejected; Pending is remembered in both sets."""
        if status.plugin and status.is_rejected:
            self.unschedulable_plugins.add(status.plugin)
            if status.code.name == "PENDING":
                self.pending_plugins.add(status.plugin)


def pack_rows(table: NodeTable, chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The slots of the chosen rows as packed bits, least significant bit first."""
    slots = table.slots[chosen]
    bits = np.zeros(int(slots.max()) + 1 if len(slots) else 0, dtype=np.bool_)
    bits[slots] = True
    return np.packbits(bits, bitorder="little")


class Diagnoses:
    """The latest attempt of each of the `capacity` pods that were tried last, by pod uid. Earlier attempts of
    these pods while there are as many of them at most; those of the pods tried longest ago go first.
    """

    def __init__(
        self,
        capacity: int = 4096,
        on_added: Callable[[Diagnosis], None] = lambda _: None,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """`on_added` is told of every attempt at its end, which `now_s` (Unix seconds) dates."""
        self._capacity = capacity
        self._on_added = on_added
        self._now_s = now_s
        self._by_uid: OrderedDict[str, Diagnosis] = OrderedDict()
        self._earlier: OrderedDict[str, int] = OrderedDict()
        """How many attempts of a pod are kept besides its latest, where there are any."""
        self._earlier_count = 0

    def add(self, diagnosis: Diagnosis) -> None:
        """Keep it, with the ATTEMPTS_KEPT - 1 before it; the oldest pod makes room."""
        uid = diagnosis.pod.uid
        if self._now_s is not None:
            diagnosis.ended_at_s = self._now_s()
        previous = self._by_uid.get(uid)
        if previous is not None:
            # The nodes of earlier attempts are never asked for: the names of many moments would be a lot.
            previous.slot_names = None
            diagnosis.previous = previous
            self._note_earlier(uid, _cut(diagnosis))
            # It is one pod, and one of its forms is enough.
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
        self._on_added(diagnosis)

    def get(self, uid: str) -> Diagnosis | None:
        """The latest attempt of a pod, or None."""
        return self._by_uid.get(uid)

    def find(self, key: str) -> Diagnosis | None:
        """The latest attempt of the pod called `namespace/name`."""
        return next((item for item in reversed(self._by_uid.values()) if item.pod.key == key), None)

    def _note_earlier(self, uid: str, count: int) -> None:
        self._earlier_count += count - self._earlier.get(uid, 0)
        self._earlier[uid] = count
        self._earlier.move_to_end(uid)

    @property
    def attempt_count(self) -> int:
        """All attempts that are kept: the latest of each pod, and the earlier ones."""
        return len(self._by_uid) + self._earlier_count

    def __iter__(self) -> Iterator[Diagnosis]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)


def _cut(latest: Diagnosis) -> int:
    """Drop the attempts before the kept ones. Returns how many are left before this one."""
    kept = latest
    for count in range(ATTEMPTS_KEPT - 1):
        if kept.previous is None:
            return count
        kept = kept.previous
    kept.previous = None
    return ATTEMPTS_KEPT - 1


_RESULTS: Final = {Outcome.BOUND: "scheduled", Outcome.UNSCHEDULABLE: "unschedulable", Outcome.ERROR: "error"}
"""Outcomes in the words of kube-scheduler's metrics."""


class AttemptMetrics:
    """Counts every attempt at its end. `now_s`: reads the clock, in Unix seconds. `told`: called afterwards.

    Source: kube-scheduler `schedule_one.go` and `metrics/metrics.go`, v1.36.
    """

    def __init__(
        self, metrics: SchedulerMetrics, now_s: Callable[[], float], told: Callable[[Diagnosis], None]
    ) -> None:
        self._metrics = metrics
        self._algorithm = metrics.algorithm_durations.of()
        self._now_s = now_s
        self._told = told

    def ended(self, diagnosis: Diagnosis) -> None:
        """Count one attempt."""
        metrics, outcome = self._metrics, diagnosis.outcome
        result = _RESULTS.get(outcome, "error")
        metrics.attempt_durations.of(diagnosis.profile, result).observe(diagnosis.duration_ms / 1000)
        if diagnosis.algorithm_ms:
            self._algorithm.observe(diagnosis.algorithm_ms / 1000)
        if outcome is Outcome.BOUND:
            first_s = diagnosis.first_tried_at_s
            metrics.scheduled(diagnosis.attempt, None if first_s is None else self._now_s() - first_s)
            if diagnosis.after_flush:
                metrics.after_flush.add()
        self._told(diagnosis)
