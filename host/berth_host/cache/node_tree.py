"""`NodeTree`: the order in which nodes are visited, in turn from each zone.

Owned by `Cache`; the snapshot reads the order when its set of nodes has changed.
Source: kube-scheduler `backend/cache/node_tree.go` and component-helpers `node/topology/helpers.go`
(GetZoneKey), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.node import Node

_REGION: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_ZONE: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def zone_key(labels: Mapping[str, str]) -> str:
    """Return the key of a node's zone: region and zone, "" without both. The older labels take precedence."""
    region, zone = _first(labels, _REGION), _first(labels, _ZONE)
    return f"{region}:\x00:{zone}" if region or zone else ""


def _first(labels: Mapping[str, str], keys: tuple[str, str]) -> str:
    old, new = keys
    return labels[old] if old in labels else labels.get(new, "")


class NodeTree:
    """The zones in the order of their first node, each with its nodes in the order of their addition."""

    __slots__ = ("_zone_of", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def put(self, node: Node) -> None:
        """Add or update a node; a node that changed its zone becomes the last one of the new zone."""
        zone = zone_key(node.labels)
        old = self._zone_of.get(node.name)
        if old == zone:
            return
        if old is not None:
            self.remove(node.name)
        self._zones.setdefault(zone, {})[node.name] = None
        self._zone_of[node.name] = zone

    def remove(self, name: str) -> None:
        """Remove a node, and its zone with the last node."""
        zone = self._zone_of.pop(name, None)
        if zone is None:
            return
        names = self._zones[zone]
        del names[name]
        if not names:
            del self._zones[zone]

    def names(self) -> list[str]:
        """Return the first node of each zone, then the second of each, and so on."""
        zones = [list(names) for names in self._zones.values()]
        if len(zones) == 1:
            return zones[0]
        longest = max(map(len, zones), default=0)
        return [zone[turn] for turn in range(longest) for zone in zones if turn < len(zone)]
