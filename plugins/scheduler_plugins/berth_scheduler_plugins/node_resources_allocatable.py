"""NodeResourcesAllocatable: prefers the nodes that offer the least, or the most, whatever is in use.

Called at Score. Source: kubernetes-sigs/scheduler-plugins `pkg/noderesources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_plugins.args.findings import Findings
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.arguments import refuse_unknown, weighted_resources

_SIGNS: Final = {"Least": -1, "Most": 1}
_DEFAULT: Final = (("cpu", 1 << 20), ("memory", 1))
_NEVER_COUNTED: Final = "pods"
_MAX_INT64: Final = 2**63 - 1


class NodeResourcesAllocatable(Plugin):
    """Scores a node by the weighted mean of what it offers, cpu in milli and all else in base units.

    Arguments: `mode` (`Least`, or `Most`) and `resources` (cpu 1048576, memory 1).
    """

    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.ALLOCATABLE,)
    sign_fields: Sequence[PodField] | None = ()
    events: Sequence[EventInterest] | None = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: NodeResourcesAllocatableArgs. Raises PluginArgsError."""
        super().__init__(args, handle)
        refuse_unknown(args, ("mode", "resources"))
        findings = Findings()
        mode = args.get("mode") or "Least"
        if mode not in _SIGNS:
            findings.invalid("mode", mode, "invalid support ModeType: use Least or Most")
        resources = weighted_resources(args, "resources", "resources") or list(_DEFAULT)
        for i, (name, weight) in enumerate(resources):
            if weight <= 0:
                problem = f"resource weight of {name} should be a positive value, got :{weight}"
                findings.invalid(f"resources[{i}].weight", weight, problem)
        findings.check()
        self._sign = _SIGNS[mode]
        self._weights = dict(resources)  # of a resource that is named twice, the last weight counts
        self._sum = sum(self._weights.values())
        self._counted = tuple(name for name in self._weights if name != _NEVER_COUNTED)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the weighted mean, rounded down; negative for `Least`."""
        offered = nodes.allocatable_of(self._counted)
        weights = [self._weights[name] for name in self._counted]
        most = int(offered.max(initial=0))
        if most * sum(weights) > _MAX_INT64:
            # The products leave int64, and the mean does not: it is at most the largest amount.
            return self._sign * np.array([self._exact(weights, row) for row in offered.T.tolist()])
        total = np.array(weights, dtype=np.int64) @ offered
        return self._sign * (total // self._sum)

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        """Return int64[n]: 0 for the lowest score, 100 for the highest; 0 for all if they are equal."""
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros(len(scores), dtype=np.int64)
        above = scores - lowest
        if highest - lowest > _MAX_INT64 // MAX_NODE_SCORE:
            return np.array([one * MAX_NODE_SCORE // (highest - lowest) for one in above.tolist()])
        return above * MAX_NODE_SCORE // (highest - lowest)

    def _exact(self, weights: Sequence[int], amounts: Sequence[int]) -> int:
        return sum(weight * amount for weight, amount in zip(weights, amounts, strict=True)) // self._sum
