"""Which writes of a plugin are sent as a PUT of the whole object, and of which object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.cache.objects import ObjectStores
from berth_host.cycle.patches import ObjectWrites
from berth_host.errors.cluster import ConflictError, NotFoundError
from berth_host.model.clock import ManualClock
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.results import ObjectPatch
from berth_sim.cluster.cluster import MemoryCluster
from support.hosts import START_S, node
from support.storage import CLAIMS, claim

SELECTED = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
DATA = ObjectRef(name="data", namespace="default")


class Counted(MemoryCluster):
    """Notes which calls were made."""

    def __init__(self) -> None:
        super().__init__(ManualClock(START_S))
        self.calls: list[str] = []

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Get."""
        self.calls.append("get")
        return await super().get(resource, ref)

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
        """Patch."""
        self.calls.append("patch")
        return await super().patch(
            resource,
            ref,
            patch,
            patch_type=patch_type,
            subresource=subresource,
            expected_resource_version=expected_resource_version,
        )

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace."""
        self.calls.append("update")
        return await super().update(resource, content, subresource=subresource)


class Writing:
    """A claim in a cluster, and in the host's stores as it was at the beginning."""

    def __init__(self) -> None:
        self.cluster = Counted()
        self.stores = ObjectStores()
        self.first = self.cluster.server.create(claim("data", cls="local"))
        self.stores.put("PersistentVolumeClaim", self.first)
        self.writes = ObjectWrites(self.cluster, self.stores)

    async def write(
        self, version: str, body: Mapping[str, Any] = SELECTED, subresource: str = ""
    ) -> KubeObject:
        """Write to the claim, which is expected to be of that version."""
        patch = ObjectPatch(
            resource=CLAIMS,
            ref=DATA,
            merge_patch=body,
            expected_resource_version=version,
            subresource=subresource,
        )
        return await self.writes.write(patch)


async def test_claim_of_the_version_that_the_host_has_is_put() -> None:
    writing = Writing()
    after = await writing.write(writing.first.ref.resource_version)
    assert writing.cluster.calls == ["update"]
    assert after.get("metadata.annotations") == SELECTED["metadata"]["annotations"]
    assert after.get("spec") == writing.first.get("spec")


async def test_second_write_builds_on_the_answer_of_the_first() -> None:
    writing = Writing()
    first = await writing.write(writing.first.ref.resource_version)
    second = await writing.write(first.ref.resource_version, {"status": {"phase": "Bound"}}, "status")
    assert writing.cluster.calls == ["update", "update"]
    assert second.get("status.phase") == "Bound"
    assert second.get("metadata.annotations") == SELECTED["metadata"]["annotations"]


async def test_version_that_the_host_does_not_know_is_read_live() -> None:
    writing = Writing()
    newer = writing.cluster.server.patch(CLAIMS, DATA, {"metadata": {"labels": {"a": "1"}}})
    after = await writing.write(newer.ref.resource_version)
    assert writing.cluster.calls == ["get", "update"]
    assert after.get("metadata.labels") == {"a": "1"}


async def test_version_that_is_over_is_a_conflict_and_overwrites_nothing() -> None:
    writing = Writing()
    writing.cluster.server.patch(CLAIMS, DATA, {"metadata": {"labels": {"a": "1"}}})
    with pytest.raises(ConflictError, match="the object has been modified"):
        await writing.write(writing.first.ref.resource_version)
    with pytest.raises(ConflictError, match="the object has been modified"):
        await writing.write("1")
    now = await writing.cluster.get(CLAIMS, DATA)
    assert now is not None
    assert now.get("metadata.annotations") is None


async def test_claim_that_is_gone_is_not_found() -> None:
    writing = Writing()
    writing.cluster.server.delete(CLAIMS, DATA)
    with pytest.raises(NotFoundError):
        await writing.write(writing.first.ref.resource_version)


async def test_other_writes_are_patches() -> None:
    writing = Writing()
    await writing.write("")
    made = writing.cluster.server.create(node("n1"))
    patch = ObjectPatch(
        resource="nodes",
        ref=made.ref,
        merge_patch={"metadata": {"labels": {"a": "1"}}},
        expected_resource_version=made.ref.resource_version,
    )
    await writing.writes.write(patch)
    assert writing.cluster.calls == ["patch", "patch"]
