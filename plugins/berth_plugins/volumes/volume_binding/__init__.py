"""VolumeBinding: the nodes that the pod's claims allow, and binding of claims that wait for a node.

    plugin        the extension points                    hints       the events that may help
    claims        the pod's claims, sorted by state       finding     Filter: verdicts, and the volumes found
    volumes       PersistentVolumes by class, matching    groups      sets of nodes, by selector
    provisioning  whether a volume can be provisioned     scoring     StorageCapacityScoring
    assuming      assumed objects, not written yet        binding     PreBind: patches, and the wait

Source: `pkg/scheduler/framework/plugins/volumebinding/`, v1.36.
"""

from berth_plugins.volumes.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
