"""The feature gates that bear on scheduling and have no effect here, with what the host does instead.

`feature_gates` accepts such a gate, as the command line of a kube-scheduler may name it, and warns where its
value is not what the host does. `tests/house/test_feature_gates_read.py` finds a gate that is neither read
nor listed here.

Source: `pkg/scheduler` and `cmd/kube-scheduler` of kubernetes v1.36.2, v1.37.2 and v1.38.0-beta.0, for what
each gate changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FASTER: Final = "it changes how kube-scheduler works inside, and no decision"

UNREAD_GATES: Final[Mapping[str, str]] = {
    "ComponentFlagz": "the secure port always serves /flagz",
    "ComponentStatusz": "the secure port always serves /statusz",
    "CoordinatedLeaderElection": "replicas always compete for the Lease themselves",
    "DRAConsumableCapacity": "parts of devices are always allocated",
    "DRADerivedAttributes": "attributes that are derived from others are not read",
    "DRADeviceCompatibilityGroups": "compatibility groups of devices are not read",
    "DRADeviceTaints": "taints of devices always count",
    "DRAExtendedResource": "device classes always provide extended resources",
    "DRAListTypeAttributes": "attributes that are lists are not read",
    "DRANodeAllocatableResources": "devices never count as CPU or memory of their node",
    "DRAOptionalNodeOperations": "devices without operations on the node are allocated as any other",
    "DRAPartitionableDevices": "shared counters of devices always count",
    "DRAPrioritizedList": "the alternatives of a request are always tried",
    "InPlacePodLevelResourcesVerticalScaling": "resizes of a pod's own resources always count",
    "InPlacePodVerticalScalingSchedulerPreemption": "a deferred resize preempts no pod",
    "InterPodAffinityHostnameFastPath": _FASTER,
    "NominatedNodeNameForExpectation": "the nominated node is always written before a pod waits to be bound",
    "OpportunisticBatching": _FASTER,
    "PodLevelResources": "resources of a pod as a whole always count",
    "SchedulerAsyncAPICalls": "calls to the API server are always made in the background",
    "SchedulerAsyncPreemption": "victims are always evicted in the background",
    "SchedulerPopFromBackoffQ": "an idle scheduler always takes pods out of the backoff queue early",
    "WorkloadAwarePreemption": "version 1.36 schedules the members of a group as single pods here",
}
"""By gate: why its value makes no difference."""

NOT_READ_BY_SCHEDULERS: Final = (
    "ClearingNominatedNodeNameAfterBinding",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
)
"""Gates that the API server alone reads, although they are about fields of scheduling."""


def unread_warnings(values: Mapping[str, bool], defaults: Mapping[str, bool]) -> list[str]:
    """Return a warning for each gate whose value is not the default and has no effect.

    `values`: the gates in effect; `defaults`: those of the version, without gates that it lacks.
    """
    return [
        f"feature gate {name}={str(values[name]).lower()} has no effect: {why}; leave the gate out"
        for name, why in sorted(UNREAD_GATES.items())
        if name in defaults and values[name] != defaults[name]
    ]
