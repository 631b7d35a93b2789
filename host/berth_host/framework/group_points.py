"""Runs the points about groups of pods for the plugins of one profile, by the rules of the status codes.

`Framework.groups`. Called by the cycle of a group.
Source: kube-scheduler `framework/runtime/framework.go` (RunPlacementGeneratePlugin, RunPlacementScorePlugins,
RunPlacementFeasiblePlugin, RunPodGroupPostFilterPlugins), v1.37. Two differences: any plugin may take part in
PlacementFeasible, several too; and any plugin may normalise its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kept.follows import BySignature
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, Placement, PlacementProgress
from berth_sdk.results import PodGroupPostFilterResult, Trial
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import CycleEnd
from berth_host.attempt.group_cycle import GroupCycle, PlacementCycle
from berth_host.framework.group_signature import OF_NODES, OF_ROWS, group_signature, writes
from berth_host.framework.score_table import WeightedPlugin
from berth_host.metrics.points import PointTimes
from berth_host.metrics.series import instant_s
from berth_host.rpc.client import PluginClient

_JOINT = "/"
"""Between the names of placements that are merged."""
_BY_PROGRESS: Final = "feasible_by_progress"
_Generated: TypeAlias = tuple[tuple[str, NDArray[np.intp]], ...]
_MOST_GENERATED: Final = 64
"""The most answers to PlacementGenerate that are kept."""
MAX_TRIES = 32
"""The most what-ifs in one call of PodGroupPostFilter."""


class Trials(Protocol):
    """The questions about a group that the host answers by a trial. The snapshot is the same afterwards."""

    def reached_pre_filter(self, plugin: str) -> bool:
        """Return True if PreFilter of some member got as far as a plugin."""
        ...

    async def run_without(self, removed: Sequence[Pod]) -> Trial:
        """Place the group in the snapshot without some pods. Raises HandleError for a pod on no node."""
        ...

    async def preempt(self) -> PodGroupPostFilterResult:
        """Run the host's own preemption for the group."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlacementScores:
    """The scores of one plugin (int64[n]) for the n placements: as answered, and after normalisation."""

    plugin: str
    weight: int
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PlacementTotals:
    """The scores of n placements. `total`: the sum of score times weight."""

    total: NDArray[np.int64]
    plugins: tuple[PlacementScores, ...]


class OpenTries:
    """`berth_sdk.results.Tries` of one call of PodGroupPostFilter: at most MAX_TRIES, one at a time."""

    def __init__(self, cycle: GroupCycle, plugin: str, trials: Trials) -> None:
        self.cycle_id = cycle.cycle_id
        self.plugin = plugin
        self._cycle = cycle
        self._trials = trials
        self._left = MAX_TRIES
        self._is_trying = False

    @property
    def reached_pre_filter(self) -> bool:
        """True if PreFilter of some member got as far as this plugin in the cycle."""
        return self._trials.reached_pre_filter(self.plugin)

    @property
    def refusal(self) -> str:
        """Why no try can be made now; empty if one can."""
        if self._is_trying:
            return "another try of this call of PodGroupPostFilter runs: wait for its outcome"
        if not self._left:
            return f"this call of PodGroupPostFilter has made its {MAX_TRIES} tries: answer it"
        return ""

    async def schedule(self, removed: Sequence[Pod]) -> Trial:
        """Place the group without the pods `removed`. Raises HandleError, as `Tries` says."""
        with self._one_try():
            return await self._trials.run_without(removed)

    async def preempt(self) -> PodGroupPostFilterResult:
        """Run the host's own preemption for the group. Raises HandleError, as `Tries` says."""
        with self._one_try():
            return await self._trials.preempt()

    @contextmanager
    def _one_try(self) -> Iterator[None]:
        """Count a try, which lasts for the block. Raises HandleError if none can be made."""
        if self._cycle.part(self.plugin).open_call is not ExtensionPoint.POD_GROUP_POST_FILTER:
            raise HandleError(f"no PodGroupPostFilter of {self.plugin} is open in cycle {self.cycle_id}")
        if self.refusal:
            raise HandleError(self.refusal)
        self._left -= 1
        self._is_trying = True
        try:
            yield
        finally:
            self._is_trying = False


class GroupPoints:
    """The plugins of one profile at the points about groups. Each point is measured."""

    def __init__(
        self,
        plugins: Mapping[ExtensionPoint, Sequence[WeightedPlugin]],
        times: PointTimes,
        served: Sequence[PluginClient],
        patches: Callable[[PluginClient, CycleRecord, PodGroupPostFilterResult], PodGroupPostFilterResult],
        *,
        keeps: bool = False,
    ) -> None:
        """Prepare the points.

        Args:
            served: The served plugins of the profile.
            patches: Checks and keeps the patches of an answer.
            keeps: Keep answers for later groups.
        """
        self._keeps = keeps
        self._generated: BySignature[_Generated] = BySignature(_MOST_GENERATED)
        self._plugins = plugins
        self._times = times
        self._served = served
        self._patches = patches
        self._tries: OpenTries | None = None

    @property
    def open_tries(self) -> OpenTries | None:
        """The what-ifs of the call of PodGroupPostFilter that is open; None: no call is open."""
        return self._tries

    def has(self, point: ExtensionPoint) -> bool:
        """Return True if a plugin is configured at the point."""
        return bool(self._plugins.get(point))

    def end_cycle(self, cycle: GroupCycle, outcome: CycleEnd) -> None:
        """Let every served plugin that knows the cycle drop its states of the group and of its placements."""
        for client in self._served:
            for record in (*cycle.below, cycle):
                # A call about a pod has brought the cycles above it, too.
                record.part(client.name).instance = record.instance(client.name)
                client.end_cycle(record, outcome)

    async def run_placement_generate(
        self, cycle: GroupCycle, parent: Placement, *, merges: bool = False
    ) -> Sequence[Placement] | Status:
        """Return the placements to try in `parent`; `parent` alone where no plugin divides it.

        A Status is the plugin's rejection or error. `merges`: each plugin divides `parent`, as in 1.38, and
        the placements are the intersections; else the first plugin that takes part does.
        """
        started_s = instant_s()
        asked = self._asked(cycle, ExtensionPoint.PLACEMENT_GENERATE)
        found: Sequence[Placement] | Status = [parent]
        if merges:
            found = await self._merged(cycle, asked, parent)
        elif asked:
            client = asked[0].client
            found = await self._generate(client, cycle, parent)
            if isinstance(found, Status):
                found = found.with_plugin(client.name)
        code = found.code if isinstance(found, Status) else Code.SUCCESS
        self._times.at[ExtensionPoint.PLACEMENT_GENERATE][code].since(started_s)
        return found

    async def _generate(
        self, client: PluginClient, cycle: GroupCycle, parent: Placement
    ) -> Sequence[Placement] | Status:
        """Return a plugin's placements in `parent`, from the last call about an equal group if no Node object
        has changed since.
        """
        signature = None
        if self._keeps and parent.nodes.is_whole and parent.nodes.is_snapshot:
            signature = group_signature(client, cycle, OF_NODES)
        if signature is None:
            return await client.placement_generate(cycle, parent)
        self._generated.as_of(parent.nodes.node_version)
        key = client.name, parent.name, signature
        known = self._generated.get(key)
        if known is not None:
            columns = parent.nodes.columns
            return [Placement(name, NodeTable(columns, slots)) for name, slots in known]
        found = await client.placement_generate(cycle, parent)
        if isinstance(found, Status) or client.is_failing or writes(cycle, client.name):
            return found
        if _may_be_kept(found, parent):
            self._generated.keep(key, tuple([(one.name, one.nodes.slots) for one in found]))
        return found

    async def _merged(
        self, cycle: GroupCycle, plugins: Sequence[WeightedPlugin], parent: Placement
    ) -> Sequence[Placement] | Status:
        """Return the intersections of what each plugin makes of `parent`; see `run_placement_generate`."""
        whole = Placement("", parent.nodes)
        divisions: list[Sequence[Placement]] = []
        for plugin in plugins:
            client = plugin.client
            found = await self._generate(client, cycle, whole)
            if not isinstance(found, Status):
                found = _checked(found)
            if isinstance(found, Status):
                return found.with_plugin(client.name)
            if _divides(found, whole):
                divisions.append(found)
        # Only now, as in kube-scheduler: what any of the plugins rejects counts before an empty intersection.
        merged: Sequence[Placement] = divisions[0] if divisions else [parent]
        for found in divisions[1:]:
            merged = _intersections(merged, found)
            if not merged:
                return Status.unschedulable("no feasible merged placements found")
        return merged

    async def run_placement_feasible(
        self, one: PlacementCycle, step: PlacementProgress, *, is_list: bool = False
    ) -> Status:
        """Return SUCCESS if the group is complete with the members of this step.

        UNSCHEDULABLE and errors of the first plugin that answers so end it. WAIT counts if no later plugin
        rejects or fails. Without a plugin: SUCCESS. `is_list`: profiles list the plugins, as in 1.38. Then
        the last WAIT counts, not the first one, and the text of an error names the point.
        """
        started_s = instant_s()
        status = SUCCESS
        for plugin in self._asked(one, ExtensionPoint.PLACEMENT_FEASIBLE):
            answer = await plugin.client.placement_feasible(one, step)
            if answer.code is Code.WAIT:
                if status.is_success or is_list:
                    status = answer.with_plugin(plugin.client.name)
            elif not answer.is_success:
                if is_list and answer.code is Code.ERROR:
                    answer = Status.error(f"running PlacementFeasible plugin: {answer.message}")
                status = answer.with_plugin(plugin.client.name)
                break
        self._times.at[ExtensionPoint.PLACEMENT_FEASIBLE][status.code].since(started_s)
        return status

    def feasible_by_progress(self, cycle: GroupCycle) -> bool:
        """Return True if PlacementFeasible follows from the group and the progress alone: every plugin that
        is asked says so, and is in process.
        """
        asked = self._asked(cycle, ExtensionPoint.PLACEMENT_FEASIBLE)
        runtimes = [one.client.local for one in asked]
        return all(one is not None and getattr(one.plugin, _BY_PROGRESS, False) for one in runtimes)

    async def run_placement_score(
        self, cycle: GroupCycle, tried: Sequence[PlacementCycle]
    ) -> PlacementTotals | Status:
        """Return the scores of feasible placements, each with its `assignments`. A Status is an error."""
        started_s = instant_s()
        found = await self._placement_score(cycle, tried)
        code = found.code if isinstance(found, Status) else Code.SUCCESS
        self._times.at[ExtensionPoint.PLACEMENT_SCORE][code].since(started_s)
        return found

    async def _placement_score(
        self, cycle: GroupCycle, tried: Sequence[PlacementCycle]
    ) -> PlacementTotals | Status:
        total = np.zeros(len(tried), dtype=np.int64)
        scores: list[PlacementScores] = []
        for plugin in self._asked(cycle, ExtensionPoint.PLACEMENT_SCORE):
            client = plugin.client
            raw: NDArray[np.int64] | None = np.zeros(len(tried), dtype=np.int64)
            key = group_signature(client, cycle, OF_ROWS) if self._keeps else None
            for row, one in enumerate(tried):
                kept = None if key is None else one.kept_scores
                known = None if kept is None else kept.get((client.name, key))
                if known is not None and raw is not None:
                    raw[row] = known
                    continue
                scored = await client.placement_score(one)
                if scored is None:
                    raw = None
                    break
                if not scored.status.is_success:
                    return scored.status
                if raw is not None:
                    raw[row] = scored.score
                if kept is not None and not client.is_failing and not writes(one, client.name):
                    kept[client.name, key] = scored.score
            if raw is None:
                continue
            final: NDArray[np.int64] | Status | None = raw
            if client.normalizes_placements(cycle):
                final = await client.normalize_placement_score(cycle, raw, [one.placement for one in tried])
            if isinstance(final, Status):
                return final
            if final is None:
                continue
            scores.append(PlacementScores(client.name, plugin.weight, raw, final))
            total += final * plugin.weight
        return PlacementTotals(total, tuple(scores))

    async def run_pod_group_post_filter(
        self, cycle: GroupCycle, trials: Trials
    ) -> tuple[str, PodGroupPostFilterResult]:
        """Run PodGroupPostFilter; return (plugin, result) of the plugin that ends it, else why none helps.

        `trials`: what plugins may ask for.
        """
        started_s = instant_s()
        plugin, result = await self._post_filter(cycle, trials)
        self._times.at[ExtensionPoint.POD_GROUP_POST_FILTER][result.status.code].since(started_s)
        return plugin, result

    async def _post_filter(self, cycle: GroupCycle, trials: Trials) -> tuple[str, PodGroupPostFilterResult]:
        reasons: list[str] = []
        first = ""
        for plugin in self._asked(cycle, ExtensionPoint.POD_GROUP_POST_FILTER):
            client = plugin.client
            first = first or client.name
            self._tries = OpenTries(cycle, client.name, trials)
            try:
                result = await client.pod_group_post_filter(cycle, self._tries)
            finally:
                self._tries = None
            result = self._patches(client, cycle, result)
            status = result.status
            if status.code in (Code.SUCCESS, Code.UNSCHEDULABLE_AND_UNRESOLVABLE):
                return client.name, result
            if not status.is_rejected:
                text = f'error in "{client.name}" PodGroupPostFilter plugins: {status.message}'
                return client.name, PodGroupPostFilterResult(Status(Code.ERROR, (text,), client.name))
            reasons.extend(status.reasons)
        return first, PodGroupPostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons), first))

    def _asked(self, cycle: CycleRecord, point: ExtensionPoint) -> Sequence[WeightedPlugin]:
        """Return the plugins to call about the cycle's group, in order."""
        return [
            plugin
            for plugin in self._plugins.get(point, ())
            if plugin.client.always_asked_at(point)
            or (
                point in plugin.client.descriptor_in(cycle).points and _in_scope(plugin.client, cycle.subject)
            )
        ]


def _may_be_kept(found: Sequence[Placement], parent: Placement) -> bool:
    """Return True for placements of the snapshot's nodes, none of which is `parent` itself."""
    return all(one.nodes.is_snapshot and one.nodes is not parent.nodes for one in found)


def _checked(found: Sequence[Placement]) -> Sequence[Placement] | Status:
    """Return a plugin's placements if they can be merged with those of others, else why not."""
    if not found:
        return Status.unschedulable("no feasible placements found")
    for one in found:
        if _JOINT in one.name:
            return Status.error(f'placement name "{one.name}" must not contain "{_JOINT}"')
    return found


def _divides(found: Sequence[Placement], parent: Placement) -> bool:
    """Return True unless a plugin answered with the parent itself."""
    return len(found) > 1 or found[0].name != parent.name or len(found[0].nodes) != len(parent.nodes)


def _intersections(some: Sequence[Placement], others: Sequence[Placement]) -> list[Placement]:
    """Return the intersection of each pair that has common nodes, with the nodes in the order of `some`."""
    merged: list[Placement] = []
    for one in some:
        for other in others:
            rows = np.flatnonzero(np.isin(one.nodes.slots, other.nodes.slots))
            if len(rows):
                merged.append(Placement(f"{one.name}{_JOINT}{other.name}", one.nodes.take(rows)))
    return merged


def _in_scope(client: PluginClient, group: GroupView) -> bool:
    """Return True if the plugin is called about the group: about one of its pods, or if it has none."""
    pods = list(_pods(group))
    return not pods or any(client.in_scope(pod) for pod in pods)


def _pods(group: GroupView) -> Sequence[Pod]:
    return [*group.pods, *(pod for child in group.children for pod in _pods(child))]
