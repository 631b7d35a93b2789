"""The hints of VolumeBinding: whether an event may help a pod that it rejected.

Source: `pkg/scheduler/framework/plugins/volumebinding/volume_binding.go` (isSchedulableAfter...), v1.36.
"""

from __future__ import annotations

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod

from berth_plugins.objects.of_events import as_object
from berth_plugins.volumes.csi_migration import MIGRATED_PLUGINS
from berth_plugins.volumes.records import (
    CLAIM_EVENT,
    CLASS_EVENT,
    CSI_CAPACITY_EVENT,
    CSI_DRIVER_EVENT,
    CSI_NODE_EVENT,
    names_claim,
)
from berth_plugins.volumes.volume_binding.provisioning import tracks_capacity, volume_limit


def may_help(event: ClusterEvent, pod: Pod) -> bool:
    """The hint of one event."""
    new = as_object(event.new)
    if event.resource == CLAIM_EVENT:
        return names_claim(pod, new, ephemeral=True)
    if event.old is None:
        return True
    old = as_object(event.old)
    if event.resource == CLASS_EVENT:
        return (old.get("allowedTopologies") or []) != (new.get("allowedTopologies") or [])
    if event.resource == CSI_NODE_EVENT:
        path = "metadata.annotations"
        before, after = (item.get(path, {}).get(MIGRATED_PLUGINS) or "" for item in (old, new))
        return bool(before != after)
    if event.resource == CSI_DRIVER_EVENT:
        inline = any(
            volume.source == "csi" and volume.details.get("driver") == new.ref.name for volume in pod.volumes
        )
        return inline and tracks_capacity(old) and not tracks_capacity(new)
    if event.resource == CSI_CAPACITY_EVENT:
        before_limit, limit = volume_limit(old), volume_limit(new)
        return limit is not None and (before_limit is None or limit > before_limit)
    return True
