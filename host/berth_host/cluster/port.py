"""The host's interface to a cluster: a stream of changes from it, and the calls to it.

Adapters: `berth_sim.cluster` (embedded) and `berth_kube` (a real API server). Composed by `app`, which hands
the calls to the scheduler and the stream to `cluster/handlers`; no code above the port depends on the
adapter. Resources are spelled as in a plugin's Need: `pods`, `storage.k8s.io/csinodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod

from berth_host.model.patch_type import PatchType

MAX_EVENTS_PER_TURN: Final = 20
"""The most changes that an adapter hands over in one turn of the event loop, once `start` has returned."""
MAX_TURN_S: Final = 0.0002
"""The longest time, in seconds, that one turn hands over changes; a turn ends after the change that
exceeds it.
"""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. `old` is None for an add, `new` for a delete. `kind` is the object's kind, as in `Pod`."""

    kind: str
    old: KubeObject | None
    new: KubeObject | None


WatchHandler = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """A Kubernetes event to write (events.k8s.io/v1). `type`: Normal or Warning. `related`: another object
    that has to do with the event.
    """

    regarding: ObjectRef
    regarding_kind: str = "Pod"
    type: str = "Normal"
    reason: str
    action: str = ""
    note: str
    reporter: str
    related: ObjectRef | None = None
    related_kind: str = "Pod"


class ClusterCalls(Protocol):
    """The calls to a cluster that the cycles make. They raise a subclass of `errors.cluster.ClusterError` for
    each kind of failure.
    """

    @property
    def answers_at_once(self) -> bool:
        """True if calls never wait: concurrent calls are then no faster than sequential ones."""
        ...

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object live; return None if it does not exist or its uid differs from `ref.uid`."""
        ...

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Bind a pod to a node. Raises ConflictError if the pod is bound or terminating, or if its uid
        differs.
        """
        ...

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Apply a patch; return the patched object. `subresource`: "" or "status"."""
        ...

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace a whole object (PUT), or its status if `subresource` is "status"; return the new object.

        Raises ConflictError if `metadata.resourceVersion` is set and is not the current one.
        """
        ...

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create an object; return it as stored. A name that ends in "-" is completed (generateName).

        Raises ConflictError if the name is taken.
        """
        ...

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete an object; one with finalizers stays, marked as terminating, until these are removed.

        `same_uid`: raise ConflictError, and delete nothing, if the object has another uid than `ref`.
        """
        ...

    def create_event(self, event: EventRecord) -> None:
        """Write any event in the background. Dropped events are counted."""
        ...

    def record_event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        """Write an event about a pod, reported by the pod's scheduler; see `create_event`."""
        self.create_event(
            EventRecord(
                regarding=pod.ref,
                type=type,
                reason=reason,
                action=action,
                note=note,
                reporter=pod.scheduler_name,
                related=related,
                related_kind=related_kind,
            )
        )


class ClusterPort(ClusterCalls, Protocol):
    """A cluster: the changes in it, and the calls to it."""

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Hand over every existing object of `resources` as an add, then return; later changes follow.

        Changes of one kind arrive in order; changes of different kinds in any order. The handler runs on the
        event loop, at most MAX_EVENTS_PER_TURN times in one turn. An object whose resource version was
        handed over last is skipped, so that a relist hands over only changes.
        """
        ...

    async def watch(self, resources: Collection[str]) -> None:
        """Hand over these resources too, for a plugin that attached later; return after all existing objects.

        Has no effect for resources that are watched already.
        """
        ...

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Hand over every change that the cluster has now, as a read made now shows it, of the resources that
        schedulers and plugins write. Return those that are still behind after `timeout_s` (real time), or
        could not be read; usually none.

        For a host that stood by and now leads: what the leader before wrote last must be known first.
        """
        ...

    async def stop(self) -> None:
        """Stop handing over changes; write the events that are still queued, for a bounded time."""
        ...

    def cut(self) -> None:
        """Stop sending at once: every later call raises UnavailableError, and events are dropped.

        For a host that is no longer the leader. A second call has no effect.
        """
        ...

    @property
    def kept_event_count(self) -> int:
        """The number of events kept, so that their repetitions become a series."""
        ...

    @property
    def undelivered_count(self) -> int:
        """The number of changes received and not handed over yet; 0 if the adapter cannot count them."""
        ...

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read the objects of a namespace that have all these labels, live; finished pods too.

        `fields`: also these values of fields that the API server selects by, such as `status.phase`.
        """
        ...
