"""LowRiskOverCommitment: avoids nodes whose limits exceed what they have, by the measured load.

Called at PreScore and Score. Source: kubernetes-sigs/scheduler-plugins
`pkg/trimaran/lowriskovercommitment`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from berth_plugins.args.findings import integer, mapping
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.arguments import number
from berth_scheduler_plugins.load.beta import distribution
from berth_scheduler_plugins.load.load_plugin import LoadPlugin
from berth_scheduler_plugins.load.pod_amounts import limit, read_spec
from berth_scheduler_plugins.load.rounding import rounded
from berth_scheduler_plugins.load.samples import GPU, Sample

Column = NDArray[np.float64]
_DEFAULT_WINDOW: Final = 5
_DEFAULT_WEIGHT: Final = 0.5
_MOST_OF_VARIANCE: Final = 0.99


@dataclass(slots=True, eq=False)
class _Loads:
    """The last risks by load of one kind, by slot, and what they were computed of (float64[5, slots])."""

    inputs: NDArray[np.float64]
    risks: Column


class LowRiskOverCommitment(LoadPlugin):
    """Scores by two risks: that of the limits on a node, and that of its measured load.

    Arguments: `smoothingWindowSize` (5), a factor of the variance, and `riskLimitWeights` (0.5 each), the
    weight of the risk of the limits by resource, from 0 to 1.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("smoothingWindowSize", "riskLimitWeights")

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: LowRiskOverCommitmentArgs. Raises PluginArgsError."""
        window = integer(args, "smoothingWindowSize", "smoothingWindowSize")
        self._window = window if window > 0 else _DEFAULT_WINDOW
        weights = mapping(args, "riskLimitWeights", "riskLimitWeights") or {}
        self._weights: dict[str, float] = {}
        for name in weights:
            weight = number(weights, name, f"riskLimitWeights.{name}", _DEFAULT_WEIGHT)
            self._weights[name] = weight if 0 <= weight <= 1 else _DEFAULT_WEIGHT
        self._loads: dict[str, tuple[Hashable, _Loads]] = {}
        super().__init__(args, handle)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100. 0: a node without metrics, or a pod without requests and limits."""
        sample = self.used(state)
        asked = {resource: self._asked(pod, resource) for resource in self.kinds.values()}
        if not any(request or most for request, most in asked.values()):
            return np.zeros(len(nodes), dtype=np.int64)
        risk = np.zeros(len(nodes))
        for kind, resource in self.kinds.items():
            request, most = asked[resource]
            if kind != GPU or request:
                risk = np.maximum(risk, self._risks(kind, resource, request, most, sample, nodes))
        there = self.columns.has_metrics(sample, nodes)
        return rounded(np.where(there, (1 - np.clip(risk, 0.0, 1.0)) * MAX_NODE_SCORE, 0.0))

    def _asked(self, pod: Pod, resource: str) -> tuple[int, int]:
        """Return the pod's request for a resource, and its limit, which is at least the request."""
        request = pod.requests.get(resource, 0)
        return request, max(request, read_spec(pod, lambda spec: limit(spec, resource)))

    def _risks(
        self, kind: str, resource: str, request: int, most: int, sample: Sample, nodes: NodeTable
    ) -> Column:
        offered = nodes.allocatable(resource).astype(np.float64)
        before = nodes.requested(resource).astype(np.float64)
        limits_before = self._limits(resource, nodes)
        limits = limits_before + most
        requests = np.minimum(before + request, offered)
        over = limits > offered
        by_limits = np.where(over, limits - offered, 0.0) / np.where(over, limits - requests, 1.0)
        load = self.load(kind, sample, nodes)
        has = offered > 0
        room = np.where(has, offered, 1.0)
        added = self.requests_placed_since(resource, sample, nodes) / room
        mean = np.clip(np.nan_to_num(load.average) + added, 0.0, 1.0)
        deviation = np.nan_to_num(load.deviation)
        by_load = self._by_load(
            kind,
            nodes,
            np.stack(
                [mean, deviation, np.minimum(before, offered) / room, limits_before / room, limits_before]
            ),
        )
        weight = self._weights.get(resource, _DEFAULT_WEIGHT)
        risks = np.clip(weight * by_limits + (1 - weight) * by_load, 0.0, 1.0)
        # A node that has none of the resource is at risk if the pod may use it.
        risks = np.where(has, risks, float(most > 0))
        return np.where(np.isnan(load.average) & np.isnan(load.deviation), 0.0, risks)

    def _limits(self, resource: str, nodes: NodeTable) -> Column:
        """Return float64[n]: the sum of the limits of the pods on each node."""
        pods = nodes.pods
        codes, values = pods.encoded(
            f"LowRiskOverCommitment/{resource}", lambda pod: self._asked(pod, resource)[1]
        )
        amounts, _ = values.numbers(int)
        total = np.bincount(pods.node_index, weights=amounts[codes], minlength=nodes.slot_count)
        return total[nodes.slots].astype(np.float64)

    def _by_load(self, kind: str, nodes: NodeTable, inputs: NDArray[np.float64]) -> Column:
        """Return float64[n], the risks by load; computed for the rows whose inputs changed."""
        identity, known = self._loads.get(kind, (None, None))
        if known is None or identity != nodes.names_identity or known.risks.shape[0] != nodes.slot_count:
            known = _Loads(np.full((len(inputs), nodes.slot_count), np.nan), np.zeros(nodes.slot_count))
            self._loads[kind] = nodes.names_identity, known
        slots = nodes.slots
        moved = np.flatnonzero((known.inputs[:, slots] != inputs).any(axis=0))
        if len(moved):
            rows = slots[moved]
            known.inputs[:, rows] = inputs[:, moved]
            known.risks[rows] = self._computed(*inputs[:, moved])
        return known.risks[slots]

    def _computed(
        self, mean: Column, deviation: Column, requested: Column, limited: Column, limits: Column
    ) -> Column:
        """Return the risk that the load exceeds the requests. All columns but `limits` are fractions."""
        most = _MOST_OF_VARIANCE * mean * (1 - mean)
        variance = np.minimum(deviation * deviation * self._window, most)
        varies = (mean > 0) & (variance > 0)
        # Where the load does not vary, it exceeds the requests or it does not.
        steady = ((mean > 0) & (mean > requested)).astype(np.float64)
        mean, variance = np.where(varies, mean, 0.5), np.where(varies, variance, 0.1)
        below = distribution(requested, mean, variance)
        # The containers cannot use more than their limits: the load is at most that.
        capped = (limited < 1) & (requested <= limited)
        possible = np.where(capped, distribution(limited, mean, variance), 1.0)
        risks = np.where(varies, np.clip(1 - below / np.where(possible > 0, possible, 1.0), 0.0, 1.0), steady)
        return np.where(capped & (limits <= 0), 0.0, risks)
