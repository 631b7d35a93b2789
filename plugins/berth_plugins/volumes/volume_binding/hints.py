"""The hints of VolumeBinding: whether an event may help a pod that the plugin rejected.

Source: `pkg/scheduler/framework/plugins/volumebinding/volume_binding.go` (isSchedulableAfter...), v1.36.
"""

from __future__ import annotations

from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

from berth_plugins.objects.of_events import as_object, as_pod, may_give_reservation_back
from berth_plugins.volumes.csi_migration import MIGRATED_PLUGINS
from berth_plugins.volumes.records import (
    CLAIM_EVENT,
    CLASS_EVENT,
    CSI_CAPACITY_EVENT,
    CSI_DRIVER_EVENT,
    CSI_NODE_EVENT,
    claim_volumes,
    names_claim,
)
from berth_plugins.volumes.volume_binding.provisioning import limit_nano, tracks_capacity


def may_help(event: ClusterEvent, pod: Pod) -> bool:
    """Return True when Filter may now pass some node."""
    if event.resource == "Pod":
        # Only the plugin's memory has the assumed objects, so only the pod's deletion shows that they were
        # given back.
        other = as_pod(event.old)
        return may_give_reservation_back(other) and bool(claim_volumes(other))
    if event.resource == CSI_DRIVER_EVENT:
        tracks = event.new is not None and tracks_capacity(as_object(event.new))
        return tracks_capacity(as_object(event.old)) and not tracks
    if event.new is None:
        # A CSINode was deleted: volumes of plugins that it had migrated are judged by their own affinity
        # again.
        return bool(_migrated(as_object(event.old)))
    if event.resource == CSI_CAPACITY_EVENT and event.old is not None:
        old, new = as_object(event.old), as_object(event.new)
        if any(old.get(path) != new.get(path) for path in ("nodeTopology", "storageClassName")):
            return True
    return helped_in_1_36(event, pod)


def helped_in_1_36(event: ClusterEvent, pod: Pod) -> bool:
    """Return version 1.36's answer: a CSIDriver counts for inline volumes only."""
    new = as_object(event.new)
    if event.resource == CLAIM_EVENT:
        return names_claim(pod, new, ephemeral=True)
    if event.old is None:
        return True
    old = as_object(event.old)
    if event.resource == CLASS_EVENT:
        return (old.get("allowedTopologies") or []) != (new.get("allowedTopologies") or [])
    if event.resource == CSI_NODE_EVENT:
        return _migrated(old) != _migrated(new)
    if event.resource == CSI_DRIVER_EVENT:
        inline = any(
            volume.source == "csi" and volume.details.get("driver") == new.ref.name for volume in pod.volumes
        )
        return inline and tracks_capacity(old) and not tracks_capacity(new)
    if event.resource == CSI_CAPACITY_EVENT:
        before_limit, limit = limit_nano(old), limit_nano(new)
        return limit is not None and (before_limit is None or limit > before_limit)
    return True


def _migrated(item: KubeObject) -> str:
    annotations = item.get("metadata.annotations") or {}
    return str(annotations.get(MIGRATED_PLUGINS) or "")
