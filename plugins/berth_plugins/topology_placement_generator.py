"""TopologyPlacementGenerator: the nodes by the value of a topology label, as placements for a group.

Called at PlacementGenerate. A group with members on nodes stays in their domain. Before 1.38 the nodes with
an empty label are a domain, too.

Source: `pkg/scheduler/framework/plugins/topologyaware/topology_placement.go`, v1.37 and v1.38.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import GroupView, Placement
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_plugins.args.gates import NAMED_DOMAINS, is_on

_UNKNOWN: Final = "cannot determine domain for already scheduled pods"


class TopologyPlacementGenerator(Plugin):
    """Makes one placement for each value of the group's topology key; a node without the label is in none."""

    needs: Sequence[Need] = (Need.nodes(),)
    depends_on: DependsOn | None = DependsOn.NODES
    sign_fields: Sequence[PodField] | None = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: only feature gates. Raises PluginArgsError."""
        super().__init__(args, handle)
        self._names_domains = is_on(args, NAMED_DOMAINS, default=True)

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
        domains = {str(value): code for value, code in found.items() if value or not self._names_domains}
        taken: set[str] = set()
        for pod in _scheduled(group):
            domain = _domain_of(pod, nodes, key)
            if domain is None:
                return Status.error(f"{_UNKNOWN}: no topology domain found for pod {pod.key}")
            if not domain and self._names_domains:
                return Status.error(f"{_UNKNOWN}: empty topology domain found for pod {pod.key}")
            taken.add(domain)
        if len(taken) > 1:
            named = [f'"{name}"' if self._names_domains else name for name in sorted(taken)]
            return Status.error(f"{_UNKNOWN}: more than 1 domain found for pod group: {', '.join(named)}")
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
