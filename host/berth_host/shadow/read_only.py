"""`ReadOnlyCluster`: the cluster port of a shadow. Reads go through; each write raises an InvariantError.

A shadow has no part that writes. So a write is an error of berth, and the error ends the host: a shadow that
wrote would act on the cluster beside the real scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_host.cluster.port import ClusterPort, EventRecord, WatchHandler
from berth_host.errors.state import InvariantError
from berth_host.model.patch_type import PatchType


def _refused(what: str) -> InvariantError:
    return InvariantError(f"a shadow must write nothing, and was about to {what}")


class ReadOnlyCluster(ClusterPort):
    """A `ClusterPort` over another one. `below`: the port that the reads go to."""

    def __init__(self, below: ClusterPort) -> None:
        self.below = below

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """Follow the cluster."""
        await self.below.start(handler, resources)

    async def watch(self, resources: Collection[str]) -> None:
        """Follow these resources too."""
        await self.below.watch(resources)

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Hand over every change that the cluster has now."""
        return await self.below.catch_up(timeout_s)

    async def stop(self) -> None:
        """Stop following the cluster."""
        await self.below.stop()

    def cut(self) -> None:
        """Stop sending at once."""
        self.below.cut()

    @property
    def kept_event_count(self) -> int:
        """The number of events kept for series: none, as a shadow writes no event."""
        return self.below.kept_event_count

    @property
    def undelivered_count(self) -> int:
        """The number of changes received and not handed over yet."""
        return self.below.undelivered_count

    @property
    def answers_at_once(self) -> bool:
        """True if calls never wait."""
        return self.below.answers_at_once

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object live."""
        return await self.below.get(resource, ref)

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read objects of a namespace live."""
        return await self.below.list(resource, namespace, labels, fields)

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Raise InvariantError."""
        raise _refused(f"bind pod {pod.key} to {node_name}")

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
        """Raise InvariantError."""
        raise _refused(f"patch {resource} {ref.key}")

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Raise InvariantError."""
        raise _refused(f"update {resource} {KubeObject.of(content).ref.key}")

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Raise InvariantError."""
        raise _refused(f"create {resource} {ref.key}")

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Raise InvariantError."""
        raise _refused(f"delete {resource} {ref.key}")

    def create_event(self, event: EventRecord) -> None:
        """Raise InvariantError."""
        raise _refused(f"write the event {event.reason} about {event.regarding_kind} {event.regarding.key}")
