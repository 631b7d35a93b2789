"""LoadVariationRiskBalancing: prefers nodes whose measured load is low and steady.

Called at PreScore and Score. Source: kubernetes-sigs/scheduler-plugins
`pkg/trimaran/loadvariationriskbalancing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.arguments import number
from berth_scheduler_plugins.load.load_plugin import LoadPlugin
from berth_scheduler_plugins.load.rounding import rounded
from berth_scheduler_plugins.load.samples import GPU, Sample


class LoadVariationRiskBalancing(LoadPlugin):
    """Scores by mean and deviation of the used fraction. Of several resources, the lowest score counts.

    Arguments: `safeVarianceMargin` (1), a factor of the deviation, and `safeVarianceSensitivity` (1), the
    root that is taken of the deviation; 0: the deviation does not count.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("safeVarianceMargin", "safeVarianceSensitivity")

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: LoadVariationRiskBalancingArgs. Raises PluginArgsError."""
        self._margin = _at_least_0(args, "safeVarianceMargin")
        self._sensitivity = _at_least_0(args, "safeVarianceSensitivity")
        super().__init__(args, handle)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100; 0 for a node without metrics."""
        sample = self.used(state)
        lowest = np.full(len(nodes), np.inf)
        for kind, resource in self.kinds.items():
            asked = pod.requests.get(resource, 0)
            if kind != GPU or asked:
                scores = self._scores(kind, resource, asked, sample, nodes)
                lowest = np.fmin(lowest, scores)
        return rounded(np.where(np.isinf(lowest), 0.0, lowest))

    def _scores(
        self, kind: str, resource: str, asked: int, sample: Sample, nodes: NodeTable
    ) -> NDArray[np.float64]:
        """Return float64[n], 0..100; nan where the resource has no metrics on a node."""
        load = self.load(kind, sample, nodes)
        offered = nodes.allocatable(resource).astype(np.float64)
        has = offered > 0
        room = np.where(has, offered, 1.0)
        used = np.clip(np.nan_to_num(load.average) * offered, 0.0, offered)
        added = asked + self.requests_placed_since(resource, sample, nodes)
        mean = np.clip((used + added) / room, 0.0, 1.0)
        # A node may have the one value without the other: the missing one counts 0.
        deviation = np.clip(np.nan_to_num(load.deviation), 0.0, 1.0)
        if self._sensitivity > 0:
            deviation = deviation ** (1 / self._sensitivity)
        else:
            deviation = np.where(deviation < 1, 0.0, 1.0)
        deviation = np.clip(self._margin * deviation, 0.0, 1.0)
        scores = (1 - (mean + deviation) / 2) * MAX_NODE_SCORE
        known = ~np.isnan(load.average) | ~np.isnan(load.deviation)
        return np.where(known, np.where(has & ~np.isnan(scores), scores, 0.0), np.nan)


def _at_least_0(args: Mapping[str, Any], key: str) -> float:
    value = number(args, key, key, 1.0)
    return value if value >= 0 else 1.0
