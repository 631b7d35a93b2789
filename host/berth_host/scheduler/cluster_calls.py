"""The few calls that the cycles make to a cluster; the port fits them by shape, and `app` hands it over.

All raise `errors.cluster.ClusterError`, each answer its own kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod

from berth_host.model.patch_type import PatchType


class ClusterCalls(Protocol):
    """A cluster, as the scheduler needs it."""

    @property
    def answers_at_once(self) -> bool:
        """Whether calls never wait: concurrent calls are then no faster than sequential ones."""
        ...

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """The object as it is now, read live; None where there is none."""
        ...

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Post the Binding."""
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
        """Apply a patch; the object as it is then."""
        ...

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace a whole object, or with `subresource` "status" its status; the object as it is then."""
        ...

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Make an object; the object as it is then. A name that ends in "-" is completed. ConflictError: the
        name is taken.
        """
        ...

    async def delete(self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None) -> None:
        """Delete the object."""
        ...

    def record_event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """Write an event about `pod`, in the background."""
        ...
