"""TopologyPlacementGenerator: the nodes by the value of a topology label, as placements for a group.

Called at PlacementGenerate. A group with members on nodes stays in their domain.

Source: `pkg/scheduler/framework/plugins/topologyaware/topology_placement.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, Placement
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

_UNKNOWN: Final = "cannot determine domain for already scheduled pods"


class TopologyPlacementGenerator(Plugin):
    """Makes one placement for each value of the group's topology key; a node without the label is in none."""

    needs: Sequence[Need] = (Need.nodes(),)
    depends_on: DependsOn | None = DependsOn.OTHER

    def placement_generate(
        self, state: CycleState, group: GroupView, parent: Placement
    ) -> Sequence[Placement] | Status:
        """Return the domains in `parent`, sorted by value; `parent` itself for a group without constraint."""
        key = group.group.topology_key
        if not key:
            return [parent]
        nodes = parent.nodes
        codes, values = nodes.label(key)
        found = {values.values[code]: code for code in np.unique(codes).tolist() if code}
        domains = {str(value): code for value, code in found.items()}
        taken: set[str] = set()
        for pod in _scheduled(group):
            domain = _domain_of(pod, nodes, key)
            if domain is None:
                return Status.error(f"{_UNKNOWN}: no topology domain found for pod {pod.key}")
            taken.add(domain)
        if len(taken) > 1:
            return Status.error(
                f"{_UNKNOWN}: more than 1 domain found for pod group: {', '.join(sorted(taken))}"
            )
        return [
            Placement(name, nodes.take(np.flatnonzero(codes == code)))
            for name, code in sorted(domains.items())
            if not taken or name in taken
        ]


def _scheduled(group: GroupView) -> Iterator[Pod]:
    """Yield the members on nodes, of the group and of the groups in it."""
    yield from group.scheduled
    for child in group.children:
        yield from _scheduled(child)


def _domain_of(pod: Pod, nodes: NodeTable, key: str) -> str | None:
    node = nodes.node_named(pod.node_name)
    return None if node is None else node.labels.get(key)
