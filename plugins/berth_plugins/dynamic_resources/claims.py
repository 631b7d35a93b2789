"""A pod -> its ResourceClaims, checked, with kube-scheduler's error texts.

Used by PreEnqueue, PreFilter and the hints. Source: `dynamicresources.go` (foreachPodResourceClaim) and
`dynamic-resource-allocation/resourceclaim/resourceclaim.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth_sdk.errors import BerthError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_group import POD_GROUP, PodGroup
from berth_sdk.slices import Work

CLAIMS: Final = "resource.k8s.io/resourceclaims"
CLAIM_KIND: Final = "resource.k8s.io/ResourceClaim"
GROUP_API: Final = "scheduling.k8s.io"
MAX_CONSUMERS: Final = 256
"""The maximum of entries in `status.reservedFor` of one claim."""
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


class ClaimError(BerthError):
    """A claim of the pod does not exist, or must not be used."""


def claim_names(pod: Pod) -> set[str]:
    """Return the names of the pod's claims, without those that are still to be made."""
    generated = dict(reversed(pod.generated_claims))
    names: set[str] = set()
    for entry in pod.spec.get("resourceClaims") or ():
        name = entry.get("resourceClaimName")
        names.add(generated.get(entry.get("name") or "", "") if name is None else name)
    return names - {""}


def claims_of(pod: Pod, claims: ObjectReader, *, of_groups: bool = False) -> Work[list[KubeObject]]:
    """Return the pod's claims, each once, in the order of its spec, without entries that need no claim.
    Raises ClaimError.

    `of_groups`: a claim may have been made for the pod's group, too (the gate DRAWorkloadResourceClaims).
    """
    uses = yield from uses_of(pod, claims, of_groups=of_groups)
    return list({id(claim): claim for _, claim in uses}.values())


def uses_of(
    pod: Pod, claims: ObjectReader, *, of_groups: bool = False
) -> Work[list[tuple[Mapping[str, Any], KubeObject]]]:
    """Return (entry of the pod's spec, its claim) for each entry, as `claims_of`: entries may name the same
    claim, which is then looked at once. Raises ClaimError.
    """
    found = []
    generated: dict[str, str] | None = None
    known: dict[tuple[str, bool], KubeObject] = {}
    for entry in pod.spec.get("resourceClaims") or ():
        yield
        name = entry.get("resourceClaimName")
        is_generated = name is None
        if is_generated:
            if entry.get("resourceClaimTemplateName") is None:
                raise ClaimError(
                    f'pod "{pod.key}", spec.resourceClaim "{entry.get("name") or ""}":'
                    " pod and claim name must be set"
                )
            if generated is None:
                # The first status of a name counts.
                generated = dict(reversed(pod.generated_claims))
            name = generated.get(entry.get("name") or "")
            if name is None:
                raise ClaimError(f'pod "{pod.key}": ResourceClaim not created yet')
            if not name:
                continue
        claim = known.get((name, is_generated))
        if claim is not None:
            found.append((entry, claim))
            continue
        claim = claims.get(name, pod.namespace)
        if claim is None:
            raise ClaimError(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.get("metadata.deletionTimestamp") is not None:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        if is_generated and not is_controlled_by(claim, pod):
            group = group_name(pod) if of_groups else ""
            if not group or not _is_controlled_by_group(claim, group):
                owner = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
                raise ClaimError(f"ResourceClaim {claim.ref.key} was not created for Pod {pod.key} ({owner})")
        known[name, is_generated] = claim
        found.append((entry, claim))
    return found


def group_name(pod: Pod) -> str:
    """Return the name of the PodGroup that the pod is a member of; "" for none, and for a group of
    coscheduling.
    """
    kind, _, rest = pod.group_key.partition("/")
    return rest.rpartition("/")[2] if kind == POD_GROUP.lower() else ""


def consumer_of(entry: Mapping[str, Any], claim: KubeObject, group: PodGroup) -> dict[str, Any] | None:
    """Return the group as the consumer of the claim of an entry of a member's spec.

    None: the group has no such claim, so the pod is the consumer.
    """
    is_made = entry.get("resourceClaimTemplateName") is not None
    if (entry.get("name") or "", claim.ref.name) not in group.claims:
        return None
    if is_made != _is_controlled_by_group(claim, group.name):
        # One of the two names the claim, and it was made from the template of the other.
        return None
    return {"apiGroup": GROUP_API, "resource": "podgroups", "name": group.name, "uid": group.uid}


def claims_of_group(group: PodGroup, claims: ObjectReader) -> list[KubeObject]:
    """Return the claims that the group shares and that exist."""
    found = (claims.get(name, group.namespace) for _, name in group.claims if name)
    return [claim for claim in found if claim is not None]


def _is_controlled_by_group(claim: KubeObject, name: str) -> bool:
    """Return True if the claim's controller is the PodGroup of this name. A pod does not know its uid."""
    owner = _controller_of(claim)
    is_group_api = (owner.get("apiVersion") or "").startswith(f"{GROUP_API}/")
    return is_group_api and owner.get("kind") == POD_GROUP and owner.get("name") == name


def _controller_of(claim: KubeObject) -> Mapping[str, Any]:
    """Return the owner reference of the claim's controller; empty for none."""
    owners = claim.get("metadata.ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), {})


def is_controlled_by(claim: KubeObject, pod: Pod) -> bool:
    """Return True if the pod is the claim's controller."""
    return bool(pod.uid) and _controller_of(claim).get("uid") == pod.uid


def is_reserved_for(claim: KubeObject, pod: Pod, *, of_groups: bool = False) -> bool:
    """Return True if the claim's status names the pod as a user, or, with `of_groups`, the pod's group."""
    group = group_name(pod) if of_groups else ""
    return any(
        one.get("uid") == pod.uid or (group and is_group(one) and one.get("name") == group)
        for one in claim.get("status.reservedFor") or ()
    )


def is_group(consumer: Mapping[str, Any]) -> bool:
    """Return True if an entry of `status.reservedFor` is a PodGroup."""
    return consumer.get("apiGroup") == GROUP_API and consumer.get("resource") == "podgroups"


def allocation_of(claim: KubeObject) -> Mapping[str, Any] | None:
    """Return the claim's allocation, or None."""
    allocation: Mapping[str, Any] | None = claim.get("status.allocation")
    return allocation


def results_of(allocation: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the devices of an allocation, as they are written."""
    results: Iterable[Mapping[str, Any]] = (allocation.get("devices") or {}).get("results") or ()
    return results
