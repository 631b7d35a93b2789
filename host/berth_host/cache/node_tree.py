"""`NodeTree`: the order in which nodes are visited, zones taking turns.

Kept by `Cache`; the snapshot asks for the order when its set of nodes changed.
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
    """The key of a zone: region and zone, "" without both. The older label wins where it is set."""
    region, zone = _first(labels, _REGION), _first(labels, _ZONE)
    return f"{region}:\x00:{zone}" if region or zone else ""


def _first(labels: Mapping[str, str], keys: tuple[str, str]) -> str:
    old, new = keys
    return labels[old] if old in labels else labels.get(new, "")


class NodeTree:
    """Zones by first appearance; in a zone, nodes in the order in which they came."""

    __slots__ = ("_zone_of", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def put(self, node: Node) -> None:
        """A node came or changed; a node that changed its zone comes last in the new zone."""
        zone = zone_key(node.labels)
        old = self._zone_of.get(node.name)
        if old == zone:
            return
        if old is not None:
            self.remove(node.name)
        self._zones.setdefault(zone, {})[node.name] = None
        self._zone_of[node.name] = zone

    def remove(self, name: str) -> None:
        """A node left; a zone goes with its last node."""
        zone = self._zone_of.pop(name, None)
        if zone is None:
            return
        names = self._zones[zone]
        del names[name]
        if not names:
            del self._zones[zone]

    def names(self) -> list[str]:
        """The first node of each zone, then the second of each, and so on."""
        zones = [list(names) for names in self._zones.values()]
        if len(zones) == 1:
            return zones[0]
        longest = max(map(len, zones), default=0)
        return [zone[turn] for turn in range(longest) for zone in zones if turn < len(zone)]
