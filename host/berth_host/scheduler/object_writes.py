"""A plugin's merge patch -> the write that kube-scheduler would send: PATCH, or PUT of the whole object.

Called by `patches`. kube-scheduler replaces volumes, volume claims and resource claims whole; audit rules,
admission webhooks and RBAC of a cluster count on the verb `update` there. The plugin's patch is merged into
the object of the version that it names, so a PUT can lose no other change: the server refuses it then.
Source: kube-scheduler `plugins/volumebinding/binder.go` (bindAPIUpdate),
`plugins/dynamicresources/dynamicresources.go` (bindClaim), v1.36.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.results import ObjectPatch

from berth_host.cache.objects import ObjectStores
from berth_host.model.merge_patch import merged
from berth_host.scheduler.cluster_calls import ClusterCalls

REPLACED_WHOLE: Final = frozenset(
    {"persistentvolumes", "persistentvolumeclaims", "resource.k8s.io/resourceclaims"}
)
REMEMBERED: Final = 256
"""Own writes whose answers are kept until the watch shows them; the oldest are dropped first."""


class ObjectWrites:
    """`stores`: the objects as the watches showed them."""

    def __init__(self, cluster: ClusterCalls, stores: ObjectStores) -> None:
        self._cluster = cluster
        self._stores = stores
        self._answers: dict[str, KubeObject] = {}

    async def write(self, patch: ObjectPatch) -> KubeObject:
        """The object as it is then. Raises ClusterError."""
        base = await self._base(patch)
        if base is None:
            return await self._cluster.patch(
                patch.resource,
                patch.ref,
                patch.merge_patch,
                subresource=patch.subresource,
                expected_resource_version=patch.expected_resource_version,
            )
        content = merged(base.parsed, patch.merge_patch)
        answer = await self._cluster.update(patch.resource, content, subresource=patch.subresource)
        self._remember(answer)
        return answer

    async def _base(self, patch: ObjectPatch) -> KubeObject | None:
        """The object at the version that the patch is made for; None: a PATCH it is.

        A PATCH also where that version is over: the server's answer says so in its own words.
        """
        version, ref = patch.expected_resource_version, patch.ref
        if not version or patch.resource not in REPLACED_WHOLE:
            return None
        known = self._stores.of_resource(patch.resource).get(ref.name, ref.namespace)
        if known is None or known.ref.resource_version != version:
            known = self._answers.pop(known.ref.uid if known is not None else ref.uid, known)
        if known is None or known.ref.resource_version != version:
            known = await self._cluster.get(patch.resource, replace(ref, resource_version=""))
        if known is None or known.ref.resource_version != version:
            return None
        return known if not ref.uid or ref.uid == known.ref.uid else None

    def _remember(self, answer: KubeObject) -> None:
        self._answers[answer.ref.uid] = answer
        if len(self._answers) > REMEMBERED:
            del self._answers[next(iter(self._answers))]
