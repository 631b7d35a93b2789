"""A pod -> its claims, sorted by the work that each needs. Called at PreFilter.

Source: `pkg/scheduler/framework/plugins/volumebinding/{volume_binding,binder}.go` (podHasPVCs,
GetPodVolumeClaims), v1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.pod_volume import EPHEMERAL
from berth_sdk.slices import Work
from berth_sdk.status import Status

from berth_plugins.objects.records import Records
from berth_plugins.volumes.records import (
    Claim,
    StorageClass,
    Stores,
    claim_not_found,
    claim_volumes,
    not_owned,
)
from berth_plugins.volumes.volume_binding.assuming import Assumed

UNBOUND_IMMEDIATE: Final = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")
_LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod's claims. `bound`: they have their volume. `waiting`: they get one once a node is chosen."""

    bound: tuple[Claim, ...] = ()
    waiting: tuple[Claim, ...] = ()


def problem_of(pod: Pod, stores: Stores) -> Work[str]:
    """Return why the pod cannot be placed while its claims are as they are. Empty: there is no problem.

    Yields after each claim.
    """
    for volume in claim_volumes(pod):
        claim = stores.claims.get(volume.claim, pod.namespace)
        if claim is None:
            if volume.source == EPHEMERAL:
                return (
                    "waiting for ephemeral volume controller to create the"
                    f' persistentvolumeclaim "{volume.claim}"'
                )
            return claim_not_found(volume.claim)
        if claim.phase == _LOST:
            return (
                f'persistentvolumeclaim "{volume.claim}" bound to non-existent persistentvolume'
                f' "{claim.volume_name}"'
            )
        if claim.deleting:
            return f'persistentvolumeclaim "{volume.claim}" is being deleted'
        problem = not_owned(pod, claim) if volume.source == EPHEMERAL else ""
        if problem:
            return problem
        yield
    return ""


def sorted_claims(
    pod: Pod, claims: Assumed[Claim], classes: Records[StorageClass]
) -> Work[PodClaims | Status]:
    """Return the pod's claims, assumed ones included. Unresolvable where one should be bound already; ERROR
    for a class without a binding mode. Yields after each claim.
    """
    bound: list[Claim] = []
    waiting: list[Claim] = []
    immediate = False
    for volume in claim_volumes(pod):
        yield
        claim = claims.latest(volume.claim, pod.namespace)
        if claim is None:
            key = f"{pod.namespace}/{volume.claim}"
            missing = claims.missing(volume.claim, pod.namespace)
            return Status.error(f'error getting PVC "{key}": {missing}')
        if claim.is_fully_bound:
            bound.append(claim)
            continue
        storage_class = classes.get(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.binding_mode is None:
            return Status.error(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        if storage_class is not None and storage_class.delays_binding and not claim.volume_name:
            waiting.append(claim)
        else:
            immediate = True
    return UNBOUND_IMMEDIATE if immediate else PodClaims(tuple(bound), tuple(waiting))


def all_bound(pod: Pod, claims: Assumed[Claim]) -> Work[bool]:
    """Return True if every claim has its volume now. Yields after each claim."""
    for volume in claim_volumes(pod):
        claim = claims.latest(volume.claim, pod.namespace)
        if claim is None or not claim.is_fully_bound:
            return False
        yield
    return True
