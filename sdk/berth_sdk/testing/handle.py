"""`RecordingHandle`: the handle that a plugin gets in its author's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError, UndeclaredError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing.clock import TestClock
from berth_sdk.testing.groups import GroupBook
from berth_sdk.testing.waiting import WaitingRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One call of `record_event`."""

    regarding: ObjectRef
    reason: str
    note: str
    action: str = ""
    type: str = "Normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequeue:
    """One call of `requeue`. `pods` empty: all pods that the plugin rejected."""

    pods: tuple[Pod, ...]
    reason: str = ""
    skip_backoff: bool = False


class RecordingHandle:
    """Implements `berth_sdk.Handle`: records the plugin's calls and reads the test's cluster.

    - `waiting`: the pods that wait at Permit.
    - `allowed`, `rejected`: uids of the pods whose decision was applied or stored.
    - `may_end`: the plugins whose waits this plugin may end beside its own, as `handle.permit` of a
      configuration; None: every plugin.
    - `in_pre_bind`: cycle ids of the pods in PreBind, by uid. `cancelled`: uids.
    - `events`, `requeues`: the calls made. `stale_keys`: uids per call, None for all keys.
    - `preemption`: the result of `evaluate_preemption`.
    - `nominated`: the nominated pods, by uid.
    - `groups`: the groups of pods, and their members.
    - `verdicts`: the results of `run_filters` by node, SUCCESS for other nodes.
    - `totals`: the results of `run_scores` by node, 0 for other nodes.
    """

    def __init__(
        self,
        nodes: Callable[[], NodeTable],
        objects: Mapping[str, ObjectStore],
        *,
        room: WaitingRoom | None = None,
        at_work: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`room`: the pods at Permit, which the plugins of one host share. `at_work`: a context around each
        decision; at its end the host continues with the decided pods.
        """
        self.room = room or WaitingRoom(TestClock())
        self.may_end: frozenset[str] | None = None
        self.allowed: list[str] = []
        self.rejected: list[str] = []
        self.in_pre_bind: dict[str, str] = {}
        self.cancel: Callable[[str, str], None] = lambda uid, message: None
        """Ends the binding cycle of a pod. Set by the test host."""
        self.cancelled: list[str] = []
        self.events: list[RecordedEvent] = []
        self.requeues: list[RecordedRequeue] = []
        self.stale_keys: list[list[str] | None] = []
        self.preemption = PostFilterResult(Status.unschedulable("preemption is not part of this test"))
        self.nominated: dict[str, NominatedPod] = {}
        self.verdicts: dict[str, Status] = {}
        self.totals: dict[str, int] = {}
        self.groups = GroupBook()
        self.plugin = ""
        self.forget: Callable[[], None] = lambda: None
        """Drops the kept answers of the plugin. Set by the test host."""
        self._nodes = nodes
        self._objects = objects
        self._at_work = at_work

    @property
    def waiting(self) -> tuple[WaitingPod, ...]:
        """The pods that any plugin holds at Permit."""
        return tuple(self.room.undecided())

    def hold(self, waiting: WaitingPod) -> None:
        """Add a pod to the pods that wait at Permit, held by its `pending_plugins` until `deadline_s`."""
        wait_s = waiting.deadline_s - self.room.now_s
        self.room.register(waiting.pod, waiting.cycle_id, waiting.node_name)
        self.room.hold(waiting.pod.uid, dict.fromkeys(waiting.pending_plugins, wait_s))

    def pod_groups(self) -> GroupBook:
        """Return the groups of the test."""
        return self.groups

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Return the pods that wait at Permit."""
        return self.room.undecided(self.plugin if only_mine else None)

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of one plugin. Empty: this plugin."""
        with self._at_work():
            decision = self.room.allow(self.plugin, self.may_end, waiting, plugin)
            return self._noted(decision, waiting, self.allowed)

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """End the waits of all plugins and send the pod back to the queue."""
        with self._at_work():
            decision = self.room.reject(self.plugin, self.may_end, waiting, message)
            return self._noted(decision, waiting, self.rejected)

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Cancel the binding of a pod in PreBind."""
        current = self.in_pre_bind.get(pod.uid)
        if current is None:
            return Cancellation.NOT_IN_PRE_BIND
        if cycle_id not in ("", current):
            return Cancellation.STALE_CYCLE
        with self._at_work():
            del self.in_pre_bind[pod.uid]
            self.cancelled.append(pod.uid)
            self.cancel(pod.uid, message)
        return Cancellation.CANCELLED

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource. Raises UndeclaredError for other resources."""
        store = self._objects.get(resource)
        if store is None:
            raise UndeclaredError(f"objects of {resource!r}", f"Need.objects({resource!r})", self.plugin)
        return store

    def snapshot(self) -> NodeTable:
        """Return the table of all nodes."""
        return self._nodes()

    def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult:
        """Return `preemption`. The limits have no effect."""
        return self.preemption

    def run_filters(self, state: CycleState, scenarios: Iterable[Scenario]) -> list[Status]:
        """Return `verdicts` for the nodes of the scenarios, SUCCESS for other nodes. Raises HandleError for a
        node that the cluster lacks, and for a new one that it has.
        """
        asked, known = tuple(scenarios), set(self._nodes().names)
        for one in asked:
            if (one.node_name in known) is (one.node is not None):
                why = "not in the snapshot" if one.node is None else "in the snapshot: name it"
                raise HandleError(f"node {one.node_name!r} is {why}")
        return [self.verdicts.get(one.node_name, SUCCESS) for one in asked]

    def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores:
        """Return `totals` for the nodes, without scores per plugin. Raises HandleError for an unknown
        node.
        """
        names, known = tuple(node_names), set(self._nodes().names)
        for name in names:
            if name not in known:
                raise HandleError(f"node {name!r} is not in the snapshot")
        totals = np.array([self.totals.get(name, 0) for name in names], dtype=np.int64)
        return NodeScores(SUCCESS, names, totals)

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """Return the pods in `nominated`, sorted by node."""
        items = list(self.nominated.values())
        names = (
            sorted({item.node_name for item in items}) if node_names is None else dict.fromkeys(node_names)
        )
        return [item for name in names for item in items if item.node_name == name]

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Change `nominated`. Every pod that is on no node counts as pending."""
        if pod.node_name:
            return Nomination.NOT_PENDING
        wanted = pod.nominated_node if node_name is None else node_name
        if node_name and node_name not in self._nodes().names:
            return Nomination.UNKNOWN_NODE
        self.nominated.pop(pod.uid, None)
        if wanted:
            self.nominated[pod.uid] = NominatedPod(pod=pod, node_name=wanted)
        return Nomination.APPLIED

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Record the call and drop the plugin's kept answers, as the host does. Returns the number of given
        pods.
        """
        self.forget()
        call = RecordedRequeue(pods=tuple(pods), reason=reason, skip_backoff=skip_backoff)
        self.requeues.append(call)
        return len(call.pods)

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """Record the call."""
        self.stale_keys.append([pod.uid for pod in pods] or None)

    def record_event(
        self, regarding: ObjectRef, reason: str, note: str, *, action: str = "", type: str = "Normal"
    ) -> None:
        """Record the event."""
        self.events.append(
            RecordedEvent(regarding=regarding, reason=reason, note=note, action=action, type=type)
        )

    @staticmethod
    def _noted(decision: Decision, waiting: WaitingPod, uids: list[str]) -> Decision:
        if decision in (Decision.APPLIED, Decision.STORED_EARLY):
            uids.append(waiting.pod.uid)
        return decision
