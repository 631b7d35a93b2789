"""A scheduling queue with a clock that the test moves, and with pods and plugins made of plain functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from berth_host.model.clock import ManualClock
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import (
    Deferred,
    Gate,
    GateQuestion,
    HintAsker,
    HintQuestion,
    HintVerdict,
    QueueConfig,
    QueueObserver,
    QueueProfile,
    QueueSeams,
    QueueSort,
    always_queue,
)
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_host.queue.registrations import Registration
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_sdk.events import ActionType
from berth_sdk.node import Node
from berth_sdk.pod import DEFAULT_SCHEDULER_NAME, Pod
from berth_sdk.runtime.plugin_runtime import Narrowing
from berth_sdk.status import Status

START_S = 1_000_000.0  # a whole second
NODE_ADD = Registration(resource="Node", action=int(ActionType.ADD))
ASK_NODE_ADD = Registration(resource="Node", action=int(ActionType.ADD), ask=True)


def a_pod(name: str, priority: int = 0, **fields: object) -> Pod:
    """Return a pending pod; its uid follows from its name unless it is given."""
    known: dict[str, object] = {"uid": f"uid-{name}", "resource_version": "1", "priority": priority}
    return Pod(name=name, **(known | fields))  # type: ignore[arg-type]  # fields of Pod, by the caller


def node_added(name: str = "n1") -> QueueEvent:
    """A node came."""
    return QueueEvent("Node", ActionType.ADD, new=Node(name=name))


class KnownPods:
    """The pods that the watch has shown."""

    def __init__(self) -> None:
        self.by_key: dict[str, Pod] = {}

    def put(self, pod: Pod) -> Pod:
        self.by_key[pod.key] = pod
        return pod

    def pod(self, key: str) -> Pod | None:
        return self.by_key.get(key)

    def pod_by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self.by_key.values() if pod.uid == uid), None)


class Notes(QueueObserver):
    """Remembers what the queue reported. `listener`: called with the label of each event at once."""

    def __init__(self) -> None:
        self.listener: Callable[[str], None] | None = None
        self.events: list[str] = []
        self.hints: list[tuple[str, str, str, HintVerdict]] = []
        self.entered: list[tuple[str, str]] = []
        self.rejected: list[tuple[str, str]] = []
        self.raised: list[tuple[str, str]] = []

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        self.events.append(f"self:{event.label}" if own_update else event.label)
        if self.listener is not None:
            self.listener(event.label)

    def hint_given(
        self, plugin: str, label: str, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        self.hints.extend((plugin, label, info.pod.name, verdict) for info in pods)

    def pod_entered(self, queue: str, label: str, count: int = 1) -> None:
        self.entered.extend([(queue, label)] * count)

    def pod_rejected(self, plugin: str, profile: str, count: int = 1) -> None:
        self.rejected.extend([(plugin, profile)] * count)

    def plugin_raised(self, plugin: str, call: str, error: Exception) -> None:
        self.raised.append((plugin, call))


class EvictingPods:
    """Uids of pods whose victims are being evicted; the test adds and discards them."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._changed: set[str] = set()

    def add(self, uid: str) -> None:
        self._changed.add(uid)
        self._uids.add(uid)

    def discard(self, uid: str) -> None:
        self._changed.add(uid)
        self._uids.discard(uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._uids

    def take_changed(self) -> set[str]:
        changed, self._changed = self._changed, set()
        return changed


@dataclass
class Plugins:
    """The plugins of the one profile. Plugins `Fit` and `Taint` wait for new nodes unless told otherwise."""

    registrations: Mapping[str, Sequence[Registration]] = field(
        default_factory=lambda: {"Fit": [NODE_ADD], "Taint": [NODE_ADD]}
    )
    gates: Mapping[str, Gate] = field(default_factory=dict)
    hint: HintAsker = always_queue
    sort: QueueSort = field(default_factory=QueueSort)
    signs: Mapping[str, Callable[[Pod], Hashable]] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    narrows: Mapping[str, Narrowing] = field(default_factory=dict)
    in_scope: Mapping[str, Callable[[Pod], bool]] = field(default_factory=dict)


class QueueBench:
    """A queue and everything around it."""

    def __init__(self, plugins: Plugins | None = None, config: QueueConfig | None = None) -> None:
        plugins = plugins or Plugins()
        self.clock = ManualClock(start_s=START_S)
        self.pods = KnownPods()
        self.notes = Notes()
        self.evicting = EvictingPods()
        profile = QueueProfile(
            gates=plugins.gates,
            registrations=plugins.registrations,
            hint=plugins.hint,
            signs=plugins.signs,
            served=plugins.served,
            narrows=plugins.narrows,
            in_scope=plugins.in_scope,
        )
        seams = QueueSeams(
            pods=self.pods,
            profiles={DEFAULT_SCHEDULER_NAME: profile},
            sort=plugins.sort,
            observer=self.notes,
            evicting=self.evicting,
        )
        self.queue = SchedulingQueue(config or QueueConfig(), self.clock, seams)

    def add(self, *names: str, **fields: object) -> None:
        """New pods, a millisecond apart."""
        for name in names:
            self.queue.add(self.pods.put(a_pod(name, **fields)))  # type: ignore[arg-type]  # fields of Pod
            self.clock.advance(0.001)

    def pop(self) -> QueuedPodInfo:
        """Return the next pod, which must be there."""
        info = self.queue.pop()
        assert isinstance(info, QueuedPodInfo)
        return info

    def pop_group(self) -> QueuedGroupInfo:
        """Return the next group, which must be there."""
        info = self.queue.pop()
        assert isinstance(info, QueuedGroupInfo)
        return info

    def pop_name(self) -> str:
        """Return the name of the next pod, "" for none."""
        info = self.queue.pop()
        return "" if info is None else info.pods()[0].pod.name

    def reject(self, info: QueuedPodInfo, *plugins: str, pending: Sequence[str] = ()) -> None:
        """The attempt ends as unschedulable."""
        info.unschedulable_plugins = set(plugins)
        info.pending_plugins = set(pending)
        self.queue.add_unschedulable(info)

    def fail(self, info: QueuedPodInfo, plugin: str = "") -> None:
        """The attempt ends with an error."""
        info.unschedulable_plugins, info.pending_plugins = set(), set()
        self.queue.add_unschedulable(info, failed_plugin=plugin)

    def parked(self, name: str, *plugins: str, **fields: object) -> QueuedPodInfo:
        """Return a pod that was tried and rejected by `plugins`, and is in the pool now."""
        self.add(name, **fields)
        info = self.pop()
        assert info.pod.name == name
        self.reject(info, *plugins)
        return info

    @property
    def active(self) -> list[str]:
        """activeQ, first to last."""
        return [info.pod.name for info in pods_of(self.queue.places.active)]

    @property
    def backing_off(self) -> list[str]:
        """backoffQ: rejected pods, then failed ones, each first to last."""
        backoff = self.queue.places.backoff
        return [info.pod.name for info in pods_of((*backoff.rejected(), *backoff.failed()))]

    @property
    def pool(self) -> list[str]:
        """The pool, sorted."""
        return sorted(info.pod.name for info in pods_of(self.queue.places.pool))

    @property
    def in_flight(self) -> list[str]:
        """Pods in flight, in the order popped."""
        return [info.pod.name for info in self.queue.in_flight]


class SlowPlugin:
    """A plugin elsewhere: notes the questions and defers every answer."""

    def __init__(self) -> None:
        self.gate_questions: list[GateQuestion] = []
        self.hint_questions: list[HintQuestion] = []

    def gate(self, question: GateQuestion) -> Status | Deferred:
        self.gate_questions.append(question)
        return Deferred.DEFERRED

    def hint(self, question: HintQuestion) -> bool | Deferred:
        self.hint_questions.append(question)
        return Deferred.DEFERRED
