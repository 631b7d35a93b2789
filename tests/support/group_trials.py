"""A group's attempt for tests of preemption: real plugins over a real cache, whose changes stand for the
steps of a what-if.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from berth_host.app.alone import FrameworkAlone
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.model.nominated_pods import NominatedPods
from berth_host.plugins.registry import ClassRegistry
from berth_host.rpc.cycle import Cycle
from berth_host.scheduler.chooser import SmallestName
from berth_host.scheduler.preemption.group_evaluator import Rerun
from berth_host.scheduler.preemption.reprieve import Placed
from berth_host.scheduler.schedule_one import Algorithm, SearchStart
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable


@cache
def _loaded(configuration: str) -> LoadedConfiguration:
    return load_configuration(configuration, source="test", registered=ClassRegistry().points())


class Groups:
    """`GroupObjects` of a mapping."""

    def __init__(self, groups: Iterable[PodGroup] = ()) -> None:
        self.by_key = {group.key: group for group in groups}

    def object(self, key: str) -> PodGroup | None:
        return self.by_key.get(key)


class CacheTrials:
    """`TrialSnapshot` over a cache: every step changes the cache, then updates the snapshot."""

    def __init__(self, alone: FrameworkAlone, groups: Groups) -> None:
        self._alone = alone
        self.groups = groups
        self._away: dict[str, Pod] = {}
        self._steps: list[tuple[str, Pod]] = []

    @property
    def nodes(self) -> NodeTable:
        self._alone.snapshot.update(self._alone.cache)
        return self._alone.snapshot.nodes

    def assume(self, pod: Pod) -> None:
        self._do("add", pod)

    def forget(self, uid: str) -> None:
        self._do("drop", self._there(uid))

    def remove(self, uid: str) -> None:
        pod = self._away[uid] = self._there(uid)
        self._do("drop", pod)

    def restore(self, uid: str) -> None:
        self._do("add", self._away.pop(uid))

    def mark(self) -> int:
        return len(self._steps)

    def revert(self, mark: int) -> None:
        while len(self._steps) > mark:
            step, pod = self._steps.pop()
            (self._alone.cache.remove_pod if step == "add" else self._alone.cache.add_pod)(pod)

    def _there(self, uid: str) -> Pod:
        pod = self._alone.cache.get_pod(uid)
        assert pod is not None
        return pod

    def _do(self, step: str, pod: Pod) -> None:
        (self._alone.cache.add_pod if step == "add" else self._alone.cache.remove_pod)(pod)
        self._steps.append((step, pod))


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
        for pod in running:
            self.alone.add_pod(pod)
        self.root = root
        self.pods = pods
        self.framework = self.alone.framework
        self.snapshot = CacheTrials(self.alone, Groups([root, *groups]))
        self.algorithm = Algorithm(self.framework, SmallestName())
        self._nominated = nominated or {}
        self.placed: list[Placed] = []

    def again(self, cycle: Cycle) -> Cycle:
        return self._cycle(cycle.pod)

    async def rerun(self) -> Rerun:
        mark = self.snapshot.mark()
        self.placed = []
        try:
            for pod in self.pods:
                cycle = self._cycle(pod)
                status = await self.algorithm.find_feasible(cycle, SearchStart())
                if not status.is_success or not len(cycle.feasible):
                    return Rerun(Status.unschedulable(f"{pod.name} does not fit"))
                result = await self.algorithm.prioritize(cycle)
                assert not isinstance(result, Status)
                self.snapshot.assume(pod.on_node(result.node_name))
                self.placed.append(Placed(cycle, result.node_name))
            return Rerun(SUCCESS, self.placed)
        finally:
            self.snapshot.revert(mark)

    def _cycle(self, pod: Pod) -> Cycle:
        cycle = self.alone.cycle(pod)
        cycle.nominated = NominatedPods.of(
            cycle.nodes,
            {
                name: [other for other in pods if other.priority >= pod.priority and other.uid != pod.uid]
                for name, pods in self._nominated.items()
            },
        )
        return cycle
