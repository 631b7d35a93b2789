"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings into balance.

Called at PreScore and Score. The score is the pod's change of the spread of the used fractions, 75 for no
change.

Source: `pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings
from berth_plugins.node_resources.strategies import read_resources
from berth_plugins.objects.resource_names import PLAIN, is_counted

_HALF: Final = MAX_NODE_SCORE // 2
_COUNTED: Final = "counted"
_MAX_INT64: Final = 2**63 - 1


class NodeResourcesBalancedAllocation(Plugin):
    """Scores 50..100 by the standard deviation of the used fractions, without the pod and with it."""

    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    depends_on: DependsOn | None = DependsOn.ROW
    reads: Sequence[NodeColumn] | None = (
        NodeColumn.ALLOCATABLE,
        NodeColumn.REQUESTED,
    )
    events: Sequence[EventInterest] | None = ()

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

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the requested amounts."""
        return tuple(pod.requests.items())

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP for a pod that requests none of the resources: it changes no balance."""
        if not any(map(pod.requests.get, self._names)):
            return Status.skip()
        state.write(_COUNTED, self._counted(pod))
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 50..100."""
        names, amounts = state.get_or_make(_COUNTED, lambda: self._counted(pod))
        allocatable = nodes.allocatable_of(names)
        offered = None
        if np.count_nonzero(allocatable) != allocatable.size:
            offered = np.not_equal(allocatable, 0)
            # `_balance` leaves out rows without the resource; 1 avoids a division by zero.
            allocatable = np.where(offered, allocatable, 1)
        # Without the pod and with it, float64[2, k, n].
        requested = nodes.requested_of(names) + amounts
        if requested.size and requested.min() < 0:
            # Both amounts are at least 0, so only a sum that left int64 is negative. It fills any node.
            requested = np.where(requested < 0, _MAX_INT64, requested)
        fractions = np.minimum(requested / allocatable, 1.0)
        without, filled = _balance(fractions, offered)
        # HALF + (HALF + filled - without) / 2, rounded down.
        scores: NDArray[np.int64] = (filled - without + 3 * _HALF) >> 1
        return scores

    def _counted(self, pod: Pod) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return the names of k resources, and int64[2, k, 1]: zeros, and the pod's requests."""
        names = tuple(
            name for name in self._names if is_counted(name) and (pod.requests.get(name, 0) or name in PLAIN)
        )
        amounts = np.zeros((2, len(names), 1), dtype=np.int64)
        amounts[1, :, 0] = [pod.requests.get(name, 0) for name in names]
        return names, amounts


def _balance(fractions: NDArray[np.float64], offered: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Return int64[2, n]: 100 less the standard deviation in percent, over the resources that a node offers.

    `fractions`: float64[2, k, n]. `offered`: bool[k, n]; None: every node has every resource.
    """
    if offered is None:
        return _percent(_deviation(fractions))
    count = fractions.shape[2]
    pattern = np.zeros(count, dtype=np.int64)
    for bit, here in enumerate(offered):
        pattern |= here.astype(np.int64) << bit
    result = np.zeros((2, count), dtype=np.int64)
    for value in np.unique(pattern).tolist():
        rows = np.flatnonzero(pattern == value)
        chosen = [bit for bit in range(len(offered)) if value >> bit & 1]
        result[:, rows] = _percent(_deviation(fractions[:, chosen][:, :, rows]))
    return result


def _deviation(fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[2, n], the standard deviations of float64[2, k, n]."""
    # Added one by one in configured order: another order can change the last bit, and so the truncated score.
    kinds = fractions.shape[1]
    if kinds < 2:
        return np.zeros((2, fractions.shape[2]))
    if kinds == 2:
        half: NDArray[np.float64] = np.abs((fractions[:, 0] - fractions[:, 1]) * 0.5)
        return half
    total = np.zeros((2, fractions.shape[2]))
    for kind in range(kinds):
        total = total + fractions[:, kind]
    mean = total / kinds
    squares = np.zeros((2, fractions.shape[2]))
    for kind in range(kinds):
        squares = squares + (fractions[:, kind] - mean) * (fractions[:, kind] - mean)
    deviation: NDArray[np.float64] = np.sqrt(squares / kinds)
    return deviation


def _percent(deviation: NDArray[np.float64]) -> NDArray[np.int64]:
    return ((1 - deviation) * float(MAX_NODE_SCORE)).astype(np.int64)
