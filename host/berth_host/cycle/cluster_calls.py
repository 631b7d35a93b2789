"""The calls that the cycles make to a cluster. The cluster port implements them, and `app` passes it in.

All calls raise `errors.cluster.ClusterError`: each kind of failure has a class of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod

from berth_host.model.patch_type import PatchType


class ClusterCalls(Protocol):
    """The methods of a cluster that the scheduler calls."""

    @property
    def answers_at_once(self) -> bool:
        """True if calls never wait: then concurrent calls are no faster than sequential ones."""
        ...

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read an object from the API server, not from a watch; return None if it does not exist."""
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
        """Apply a patch and return the changed object."""
        ...

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace an object, or its status if `subresource` is "status"; return the changed object."""
        ...

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create an object and return it. The API server completes a name that ends in "-".

        Raises ConflictError if the name is taken.
        """
        ...

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete the object. `same_uid`: raise ConflictError if it has another uid than `ref`."""
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
        """Write an event about `pod`, in the background. `related`: another object that has to do with it."""
        ...
