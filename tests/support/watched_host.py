"""Object stores, cache, queue and event handlers as the host wires them, fed by hand-made watch events."""

from __future__ import annotations

from typing import Any

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cluster.handlers import Arrivals, EventHandlers, Handled
from berth_host.cluster.port import EventRecord, WatchEvent
from berth_host.cycle.attempt import Failure
from berth_host.cycle.schedule_one import FailureHandler
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.interfaces import QueueConfig, QueueProfile, QueueSeams
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_host.queue.registrations import Registration, registrations_of
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import DEFAULT_SCHEDULER_NAME, Pod
from berth_sdk.runtime.descriptor import describe
from berth_sdk.testing.builders import NodeFields, PodFields, node_object, pod_object
from support.queue_parts import START_S, Notes

REJECTING = ("NodeResourcesFit", "NodeAffinity", "TaintToleration", "InterPodAffinity", "VolumeBinding")


def registrations() -> dict[str, tuple[Registration, ...]]:
    """Return the events of the default plugins in REJECTING, by name."""
    classes = ClassRegistry()
    found = {name: classes.find(name) for name in REJECTING}
    return {name: registrations_of(describe(cls).events) for name, cls in found.items() if cls is not None}


class Attempts:
    """Notes what the handlers do to running attempts; `waiting`: uids held at Permit."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.aborted: list[str] = []

    def reject_waiting(self, uid: str) -> bool:
        return uid in self.waiting

    def abort(self, uid: str) -> None:
        self.aborted.append(uid)


class Written:
    """A StatusWriter that keeps what it is told."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, Failure]] = []

    def attempt_failed(self, pod: Pod, failure: Failure) -> None:
        self.failures.append((pod.name, failure))


class WatchedHost:
    """Every event registered by the default plugins in REJECTING helps; hints always say yes. `groups`: True
    for a host that schedules pod groups. `leads`: False for a standby. `ends`: is told of the objects that it
    awaits, and reads `stores`.
    """

    def __init__(
        self,
        *,
        groups: bool = False,
        leads: bool = True,
        stores: ObjectStores | None = None,
        ends: Arrivals | None = None,
    ) -> None:
        self.stores = ObjectStores() if stores is None else stores
        self.cache = Cache()
        self.clock = ManualClock(start_s=START_S)
        self.notes = Notes()
        self.attempts = Attempts()
        self.written = Written()
        profile = QueueProfile(registrations=registrations())
        seams = QueueSeams(pods=self.stores, profiles={DEFAULT_SCHEDULER_NAME: profile}, observer=self.notes)
        self.queue = SchedulingQueue(QueueConfig(), self.clock, seams)
        self.reports: list[EventRecord] = []
        self.refusals: list[tuple[str, str]] = []
        handled = Handled(
            stores=self.stores,
            cache=self.cache,
            queue=self.queue,
            attempts=self.attempts,
            report=self.reports.append,
            refused_pod=lambda pod, message: self.refusals.append((pod.name, message)),
            ends=ends,
        )
        self.handlers = EventHandlers(handled, [DEFAULT_SCHEDULER_NAME], groups=groups)
        if leads:
            self.handlers.begin()
        self.failures = FailureHandler(self.queue, self.stores, self.cache.forget, self.written)
        self._version = 0
        self.seen: dict[tuple[str, str], KubeObject] = {}

    # --- the watch ---------------------------------------------------------------------------

    def shows(self, kind: str, item: dict[str, Any]) -> None:
        """The watch delivers an object, or its new version."""
        self.clock.advance(0.001)
        self._version += 1
        item["metadata"].setdefault("resourceVersion", str(self._version))
        new = KubeObject(item.get("apiVersion", ""), item.get("kind", kind), parsed=item)
        old = self.seen.get((kind, new.ref.key))
        self.seen[kind, new.ref.key] = new
        self.handlers.handle(WatchEvent(kind, old, new))

    def loses(self, kind: str, key: str) -> None:
        """The watch delivers a deletion."""
        self.clock.advance(0.001)
        self.handlers.handle(WatchEvent(kind, self.seen.pop((kind, key)), None))

    def pod(self, name: str, **fields: Any) -> None:
        """A pod comes, or changes."""
        known: PodFields = {"uid": f"uid-{name}", **fields}  # type: ignore[typeddict-item]  # by the test
        self.shows("Pod", pod_object(name, **known))

    def pod_gone(self, name: str) -> None:
        """A pod is deleted."""
        self.loses("Pod", f"default/{name}")

    def member(self, name: str, group: str = "g", **fields: Any) -> None:
        """A pod of a group comes, or changes."""
        self.pod(name, spec={"schedulingGroup": {"podGroupName": group}}, **fields)

    def group(self, name: str = "g", uid: str = "", minimum: int = 2) -> None:
        """A PodGroup comes, or changes."""
        self.shows(
            "PodGroup",
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
            },
        )

    def node(self, name: str, **fields: Any) -> None:
        """A node comes, or changes."""
        known: NodeFields = {"uid": f"uid-{name}", **fields}  # type: ignore[typeddict-item]  # by the test
        self.shows("Node", node_object(name, **known))

    # --- attempts ----------------------------------------------------------------------------

    def pop(self) -> QueuedPodInfo:
        """Return the next pod, which must be there."""
        info = self.queue.pop()
        assert isinstance(info, QueuedPodInfo)
        return info

    def assumed(self, name: str, node_name: str = "n1") -> QueuedPodInfo:
        """Return a pod that came, was popped and got a node, and is not bound yet."""
        self.pod(name)
        info = self.pop()
        self.cache.assume(info.pod.on_node(node_name))
        return info

    def parked(self, name: str, plugin: str = "NodeResourcesFit", **fields: Any) -> QueuedPodInfo:
        """Return a pod that was tried and rejected by `plugin`, and waits in the pool."""
        self.pod(name, **fields)
        info = self.pop()
        info.unschedulable_plugins = {plugin}
        self.queue.add_unschedulable(info)
        assert info.key in self.queue.places.pool
        self.notes.events.clear()
        return info

    # --- what is there -------------------------------------------------------------------------

    @property
    def queued(self) -> dict[str, str]:
        """The place of every queued pod, by name."""
        places = self.queue.places
        backoff = (*places.backoff.rejected(), *places.backoff.failed())
        return (
            {info.pod.name: "active" for info in pods_of(places.active)}
            | {info.pod.name: "backoff" for info in pods_of(backoff)}
            | {info.pod.name: "pool" for info in pods_of(places.pool)}
        )

    @property
    def nominated(self) -> dict[str, list[str]]:
        """Nominated pods by node."""
        return {node: [pod.name for pod in pods] for node, pods in self.queue.nominated_pods().items()}
