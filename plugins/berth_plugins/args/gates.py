"""The feature gates that a default plugin reads from its arguments.

The host adds `featureGates: {name: bool}` to the arguments of a default plugin when its command line or its
configuration sets gates, or when it emulates a version of kube-scheduler. KubeSchedulerConfiguration itself
has no such field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.errors import PluginArgsError

KEY = "featureGates"

# Behaviours that not all versions of kube-scheduler have. All are on, unless the host emulates a version that
# does not have them.
IMAGE_VOLUMES = "ImageVolumesCountAsImages"
"""1.37: the number of image volumes counts in the size that gives the highest score."""
ANY_ANTI_TERM_HINTS = "AnyAntiAffinityTermHints"
"""1.37: a pod that matched one of several terms of anti-affinity requeues the pods that it kept away."""
PLACEMENT_MESSAGE = "PreemptionNamesPlacement"
"""1.37: the message of a successful preemption names the node and the number of victims."""
SILENT_DEALLOCATION = "SilentDeallocation"
"""1.37: DynamicResources gives no reason where it has no claim to deallocate."""
STRICT_DEVICE_AMOUNTS = "StrictDeviceAmounts"
"""1.37: a count or an amount of devices that cannot be counted ends the attempt."""
ALL_WITH_FULL_DEVICES = "AllDevicesWithoutRoom"
"""1.37: a request for all devices needs the devices without room too."""
LOCAL_COUNTER_SLICES = "LocalCounterSlices"
"""1.37: a ResourceSlice with counters is only for the nodes that it names."""
SINGLE_DEVICE_CONFIG = "SingleDeviceConfig"
"""1.37: a configuration for several requests of a claim is allocated once."""
ALL_DEVICES_BY_NODE = "AllDevicesByNode"
"""1.38, and a mend of this build: for a request for all devices, a pool that is updated or invalid excludes
its nodes. Off: it ends the attempt.
"""
SHARES_EXCLUDE_WHOLE = "SharesExcludeWholeUse"
"""1.38, and a mend of this build: a device with a live share is not allocated as a whole."""
FULL_CAPACITY_NAMES = "FullCapacityNames"
"""1.38, and a mend of this build: a capacity has one meaning with the driver's name and without it."""
POSITIVE_CAPACITY_REQUESTS = "PositiveCapacityRequests"
"""1.38, and a mend of this build: a request for a negative capacity ends the attempt before it is rounded."""
POSITIVE_STORED_SHARES = "PositiveStoredShares"
"""1.38: a claim that has a negative share of a device ends the attempts of pods that need devices. Off: the
share adds room to the device.
"""
VERSIONS_WITHOUT_BUILD = "VersionsWithoutBuild"
"""1.38, and a mend of this build: versions that differ in their build part are equal for constraints."""
EXACT_NAMESPACES = "ExactNamespaceSelectors"
"""1.37: the namespace selector of an affinity term selects only the namespaces that it matches."""
HINTS_BY_NAMESPACE = "NamespaceLabelsInHints"
"""1.38: hints of InterPodAffinity read the labels of namespaces; an unknown namespace requeues the pod."""
SHRUNK_NODES = "ShrunkNominatedNodes"
"""1.38: a nominated node that shrinks below the pod requeues the pod."""
QUORUM_OF_TREES = "QuorumOfTrees"
"""1.38: the quorum of a tree of pod groups is judged before its members have nodes."""
NAMED_DOMAINS = "NamedTopologyDomains"
"""1.38: nodes whose topology label is empty make no domain for a pod group."""
EMPTY_SPREAD_SELECTORS = "EmptySpreadSelectors"
"""1.38, and a mend of this build: an empty `labelSelector` of a topology spread constraint counts every pod
of the namespace. Off: it counts none, so the constraint has no effect.
"""
EXACT_SCORES = "ExactScores"
"""1.38, and a mend of this build: scores of amounts that leave int64 when they are added or multiplied are
exact. Off: the amounts wrap.
"""
EXACT_VOLUME_SIZES = "ExactVolumeSizes"
"""1.38, and a mend of this build: the size of a claim and a capacity compare exactly. Off: sizes of 2**63
bytes and more wrap.
"""
ATTACHED_ONCE = "AttachedVolumesCountOnce"
"""A mend of this build: a volume that is still attached to a node needs no further room there. Off: it counts
twice, as attached and as new.
"""
EXACT_HINTS = "ExactQueueingHints"
"""A mend of this build: every change that turns the plugin's Filter from no to yes requeues the pod. Off: the
hints of kube-scheduler, which miss some changes.
"""

COMPOSITE_GROUPS = "CompositePodGroup"
"""A gate of kube-scheduler: groups may be parts of composite groups."""


def is_on(args: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return True if the gate is on. Raises PluginArgsError for any value but true and false."""
    gates = args.get(KEY) or {}
    value = gates.get(name, default) if isinstance(gates, Mapping) else gates
    if not isinstance(value, bool):
        raise PluginArgsError(f"{KEY}.{name}: Invalid value: {value!r}: must be true or false")
    return value
