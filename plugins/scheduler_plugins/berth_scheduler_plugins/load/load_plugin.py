"""`LoadPlugin`: what the load-aware plugins share: the source, its age, and the pods placed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from berth_plugins.args.findings import Findings
from berth_sdk.clocks import wall_s
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.refresher import Refresher
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.arguments import number, refuse_unknown, text
from berth_scheduler_plugins.load.pod_amounts import NEEDS
from berth_scheduler_plugins.load.samples import CPU, GPU, MEMORY, LoadColumns, Prefer, Sample, SampleColumns
from berth_scheduler_plugins.load.sources import source_of

EVERY_S: Final = 30.0
"""Seconds between two reads of the source."""
MAX_AGE_S: Final = 300.0
"""The default age in seconds above which a sample is not used."""
SETTLING_S: Final = 60.0
"""The last seconds of the measured time, in which a new pod hardly shows in the average."""
SHARED_ARGUMENTS: Final = ("watcherAddress", "metricProvider", "maxMetricsAgeSeconds", "gpuResource")
_NAMED: Final = 5
"""The number of nodes that a note names."""
_SAMPLE: Final = "sample"


class LoadPlugin(Plugin):
    """A plugin that scores nodes by their measured load. Its scores are final.

    Arguments of all of them: `watcherAddress` or `metricProvider`, `maxMetricsAgeSeconds` (300), and
    `gpuResource`, the extended resource whose utilisation counts too ("": none).
    """

    needs: Sequence[Need] = NEEDS
    depends_on: DependsOn | None = DependsOn.OTHER
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    events: Sequence[EventInterest] | None = ()
    prefer: ClassVar[Prefer] = Prefer.AVERAGE
    own_arguments: ClassVar[tuple[str, ...]] = ()
    """The arguments that this plugin alone has."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """Read the arguments, and wait for the first read of the source. Raises PluginArgsError."""
        super().__init__(args, handle)
        refuse_unknown(args, (*SHARED_ARGUMENTS, *self.own_arguments))
        findings = Findings()
        self._max_age_s = number(args, "maxMetricsAgeSeconds", "maxMetricsAgeSeconds", MAX_AGE_S)
        if self._max_age_s <= 0:
            findings.invalid("maxMetricsAgeSeconds", self._max_age_s, "must be greater than 0")
        findings.check()
        gpu = text(args, "gpuResource", "gpuResource")
        self.kinds = {CPU: "cpu", MEMORY: "memory", **({GPU: gpu} if gpu else {})}
        self.columns = SampleColumns(self.kinds, self.prefer)
        self._source = source_of(args)
        self.sample = Refresher(self._source.read, every_s=EVERY_S, limit_s=self._max_age_s)
        self.sample.refresh()

    def close(self) -> None:
        """Close the connections to the source."""
        self.sample.close()
        self._source.close()

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP with the reason where there are no usable metrics, and the nodes that lack them."""
        sample, reason = self._usable()
        if sample is None:
            return Status(Code.SKIP, (reason,))
        state.write(_SAMPLE, sample)
        there = self.columns.has_metrics(sample, nodes) & ~self._is_old(sample, nodes)
        if there.all():
            return Status.success()
        return Status(
            Code.SUCCESS, (self._lacking([nodes.name(row) for row in np.flatnonzero(~there).tolist()]),)
        )

    def used(self, state: CycleState) -> Sample:
        """Return the sample that all scores of this cycle are made of."""
        found: Sample = state.read(_SAMPLE)
        return found

    def load(self, kind: str, sample: Sample, nodes: NodeTable) -> LoadColumns:
        """Return the load of the n nodes of one kind. nan where a node has no metric, or an old one."""
        columns = self.columns.of(kind, sample, nodes)
        old = self._is_old(sample, nodes)
        if not old.any():
            return columns
        return LoadColumns(np.where(old, np.nan, columns.average), np.where(old, np.nan, columns.deviation))

    def placed_since(
        self, sample: Sample, nodes: NodeTable, amount: Callable[[NDArray[np.intp]], Any]
    ) -> NDArray[np.float64]:
        """Return float64[n]: the sum over the pods of each node that the sample does not show.

        A pod that started SETTLING_S before the end of the sample, or later, or that has not started, is not
        in the sample. `amount`: returns an amount for each of these rows of the table of pods.
        """
        pods = nodes.pods
        total = np.zeros(nodes.slot_count)
        if sample.end_s is not None and len(pods):
            # A comparison with nan is false: a pod without a start time is new.
            rows = np.flatnonzero(~(pods.start_time_s <= sample.end_s - SETTLING_S))
            if len(rows):
                sums = np.bincount(pods.node_index[rows], weights=amount(rows), minlength=nodes.slot_count)
                total = sums.astype(np.float64)
        return total[nodes.slots]

    def requests_placed_since(self, resource: str, sample: Sample, nodes: NodeTable) -> NDArray[np.float64]:
        """Return float64[n]: the requests of the pods that the sample does not show."""
        requests = nodes.pods.requests(resource)
        return self.placed_since(sample, nodes, lambda rows: requests[rows])

    def _usable(self) -> tuple[Sample | None, str]:
        """Return the sample; else None, and why there is none."""
        source, sample, error = self._source.address, self.sample.value, self.sample.error
        if sample is None:
            age_s = self.sample.age_s
            since = "no metrics yet" if age_s is None else f"the last metrics are {age_s:.0f} s old"
            return None, f"{since}; {error or f'{source} has not answered yet'}; no node is scored"
        if sample.end_s is None or wall_s() - sample.end_s <= self._max_age_s:
            return sample, ""
        age_s = wall_s() - sample.end_s
        return None, (
            f"the metrics of {source} are {age_s:.0f} s old, and maxMetricsAgeSeconds is {self._max_age_s:g};"
            " no node is scored"
        )

    def _is_old(self, sample: Sample, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes whose own metrics are too old, where the sample says their times."""
        old = np.zeros(len(nodes), dtype=np.bool_)
        before_s = wall_s() - self._max_age_s
        for name, end_s in sample.ends_s.items():
            if end_s < before_s and (row := nodes.position(name)) is not None:
                old[row] = True
        return old

    def _lacking(self, names: Sequence[str]) -> str:
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        are = "1 node has" if len(names) == 1 else f"{len(names)} nodes have"
        return f"{are} no metrics at {self._source.address}, and score 0: {shown}"
