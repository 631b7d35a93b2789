"""The values and functions that the queue needs from other packages, as Protocols.

Filled by `wiring` and `app`, faked in tests. The queue calls plain functions. A served plugin cannot answer
at once: its function returns DEFERRED, and the answer is passed to the queue later, together with its
question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.runtime.plugin_runtime import Narrowing
from berth_sdk.status import Code, Status

from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.queue.events import QueueEvent
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.registrations import Registration
from berth_host.rpc.hint_answer import NO_HINT, HintAnswer


class Deferred(Enum):
    """The type of DEFERRED."""

    DEFERRED = "deferred"


DEFERRED: Final = Deferred.DEFERRED
"""The answer arrives later, through one of the queue's `..._answered` methods."""


@dataclass(frozen=True, slots=True, eq=False)
class GateQuestion:
    """The question to one PreEnqueue plugin: may this pod enter?"""

    plugin: str
    pod: QueuedPod


@dataclass(frozen=True, slots=True, eq=False)
class HintQuestion:
    """The question to a plugin: may this event help this pod, which the plugin rejected?

    `event`: one object for the questions about all pods. `label`: the event's name in metrics. `attempts`:
    the pod's number of attempts, by which a late answer is recognised. `asked_s`: when the question was put,
    on the clock of `metrics.series.instant_s`.
    """

    plugin: str
    event: ClusterEvent
    pod: Pod
    attempts: int
    label: str
    asked_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SortKeyQuestion:
    """The question to the QueueSort plugin: what is the sort key of this pod or group?

    `uid`: the uid of the queued pod or group.
    """

    pod: QueuedPod
    uid: str


Gate = Callable[[GateQuestion], Status | Deferred]
HintAsker = Callable[[HintQuestion], HintAnswer | Deferred]
SortKeyAsker = Callable[[SortKeyQuestion], bytes | Deferred]
Less = Callable[[QueuedPod, QueuedPod], bool]
PreCheck = Callable[[Pod], bool]


def always_queue(question: HintQuestion) -> bool:
    """Return True: the hint of plugins that have none."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProfile:
    """The parts of one profile's plugins that the queue calls.

    `gates`: PreEnqueue plugins by name, in the configured order. `registrations`: events by plugin, of all
    plugins that can reject. `hint`: called if a registration says so. A function that raises counts as a
    closed gate, or as "the event may help". `signs`: the signature functions of plugins whose gate and hint
    answer at once (`QueueSigningPlugin`); these plugins answer the same for pods with equal signatures.
    `served`: the plugins whose gate is in another process. `in_scope`: returns True if a plugin, by name, is
    called about a pod. `narrows`: by plugin of `signs`, which waiting pods an event can help
    (`NarrowingPlugin`).
    """

    gates: Mapping[str, Gate] = field(default_factory=dict)
    registrations: Mapping[str, Sequence[Registration]] = field(default_factory=dict)
    hint: HintAsker = always_queue
    signs: Mapping[str, Callable[[Pod], Hashable]] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    in_scope: Mapping[str, Callable[[Pod], bool]] = field(default_factory=dict)
    narrows: Mapping[str, Narrowing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSort:
    """The QueueSort plugin: a function for keys, or (in process only) a comparison.

    Without both, pods are sorted by priority and time, as are pods without a key.
    """

    plugin: str = ""
    sort_key: SortKeyAsker | None = None
    less: Less | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The queue's limits, in seconds. `pod_max_backoff_s` 0 disables the backoff.

    `ask_every_plugin`: call the hint of every plugin that rejected a pod, for a record of all hints;
    otherwise the calls end with the first deciding answer. The result is the same. `rules`: those of the
    version of kube-scheduler that is followed.
    """

    pod_initial_backoff_s: int = 1
    pod_max_backoff_s: int = 10
    pod_max_in_unschedulable_pods_s: float = 300.0
    ask_every_plugin: bool = False
    rules: HostRules = RULES_1_37


class PodLister(Protocol):
    """The existing pods, from the watch (`cache.objects.ObjectStores`)."""

    def pod(self, key: str) -> Pod | None:
        """Return the pod called `namespace/name`, or None."""
        ...

    def pod_by_uid(self, uid: str) -> Pod | None:
        """Return the pod with this uid, or None."""
        ...


class HintVerdict(Enum):
    """A hint's verdict, spelled as in kube-scheduler's metric; an error counts as Queue."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"
    ERROR = "Error"
    DEFERRED = "Deferred"

    @classmethod
    def of(cls, answer: HintAnswer) -> HintVerdict:
        """Return the verdict of an answer."""
        if answer is NO_HINT:
            return cls.ERROR
        return cls.QUEUE if answer else cls.SKIP


class QueueObserver:
    """The observer of the queue, for metrics and recordings. This class ignores all calls."""

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        """Take an event that reached the queue. `own_update`: the event is an update of a pending pod."""

    def hint_given(
        self, plugin: str, label: str, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        """Take the verdict of one registration of a rejecting plugin. A late answer is a verdict of its own.

        `label`: the event's. `pods`: the judged pods; they must be read now and not be kept.
        """

    def hint_took(self, plugin: str, label: str, verdict: HintVerdict, seconds: float) -> None:
        """Take how long a verdict took; a registration without a hint counts too. `label`: the event's."""

    def hint_narrowed(self, plugin: str, event: QueueEvent, *, to_all: bool) -> None:
        """Take that a plugin said which waiting pods an event may help. `to_all`: it may help any."""

    def gates_ran(self, profile: str, code: Code, seconds: float, count: int = 1) -> None:
        """Take the result of a profile's PreEnqueue plugins; not called if a plugin answers later.

        `seconds`: what the calls about one pod took. `count`: the number of pods with this result.
        """

    def pod_entered(self, queue: str, label: str, count: int = 1) -> None:
        """Take that pods entered `active`, `backoff` or `unschedulable`. `label`: the cause.

        All members of a group are reported each time that the group is put somewhere.
        """

    def entity_entered(self, queue: str, label: str, type: str, count: int = 1) -> None:
        """Take that entities of a type (`QueuedEntity.type`) entered such a queue."""

    def pod_rejected(self, plugin: str, profile: str, count: int = 1) -> None:
        """Take that a plugin rejected or gated pods."""

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """Take that the QueueSort plugin gave no key, so that the pod is sorted by priority and time."""

    def plugin_raised(self, plugin: str, call: str, error: Exception) -> None:
        """Take that a plugin's function raised when the queue called it."""


class Evicting(Protocol):
    """The uids of pods for which other pods are being evicted."""

    def __contains__(self, uid: object) -> bool:
        """Return True while pods are being evicted for this one."""
        ...

    def take_changed(self) -> Collection[str]:
        """Return the uids for which evictions may have begun or ended since the last call."""
        ...


class NoEvicting:
    """`Evicting` without evictions."""

    def __contains__(self, uid: object) -> bool:
        return False

    def take_changed(self) -> Collection[str]:
        """Return no uids."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeams:
    """The other parts that the queue calls."""

    pods: PodLister
    profiles: Mapping[str, QueueProfile]
    sort: QueueSort = field(default_factory=QueueSort)
    observer: QueueObserver = field(default_factory=QueueObserver)
    evicting: Evicting = field(default_factory=NoEvicting)
    rules: HostRules = RULES_1_37
