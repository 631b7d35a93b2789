"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings into balance.

Called at PreScore and Score. The score is how much the pod changes the spread of the used fractions,
75 for no change. Source:
`pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, Plugin, PodSensitivity, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins._findings import Findings
from berth_plugins.resource_names import PLAIN, is_counted
from berth_plugins.scoring_strategies import read_resources

_HALF: Final = MAX_NODE_SCORE // 2


class NodeResourcesBalancedAllocation(Plugin):
    """Scores 50..100 by the standard deviation of the used fractions, without the pod and with it."""

    normalization: ClassVar[ScoreNormalization | None] = ScoreNormalization.NONE
    pod_sensitivity: ClassVar[PodSensitivity] = PodSensitivity.NONE
    depends_on: ClassVar[DependsOn | None] = DependsOn.ROW
    events: ClassVar[Sequence[EventInterest] | None] = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: NodeResourcesBalancedAllocationArgs. Raises PluginArgsError."""
        super().__init__(args, handle)
        resources = read_resources(args, "resources")
        findings = Findings()
        names = [name for name, _ in resources]
        for i, (name, weight) in enumerate(resources):
            if name in names[:i]:
                findings.duplicate(f"resources[{i}].name", name)
            if weight != 1:
                findings.invalid(f"resources[{i}].weight", weight, "must be 1")
        findings.check()
        self._names = tuple(names)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """SKIP for a pod that requests none of the resources: it changes no balance."""
        return Status.success() if any(map(pod.requests.get, self._names)) else Status.skip()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """int64[n], 50..100."""
        without: list[NDArray[np.float64]] = []
        with_pod: list[NDArray[np.float64]] = []
        offered: list[NDArray[np.bool_] | None] = []
        for name in self._names:
            amount = pod.requests.get(name, 0)
            if not is_counted(name) or not (amount or name in PLAIN):
                continue
            allocatable, used = nodes.allocatable(name), nodes.requested(name)
            everywhere = int(np.count_nonzero(allocatable)) == len(nodes)
            here = None if everywhere else np.not_equal(allocatable, 0)
            # Rows without the resource are left out below; 1 keeps the division quiet.
            whole = (allocatable if here is None else np.where(here, allocatable, 1)).astype(np.float64)
            without.append(np.minimum(used / whole, 1.0))
            with_pod.append(np.minimum((used + amount) / whole, 1.0))
            offered.append(here)
        change = _balance(with_pod, offered, len(nodes)) - _balance(without, offered, len(nodes))
        return _HALF + ((_HALF + change) >> 1)


def _balance(
    fractions: Sequence[NDArray[np.float64]], offered: Sequence[NDArray[np.bool_] | None], count: int
) -> NDArray[np.int64]:
    """int64[count]: 100 less the standard deviation in percent, over the resources that a node offers.

    `offered`: bool[count] for each resource, None where every node has it.
    """
    if all(here is None for here in offered):
        return _percent(_deviation(fractions, count))
    pattern = np.zeros(count, dtype=np.int64)
    for bit, here in enumerate(offered):
        pattern |= (np.ones(count, dtype=np.int64) if here is None else here.astype(np.int64)) << bit
    result = np.zeros(count, dtype=np.int64)
    for value in np.unique(pattern).tolist():
        rows = np.flatnonzero(pattern == value)
        chosen = [column[rows] for bit, column in enumerate(fractions) if value >> bit & 1]
        result[rows] = _percent(_deviation(chosen, len(rows)))
    return result


def _deviation(fractions: Sequence[NDArray[np.float64]], count: int) -> NDArray[np.float64]:
    # One addition after the other, in configured order: another order can change the last bit, and with
    # it the truncated score.
    if len(fractions) < 2:
        return np.zeros(count)
    if len(fractions) == 2:
        return np.abs((fractions[0] - fractions[1]) * 0.5)
    total = np.zeros(count)
    for column in fractions:
        total = total + column
    mean = total / len(fractions)
    squares = np.zeros(count)
    for column in fractions:
        squares = squares + (column - mean) * (column - mean)
    return np.sqrt(squares / len(fractions))


def _percent(deviation: NDArray[np.float64]) -> NDArray[np.int64]:
    return ((1 - deviation) * float(MAX_NODE_SCORE)).astype(np.int64)
