"""`ClaimUsers`: takes a pod whose binding was undone out of the ResourceClaims that are reserved for it, and
deletes the claim that PreBind has made for its extended resources.

In kube-scheduler, DynamicResources does this at Unreserve. A plugin of berth gives back what it has in memory
there and cannot write, so the host does it, for the plugin in process and served alike. An entry for a group
of pods stays: other members may need the claim.
Source: kube-scheduler `dynamicresources.go` (Unreserve), v1.37. A failed write is logged, as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore

from berth_host.cluster.port import ClusterCalls
from berth_host.errors.cluster import ClusterError
from berth_host.framework.binding import claim_names
from berth_host.log import get_logger
from berth_host.metrics.plugin_work import CLAIMS
from berth_host.model.patch_type import PatchType

EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
log = get_logger()


class ClaimUsers:
    """The users of claims. `claims`: the ResourceClaims as the watch shows them."""

    def __init__(self, cluster: ClusterCalls, claims: ObjectStore) -> None:
        self._cluster = cluster
        self._claims = claims

    async def take_out(
        self, pod: Pod, *, may_be_written: bool, written: Iterable[tuple[str, ObjectRef]] = ()
    ) -> None:
        """Remove the pod from its allocated claims, and delete the claim of its extended resources.

        `may_be_written`: PreBind has begun, so the watch may not show yet what it has written: the claims are
        read from the API server. `written`: the objects that PreBind has written, each with its resource.
        """
        names = dict.fromkeys(claim_names(pod))
        others = {ref.name: ref for resource, ref in written if resource == CLAIMS and ref.name not in names}
        for ref in others.values():
            await self._delete_own(pod, ref)
        for name in names:
            ref = ObjectRef(namespace=pod.namespace, name=name)
            try:
                known = self._claims.get(name, pod.namespace)
                claim = await self._cluster.get(CLAIMS, ref) if may_be_written else known
                if claim is not None and _is_used_by(claim, pod):
                    await self._remove(claim, pod)
            except ClusterError as err:
                log.warning("claim.user_stays", pod=pod.key, claim=ref.key, problem=str(err))

    async def _delete_own(self, pod: Pod, ref: ObjectRef) -> None:
        """Delete a claim if it was made for the extended resources of the pod."""
        try:
            claim = await self._cluster.get(CLAIMS, ref)
            if claim is None or not _is_extended_claim_of(claim, pod):
                return
            finalizers = claim.get("metadata.finalizers") or []
            if FINALIZER in finalizers:
                await self._cluster.patch(
                    CLAIMS,
                    claim.ref,
                    {"metadata": {"finalizers": [one for one in finalizers if one != FINALIZER]}},
                    expected_resource_version=claim.ref.resource_version,
                )
            await self._cluster.delete(CLAIMS, claim.ref, same_uid=True)
        except ClusterError as err:
            # The pod's next attempt finds the claim, and deletes it.
            log.warning("claim.stays", pod=pod.key, claim=ref.key, problem=str(err))

    async def _remove(self, claim: KubeObject, pod: Pod) -> None:
        patch = {
            "metadata": {"uid": claim.ref.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
        }
        # By the key of the list: other users may come and go meanwhile.
        await self._cluster.patch(
            CLAIMS,
            ObjectRef(namespace=claim.ref.namespace, name=claim.ref.name, uid=claim.ref.uid),
            patch,
            patch_type=PatchType.STRATEGIC,
            subresource="status",
        )


def _is_extended_claim_of(claim: KubeObject, pod: Pod) -> bool:
    is_extended = (claim.get("metadata.annotations") or {}).get(EXTENDED_ANNOTATION) == "true"
    owners = claim.get("metadata.ownerReferences") or ()
    return is_extended and any(one.get("controller") and one.get("uid") == pod.uid for one in owners)


def _is_used_by(claim: KubeObject, pod: Pod) -> bool:
    status = claim.get("status") or {}
    users = status.get("reservedFor") or ()
    return status.get("allocation") is not None and any(one.get("uid") == pod.uid for one in users)
