"""VolumeZone: the zone and region labels of bound volumes against those of nodes -> verdict.

Called at PreFilter and Filter. Source: `pkg/scheduler/framework/plugins/volumezone/volume_zone.go`, v1.36;
label values: `cloud-provider/volume/helpers/zones.go` (LabelZonesToSet).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, DependsOn, NoConcern, Plugin, PodSensitivity
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, at_once, in_slices
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable

from berth_plugins.objects.of_events import as_object
from berth_plugins.volumes.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from berth_plugins.volumes.records import (
    CLAIM_EVENT,
    CLAIMS,
    CLASS_EVENT,
    CLASSES,
    VOLUME_EVENT,
    VOLUMES,
    WAIT_FOR_FIRST_CONSUMER,
    Stores,
    claim_not_found,
    claim_volumes,
    names_claim,
)

REASON: Final = Status.unresolvable("node(s) had no available volume zone")
NO_CLAIM_NAME: Final = Status.unresolvable("PersistentVolumeClaim had no name")
NO_CLASS: Final = Status.unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
NO_VOLUME_NAME: Final = Status.unresolvable("PersistentVolume had no name")
_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_TODAY: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_TOPOLOGIES: Final = "topologies"
Topologies = list[tuple[str, frozenset[str]]]


class VolumeZone(Plugin):
    """Rejects nodes in another zone or region than a volume of the pod."""

    pod_sensitivity: PodSensitivity | None = PodSensitivity.NONE
    depends_on: DependsOn | None = DependsOn.TABLE
    needs: Sequence[Need] = (
        Need.whole_pod(("volumes",)),
        Need.nodes(),
        Need.objects(CLAIMS),
        Need.objects(VOLUMES),
        Need.objects(CLASSES),
    )
    events: Sequence[EventInterest] | None = (
        EventInterest(CLASS_EVENT, ("add",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add", "update.labels")),
        EventInterest(CLAIM_EVENT, ("add", "update"), Hint.ASK_PLUGIN),
        EventInterest(VOLUME_EVENT, ("add", "update"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._stores = Stores(handle)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Collect the labels of the pod's volumes. Returns SKIP where there are none."""
        if not pod.volumes:
            return Status.skip()
        return in_slices(self._pre_filter(state, pod))

    def _pre_filter(self, state: CycleState, pod: Pod) -> Work[Status]:
        found = yield from self._topologies(pod)
        if isinstance(found, Status):
            return found
        if not found:
            return Status.skip()
        state.write(_TOPOLOGIES, found)
        return Status.success()

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return `NoConcern.CYCLE` without claims to compare; None with them."""
        return None if claim_volumes(pod, ephemeral=False) else NoConcern.CYCLE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the wishes of a pod with claims."""
        return wishes(pod)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """Return unresolvable where a node with any zone or region label lacks a label of a volume, or has
        another value.
        """
        found = state.get(_TOPOLOGIES)
        if found is None:
            found = at_once(self._topologies(pod))
            if isinstance(found, Status):
                return found
        labelled = np.zeros(len(nodes), dtype=np.bool_)
        for key in _KEYS:
            labelled |= nodes.label(key)[0] != 0
        fits = np.ones(len(nodes), dtype=np.bool_)
        for key, zones in found:
            codes, values = nodes.label(key)
            matches = values.members(zones).take(codes)
            if key in _TODAY:
                codes_today, values_today = nodes.label(_TODAY[key])
                matches = np.where(codes != 0, matches, values_today.members(zones).take(codes_today))
            fits &= matches
        return Verdicts.reject_where(labelled & ~fits, REASON)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a class with delayed binding was added, a claim of the pod was added or changed, or
        a volume was added or changed its zone or region.
        """
        item = as_object(event.new)
        if event.resource == CLASS_EVENT:
            return bool(item.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER)
        if event.resource == CLAIM_EVENT:
            return names_claim(pod, item, ephemeral=False)
        if event.old is None:
            return True
        before = as_object(event.old).get("metadata.labels") or {}
        return topologies_of(before) != topologies_of(item.get("metadata.labels") or {})

    def _topologies(self, pod: Pod) -> Work[Topologies | Status]:
        found: Topologies = []
        for volume in claim_volumes(pod, ephemeral=False):
            yield
            if not volume.claim:
                return NO_CLAIM_NAME
            claim = self._stores.claims.get(volume.claim, pod.namespace)
            if claim is None:
                return Status.unresolvable(claim_not_found(volume.claim))
            if not claim.volume_name:
                problem = self._unbound(claim.class_name)
                if problem is not None:
                    return problem
                continue
            bound = self._stores.volumes.get(claim.volume_name)
            if bound is None:
                return Status.unresolvable(f'persistentvolume "{claim.volume_name}" not found')
            found += topologies_of(bound.labels)
        return found

    def _unbound(self, class_name: str) -> Status | None:
        """Return the rejection of an unbound claim. None: the claim waits for its pod, so its volume can be
        in any zone.
        """
        if not class_name:
            return NO_CLASS
        storage_class = self._stores.classes.get(class_name)
        if storage_class is None:
            return Status.unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found')
        if storage_class.binding_mode is None:
            return Status.unresolvable(f'VolumeBindingMode not set for StorageClass "{class_name}"')
        return None if storage_class.delays_binding else NO_VOLUME_NAME


def topologies_of(labels: Mapping[str, str]) -> Topologies:
    """Return (key, values) of a volume's zone and region labels. `__` separates the values. A label with an
    empty value among them is ignored.
    """
    found: Topologies = []
    for key in _KEYS:
        if key in labels:
            values = [value.strip() for value in labels[key].split("__")]
            if all(values):
                found.append((key, frozenset(values)))
    return found
