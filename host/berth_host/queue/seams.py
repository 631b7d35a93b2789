"""The queue's needs of other packages, as values and Protocols; filled by `wiring` and `app`, faked in tests.

The queue calls plain functions. A plugin that runs elsewhere cannot answer at once: its function answers
DEFERRED, and the answer is handed to the queue later, with the question that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Code, Status

from berth_host.queue.events import QueueEvent
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.registrations import Registration


class Deferred(Enum):
    """The type of DEFERRED."""

    DEFERRED = "deferred"


DEFERRED: Final = Deferred.DEFERRED
"""The answer comes later, through one of the queue's `..._answered` methods."""


@dataclass(frozen=True, slots=True, eq=False)
class GateQuestion:
    """May this pod enter? Asked of one PreEnqueue plugin."""

    plugin: str
    pod: QueuedPod


@dataclass(frozen=True, slots=True, eq=False)
class HintQuestion:
    """May this event help this pod, which the plugin rejected? `event` is one object for all pods asked.

    `label`: the event's name in metrics. `attempts`: the pod's, which tell whether an answer is late.
    """

    plugin: str
    event: ClusterEvent
    pod: Pod
    attempts: int
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class SortKeyQuestion:
    """Where does this pod stand in the queue?"""

    pod: QueuedPod


Gate = Callable[[GateQuestion], Status | Deferred]
HintAsker = Callable[[HintQuestion], bool | Deferred]
SortKeyAsker = Callable[[SortKeyQuestion], bytes | Deferred]
Less = Callable[[QueuedPod, QueuedPod], bool]
PreCheck = Callable[[Pod], bool]


def always_queue(question: HintQuestion) -> bool:
    """The hint of plugins that have none."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProfile:
    """One profile's plugins, as the queue sees them.

    `gates`: PreEnqueue plugins by name, in configured order. `registrations`: events by plugin, of all
    plugins that can reject. `hint` is asked where a registration says so. A function that raises counts
    as a closed gate, or as "the event may help". `signs`: of plugins whose gate and hint answer at
    once, their signatures of a pod (`QueueSigningPlugin`): they answer the same for all pods signed alike.
    """

    gates: Mapping[str, Gate] = field(default_factory=dict)
    registrations: Mapping[str, Sequence[Registration]] = field(default_factory=dict)
    hint: HintAsker = always_queue
    signs: Mapping[str, Callable[[Pod], Hashable]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSort:
    """The one QueueSort plugin: keys, or (in process only) a comparison. Without both, pods are ordered
    by priority and time, which is also the order of pods without a key.
    """

    plugin: str = ""
    sort_key: SortKeyAsker | None = None
    less: Less | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """Limits, in seconds. `pod_max_backoff_s` 0 turns the backoff off.

    `ask_every_plugin`: ask every plugin that rejected a pod about every event, for a record of all
    hints; otherwise asking ends with the first answer that decides. The outcome is the same.
    """

    pod_initial_backoff_s: int = 1
    pod_max_backoff_s: int = 10
    pod_max_in_unschedulable_pods_s: float = 300.0
    ask_every_plugin: bool = False


class PodLister(Protocol):
    """The pods that exist, as the watch last showed them (`cache.objects.ObjectStores`)."""

    def pod(self, key: str) -> Pod | None:
        """The pod called `namespace/name`."""
        ...

    def pod_by_uid(self, uid: str) -> Pod | None:
        """The pod with this uid."""
        ...


class HintVerdict(Enum):
    """A hint's verdict, in the spelling of kube-scheduler's metric; an error counts as Queue."""

    QUEUE = "Queue"
    SKIP = "QueueSkip"
    ERROR = "Error"
    DEFERRED = "Deferred"


class QueueObserver:
    """Told of the queue's events, for metrics and recordings. This class ignores all of them."""

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        """An event reached the queue; `own_update`: a queued or popped pod was changed itself."""

    def hint_given(
        self, plugin: str, event: QueueEvent, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        """One registration of a rejecting plugin was consulted; `pods`: the pods judged, to be read now and
        not kept.
        """

    def hint_took(self, plugin: str, event: QueueEvent, verdict: HintVerdict, seconds: float) -> None:
        """A rejecting plugin was consulted, or its registration alone decided; `seconds`: that took."""

    def gates_ran(self, profile: str, code: Code, seconds: float) -> None:
        """PreEnqueue of a profile that has such plugins came to `code`; not told if a plugin answers
        later."""

    def pod_entered(self, queue: str, label: str, count: int = 1) -> None:
        """Pods came into `active`, `backoff` or `unschedulable`; `label`: the cause."""

    def pod_rejected(self, plugin: str, profile: str, count: int = 1) -> None:
        """Pods are held back on this plugin's word."""

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """The QueueSort plugin gave no key: the pod is ordered by priority and time."""

    def plugin_raised(self, plugin: str, call: str, error: Exception) -> None:
        """A plugin's function raised while the queue asked it."""


class Evicting(Protocol):
    """Uids of pods for which others are being evicted."""

    def __contains__(self, uid: object) -> bool:
        """Whether that goes on for a pod."""
        ...

    def take_changed(self) -> Collection[str]:
        """Uids of which that may have begun or ended since they were last asked for."""
        ...


class NoEvicting:
    """No pod is evicted."""

    def __contains__(self, uid: object) -> bool:
        return False

    def take_changed(self) -> Collection[str]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeams:
    """All the parts that the queue talks to."""

    pods: PodLister
    profiles: Mapping[str, QueueProfile]
    sort: QueueSort = field(default_factory=QueueSort)
    observer: QueueObserver = field(default_factory=QueueObserver)
    evicting: Evicting = field(default_factory=NoEvicting)
