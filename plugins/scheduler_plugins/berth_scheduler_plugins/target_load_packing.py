"""TargetLoadPacking: packs nodes up to a measured utilisation, and spreads above it.

Called at PreScore and Score. Source: kubernetes-sigs/scheduler-plugins `pkg/trimaran/targetloadpacking`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from berth_plugins.args.findings import Findings, integer, mapping
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import QuantityError
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.load.load_plugin import LoadPlugin
from berth_scheduler_plugins.load.pod_amounts import amount, read_spec
from berth_scheduler_plugins.load.rounding import rounded
from berth_scheduler_plugins.load.samples import CPU, GPU, Prefer, Sample

_DEFAULT_TARGET: Final = 40
_MOST_KNOWN: Final = 100_000


class TargetLoadPacking(LoadPlugin):
    """Scores 100 at `targetUtilization` percent (40), less below it, and less still above it.

    The pod counts with the limits of its containers; without a limit with the request times
    `defaultRequestsMultiplier` ("1.5"), and without both with `defaultRequests` (cpu: 1).
    """

    prefer: ClassVar[Prefer] = Prefer.LAST_NAMED
    own_arguments: ClassVar[tuple[str, ...]] = (
        "targetUtilization",
        "defaultRequests",
        "defaultRequestsMultiplier",
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: TargetLoadPackingArgs. Raises PluginArgsError."""
        findings = Findings()
        target = integer(args, "targetUtilization", "targetUtilization")
        if target > MAX_NODE_SCORE:
            findings.invalid("targetUtilization", target, "must be at most 100 percent")
        multiplier = args.get("defaultRequestsMultiplier") or "1.5"
        try:
            self._multiplier = float(multiplier)
        except (TypeError, ValueError):
            self._multiplier = math.nan
        if not (math.isfinite(self._multiplier) and self._multiplier >= 0):
            findings.invalid(
                "defaultRequestsMultiplier", multiplier, 'must be a number in a string, as "1.5"'
            )
        defaults = mapping(args, "defaultRequests", "defaultRequests")
        try:
            self._default = 1000 if defaults is None else amount(defaults, "cpu") or 0
        except QuantityError as err:
            findings.invalid("defaultRequests.cpu", (defaults or {}).get("cpu"), str(err))
        findings.check()
        self._target = target if target > 0 else _DEFAULT_TARGET
        self._known: dict[str, int] = {}
        """The cpu of pods on nodes that a sample does not show, in milli, by uid."""
        super().__init__(args, handle)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100; with a GPU resource that the pod requests, the lower of both scores."""
        sample = self.used(state)
        missing = self.placed_since(
            sample, nodes, lambda rows: [self._cpu_on_node(one) for one in nodes.pods.several(rows)]
        )
        scores = self._scores(CPU, sample, nodes, self._cpu(pod) + missing)
        gpu = self.kinds.get(GPU)
        asked = pod.requests.get(gpu, 0) if gpu else 0
        if gpu and asked:
            missing = self.requests_placed_since(gpu, sample, nodes)
            scores = np.minimum(scores, self._scores(GPU, sample, nodes, asked + missing))
        return scores

    def _scores(
        self, kind: str, sample: Sample, nodes: NodeTable, added: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        offered = nodes.allocatable(self.kinds[kind]).astype(np.float64)
        average = self.load(kind, sample, nodes).average
        has = (offered > 0) & ~np.isnan(average)
        room = np.where(has, offered, 1.0)
        used = MAX_NODE_SCORE * (np.where(has, average, 0.0) * room + added) / room
        target = float(self._target)
        below = (MAX_NODE_SCORE - target) * used / target + target
        # With a target of 100 no utilisation is between the target and 100.
        above = target * (MAX_NODE_SCORE - used) / max(MAX_NODE_SCORE - target, 1.0)
        found = np.where(used <= target, below, np.where(used <= MAX_NODE_SCORE, above, 0.0))
        return rounded(np.where(has, found, 0.0))

    def _cpu_on_node(self, pod: Pod) -> int:
        found = self._known.get(pod.uid)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[pod.uid] = self._cpu(pod)
        return found

    def _cpu(self, pod: Pod) -> int:
        """Return the cpu that a pod is expected to use, in milli."""
        return read_spec(pod, self._cpu_of_spec)

    def _cpu_of_spec(self, spec: Mapping[str, Any]) -> int:
        total = amount(spec.get("overhead"), "cpu") or 0
        for container in spec.get("containers") or ():
            resources = container.get("resources") or {}
            limit, request = amount(resources.get("limits"), "cpu"), amount(resources.get("requests"), "cpu")
            if limit is not None:
                total += limit
            elif request is not None:
                total += math.floor(request * self._multiplier + 0.5)
            else:
                total += self._default
        return total
