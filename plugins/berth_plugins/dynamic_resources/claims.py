"""A pod -> its ResourceClaims, checked, with kube-scheduler's error texts.

Used by PreEnqueue, PreFilter and the hints. Source: `dynamicresources.go` (foreachPodResourceClaim) and
`dynamic-resource-allocation/resourceclaim/claim.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth_sdk.errors import BerthError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

CLAIMS: Final = "resource.k8s.io/resourceclaims"
CLAIM_KIND: Final = "resource.k8s.io/ResourceClaim"
MAX_CONSUMERS: Final = 256
"""The maximum of entries in `status.reservedFor` of one claim."""
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


class ClaimError(BerthError):
    """A claim of the pod does not exist, or must not be used."""


def claims_of(pod: Pod, claims: ObjectReader) -> list[KubeObject]:
    """Return the pod's claims in the order of its spec, without entries that need no claim. Raises
    ClaimError.
    """
    found = []
    for entry in pod.spec.get("resourceClaims") or ():
        name = entry.get("resourceClaimName")
        is_generated = name is None
        if is_generated:
            if entry.get("resourceClaimTemplateName") is None:
                raise ClaimError(
                    f'pod "{pod.key}", spec.resourceClaim "{entry.get("name") or ""}":'
                    " pod and claim name must be set"
                )
            wanted = entry.get("name") or ""
            name = next((claim for one, claim in pod.generated_claims if one == wanted), None)
            if name is None:
                raise ClaimError(f'pod "{pod.key}": ResourceClaim not created yet')
            if not name:
                continue
        claim = claims.get(name, pod.namespace)
        if claim is None:
            raise ClaimError(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.get("metadata.deletionTimestamp") is not None:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        if is_generated and not is_controlled_by(claim, pod):
            raise ClaimError(
                f"ResourceClaim {claim.ref.key} was not created for Pod {pod.key} (Pod is not owner)"
            )
        found.append(claim)
    return found


def is_controlled_by(claim: KubeObject, pod: Pod) -> bool:
    """Return True if the pod is the claim's controller."""
    return any(
        owner.get("controller") and owner.get("uid") == pod.uid
        for owner in claim.get("metadata.ownerReferences") or ()
    )


def is_reserved_for(claim: KubeObject, pod: Pod, consumer: Mapping[str, Any] | None = None) -> bool:
    """Return True if the claim's status names the pod as a user, or `consumer`, the pod's group."""
    uids = {pod.uid} if consumer is None else {pod.uid, consumer["uid"]}
    return any(one.get("uid") in uids for one in claim.get("status.reservedFor") or ())


def allocation_of(claim: KubeObject) -> Mapping[str, Any] | None:
    """Return the claim's allocation, or None."""
    allocation: Mapping[str, Any] | None = claim.get("status.allocation")
    return allocation


def results_of(allocation: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the devices of an allocation, as they are written."""
    results: Iterable[Mapping[str, Any]] = (allocation.get("devices") or {}).get("results") or ()
    return results
