"""The host's interface to a cluster: one stream of changes in, a few calls out.

Adapters: `cluster/memory` (embedded) and `cluster/kube` (a real API server). Composed by `app`, which hands
the calls to the scheduler and the stream to `cluster/handlers`; nothing above the port knows which it is.
Resources are spelled as in a plugin's Need: `pods`, `storage.k8s.io/csinodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod

from berth_host.model.patch_type import PatchType

MAX_EVENTS_PER_TURN: Final = 20
"""How many changes an adapter hands over at most before the loop may do something else ..."""
MAX_TURN_S: Final = 0.0002
"""... and for how long: the first change that ends later is the last one of its turn."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. `old` is None for an add, `new` for a delete; `kind` is the object's kind, as `Pod`."""

    kind: str
    old: KubeObject | None
    new: KubeObject | None


WatchHandler = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """A Kubernetes event to be written (events.k8s.io/v1). `type`: Normal or Warning."""

    regarding: ObjectRef
    regarding_kind: str = "Pod"
    type: str = "Normal"
    reason: str
    action: str = ""
    note: str
    reporter: str
    related: ObjectRef | None = None


class ClusterPort(Protocol):
    """A cluster. The calls raise `errors.cluster.ClusterError`, each answer its own kind."""

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Hand over every existing object of `resources` as an add, then return; every later change follows.

        In order within a kind; between kinds no order is promised. The handler runs on the loop, at most
        MAX_EVENTS_PER_TURN times in one turn. An update whose object has the resource version that was
        handed over last is not handed over: a relist hands over only changes.
        """
        ...

    async def watch(self, resources: Collection[str]) -> None:
        """Hand over these resources too, for a plugin that came later; returns when all that exists was.

        Harmless for resources that are handed over already.
        """
        ...

    async def stop(self) -> None:
        """Stop handing over changes; write the events that wait, for a bounded time."""
        ...

    def cut(self) -> None:
        """Send nothing any more, at once: every call from now on raises UnavailableError, and events are
        dropped. For a host that is no longer the leader; harmless when repeated.
        """
        ...

    @property
    def kept_event_count(self) -> int:
        """How many events are remembered, so that their repetitions become a series."""
        ...

    @property
    def undelivered_count(self) -> int:
        """Changes that are known and not handed over yet; an adapter that cannot know answers 0."""
        ...

    @property
    def answers_at_once(self) -> bool:
        """Whether calls never wait: concurrent calls are then no faster than sequential ones."""
        ...

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """The object as it is now, read live; None where there is none (or another uid than `ref.uid`)."""
        ...

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Put a pod on a node. ConflictError: it is on one already, is going away, or is another pod."""
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
        """Apply a patch; the object as it is then. `subresource`: "" or "status"."""
        ...

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace a whole object (PUT), or with `subresource` "status" its status; the object as it is then.

        ConflictError where `metadata.resourceVersion` is said and is not the current one.
        """
        ...

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Make an object; the object as it is then. A name that ends in "-" is completed. ConflictError: the
        name is taken.
        """
        ...

    async def delete(self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None) -> None:
        """Delete an object; with finalizers it stays, marked, until the last one is gone."""
        ...

    def record_event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """Write an event about a pod, in the name of the pod's scheduler; see `create_event`."""
        ...

    def create_event(self, event: EventRecord) -> None:
        """Write any event, in the background: no caller waits for it. Dropped events are counted."""
        ...
