"""A group's attempt for tests of preemption: real plugins over a real snapshot."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import cache

from berth_host.app.alone import FrameworkAlone
from berth_host.attempt.cycle import Cycle
from berth_host.cache.pod_groups import PodGroups
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.cycle.attempt import SearchStart
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.schedule_one import Algorithm
from berth_host.model.nominated_pods import NominatedPods
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.plugins.registry import ClassRegistry
from berth_host.preemption.group_evaluator import Rerun
from berth_host.preemption.node_ranks import NodeRanks
from berth_host.preemption.reprieve import Placed
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import SUCCESS, Status


@cache
def _loaded(configuration: str) -> LoadedConfiguration:
    return load_configuration(configuration, source="test", registered=ClassRegistry().points())


class TriedGroup:
    """`GroupAttempt`: places the members one after the other; all must fit."""

    def __init__(
        self,
        configuration: str,
        nodes: Iterable[Node],
        running: Iterable[Pod],
        root: PodGroup,
        pods: Sequence[Pod],
        groups: Iterable[PodGroup] = (),
        nominated: Mapping[str, Sequence[Pod]] | None = None,
    ) -> None:
        self.alone = FrameworkAlone(_loaded(configuration))
        for node in nodes:
            self.alone.add_node(node)
        self.root = root
        self.pods = pods
        self.framework = self.alone.framework
        self.alone.cache.groups = PodGroups(self.alone.cache.generations, composite=True)
        for group in (root, *groups):
            self.alone.cache.groups.put_object(group)
        for pod in running:
            self.alone.add_pod(pod)
        self.snapshot = self.alone.snapshot
        self.snapshot.update(self.alone.cache)
        self.snapshot.hold()
        self.algorithm = Algorithm(self.framework, SmallestName())
        self._nominated = nominated or {}
        self.placed: list[Placed] = []
        self._cycles = 0

    def again(self, cycle: Cycle) -> Cycle:
        return self._cycle(cycle.pod)

    def pre_filter(self, cycle: Cycle) -> Awaitable[PreFilterOutcome]:
        return self.framework.run_pre_filter(cycle)

    async def rerun(self, ranks: NodeRanks | None = None) -> Rerun:
        mark = self.snapshot.mark()
        self.placed = []
        try:
            for pod in self.pods:
                cycle = self._cycle(pod)
                status = await self.algorithm.find_feasible(cycle, SearchStart())
                if not status.is_success or not len(cycle.feasible):
                    return Rerun(Status.unschedulable(f"{pod.name} does not fit"))
                if ranks is not None:
                    cycle.feasible = ranks.cheapest(cycle.nodes, cycle.feasible)
                result = await self.algorithm.prioritize(cycle)
                assert not isinstance(result, Status)
                self.snapshot.assume(pod.on_node(result.node_name))
                if ranks is not None:
                    ranks.condemn(result.node_name)
                self.placed.append(Placed(cycle, result.node_name))
            return Rerun(SUCCESS, self.placed)
        finally:
            self.snapshot.revert(mark)

    def _cycle(self, pod: Pod) -> Cycle:
        self._cycles += 1
        cycle = Cycle(
            f"cycle-{self._cycles}",
            pod,
            self.framework.profile,
            nodes=self.snapshot.nodes,
            version=self.snapshot.version,
        )
        cycle.nominated = NominatedPods.of(
            cycle.nodes,
            {
                name: [other for other in pods if other.priority >= pod.priority and other.uid != pod.uid]
                for name, pods in self._nominated.items()
            },
        )
        return cycle
