"""`Topology`: a NodeResourceTopology of topology.node.k8s.io/v1alpha2, read for scheduling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.errors import QuantityError
from berth_sdk.quantity import nano_value, resource_units

RESOURCE: Final = "topology.node.k8s.io/noderesourcetopologies"
SINGLE_NUMA_NODE: Final = "single-numa-node"
POD, CONTAINER = "pod", "container"
DEFAULT_MOST_ZONES: Final = 8
_POLICIES: Final = ("none", "best-effort", "restricted", SINGLE_NUMA_NODE)
_LARGEST: Final = 1024
_ZONE: Final = re.compile(r"node-(\d{1,2})")
_MOST_NUMBER: Final = 63
_OLD: Final = {
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, CONTAINER),
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, POD),
    "Restricted": ("restricted", CONTAINER),
    "RestrictedContainerLevel": ("restricted", CONTAINER),
    "RestrictedPodLevel": ("restricted", POD),
    "BestEffort": ("best-effort", CONTAINER),
    "BestEffortContainerLevel": ("best-effort", CONTAINER),
    "BestEffortPodLevel": ("best-effort", POD),
    "None": ("none", CONTAINER),
}
"""Policy and scope of the values of the old field `topologyPolicies`."""
FINGERPRINT: Final = "topology.node.k8s.io/fingerprint"
"""The annotation with the fingerprint of the pods that the object counts."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node. `free`: amounts by resource, cpu in milli. `costs`: distances by the zones' numbers."""

    number: int
    free: Mapping[str, int]
    costs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Topology:
    """The zones of a node by ascending number, and how its kubelet aligns pods.

    `fingerprint`: of the pods that `zones` count; "": not known. `only_exclusive`: the fingerprint has only
    the pods with exclusive resources. `unknown`: a value of an attribute that is not known; "": none.
    """

    policy: str = "none"
    scope: str = CONTAINER
    most_zones: int = DEFAULT_MOST_ZONES
    zones: tuple[Zone, ...] = ()
    fingerprint: str = ""
    only_exclusive: bool = False
    unknown: str = ""


def read_topology(item: Mapping[str, Any]) -> Topology:
    """Return the topology of an object. Values of another form count as missing."""
    attributes = {one.get("name"): str(one.get("value", "")) for one in item.get("attributes") or ()}
    old = item.get("topologyPolicies") or ()
    policy, scope = _OLD.get(str(old[0]), ("none", CONTAINER)) if old else ("none", CONTAINER)
    unknown = ""
    if "topologyManagerPolicy" in attributes:
        if attributes["topologyManagerPolicy"] in _POLICIES:
            policy = attributes["topologyManagerPolicy"]
        else:
            unknown = f"topologyManagerPolicy {attributes['topologyManagerPolicy']!r}"
    if attributes.get("topologyManagerScope") in (POD, CONTAINER):
        scope = attributes["topologyManagerScope"]
    most = attributes.get("topologyManagerMaxNUMANodes", "")
    most_zones = int(most) if most.isdecimal() and len(most) < 10 else 0
    annotations = (item.get("metadata") or {}).get("annotations") or {}
    fingerprint = attributes.get("nodeTopologyPodsFingerprint") or annotations.get(FINGERPRINT) or ""
    zones = [zone for zone in map(_read_zone, item.get("zones") or ()) if zone is not None]
    return Topology(
        policy=policy,
        scope=scope,
        most_zones=min(most_zones, _LARGEST) if most_zones > 1 else DEFAULT_MOST_ZONES,
        zones=tuple(sorted(zones, key=lambda zone: zone.number)),
        fingerprint=fingerprint,
        only_exclusive=attributes.get("nodeTopologyPodsFingerprintMethod") == "with-exclusive-resources",
        unknown=unknown,
    )


def _read_zone(item: Mapping[str, Any]) -> Zone | None:
    number = _number(item.get("name"))
    if item.get("type") != "Node" or number is None:
        return None
    free = {}
    for one in item.get("resources") or ():
        try:
            free[str(one.get("name"))] = resource_units(
                str(one.get("name")), nano_value(one.get("available", 0))
            )
        except QuantityError:
            continue
    costs = {
        to: int(one.get("value", 0))
        for one in item.get("costs") or ()
        if (to := _number(one.get("name"))) is not None
    }
    return Zone(number, free, costs)


def _number(name: object) -> int | None:
    found = _ZONE.fullmatch(str(name))
    return int(found[1]) if found and int(found[1]) <= _MOST_NUMBER else None
