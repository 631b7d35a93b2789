"""A cluster of claims and slices, with the plugin DynamicResources that reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from berth_plugins.dynamic_resources.allocator import Allocator
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_plugins.dynamic_resources.rules import Rules
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchOutcome, PatchResult
from berth_sdk.status import SUCCESS
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_node, make_table
from berth_sdk.testing.handle import RecordingHandle
from support.device_objects import device_class

NODES = make_table([make_node("n1"), make_node("n2")])
Json = dict[str, Any]


class Cluster:
    """Claims and slices, and a plugin that reads them."""

    def __init__(self, claims: Iterable[Json], slices: Iterable[Json]) -> None:
        self._generation = 0
        self.claims, self.slices, classes, rules = (ObjectStore() for _ in range(4))
        for store, items in ((self.claims, claims), (self.slices, slices), (classes, [device_class()])):
            for item in items:
                self.put(store, item)
        stores = {
            "resource.k8s.io/resourceclaims": self.claims,
            "resource.k8s.io/resourceslices": self.slices,
            "resource.k8s.io/deviceclasses": classes,
            "resource.k8s.io/devicetaintrules": rules,
        }
        self.handle = RecordingHandle(lambda: NODES, stores)
        self.plugin = DynamicResources({}, self.handle)

    def allocator(self) -> Allocator:
        """Return what judges the nodes, without the plugin."""
        return Allocator(self.handle, Rules(), filter_timeout_s=0.0, binding_timeout_s=1.0)

    def put(self, store: ObjectStore, item: Json) -> KubeObject:
        """Store an object, with the next version."""
        self._generation += 1
        found = KubeObject.of(item)
        store.put(found.ref, found, self._generation)
        return found

    def apply(self, patch: ObjectPatch) -> PatchResult:
        """Write a claim, as the API server does."""
        known = self.claims.get(patch.ref.name, patch.ref.namespace)
        assert known is not None
        changed: Json = {**known.parsed}
        for part, fields in patch.merge_patch.items():
            changed[part] = {**(changed.get(part) or {}), **fields}
        written = self.put(self.claims, changed)
        return PatchResult(outcome=PatchOutcome.APPLIED, ref=written.ref, object=written)

    def users(self, name: str) -> list[str]:
        """Return the names of the pods that the claim is reserved for."""
        found = self.claims.get(name, "default")
        assert found is not None
        return [one["name"] for one in found.get("status.reservedFor") or ()]

    async def found(self, pod: Pod, state: CycleState) -> None:
        """Run the cycle up to Filter; every node must pass."""
        plugin = self.plugin
        assert await value(plugin.pre_filter(state, pod, NODES)) == SUCCESS
        verdicts = await value(plugin.filter_nodes(state, pod, NODES))
        assert verdicts.to_list()[0] == SUCCESS


async def value(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer
