"""Equal preemptors share what the dry run found, as long as it holds: an evaluator that keeps outcomes says
the same as one that has seen nothing before, whatever happens in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

import pytest
from berth_host.app.alone import FrameworkAlone
from berth_host.attempt.cycle import Cycle
from berth_host.config.loading import load_configuration
from berth_host.cycle.nominations import Nominations
from berth_host.framework.framework import all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.plugins.registry import ClassRegistry
from berth_host.preemption.dry_run import DryRun
from berth_host.preemption.evaluator import Evaluation, Evaluator, SearchLimits
from berth_host.queue.nominator import Nominator
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_node, make_pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodeUnschedulable}, {name: NodePorts}, {name: NodeResourcesFit}%s,
                {name: PrioritySort}, {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""
LABELS: Final[tuple[dict[str, str], ...]] = ({}, {"app": "web"}, {"app": "db"})
ALL: Final = SearchLimits(100, 0)
NODES: Final = [f"n{i}" for i in range(6)]


class OneOffset:
    """A chooser whose searches all start at the same node."""

    def __init__(self) -> None:
        self.start = 0

    def pick(self, tied: Any) -> int:
        return int(min(range(len(tied.names)), key=tied.names.__getitem__))

    def offset(self, count: int) -> int:
        return self.start % count

    def order(self, count: int) -> list[int]:
        return list(range(count))

    def of_placement(self, name: str) -> OneOffset:
        return self


class Everybody:
    """Every pod exists, and none is preempting."""

    def current(self, pod: Pod) -> Pod | None:
        return pod

    def is_preempting(self, uid: str) -> bool:
        return False

    def pod(self, key: str) -> Pod | None:
        return make_pod(key.split("/")[1])

    def pod_by_uid(self, uid: str) -> Pod | None:
        return None


class World:
    """A cluster that changes, and an evaluator that lives as long as it does."""

    def __init__(self, more_plugins: str = "") -> None:
        text = CONFIGURATION % more_plugins
        self.alone = FrameworkAlone(
            load_configuration(text, source="test", registered=ClassRegistry().points())
        )
        self.cache = self.alone.cache
        self.budgets = ObjectStore()
        self.chooser = OneOffset()
        self.nominator = Nominator(Everybody())
        self.nominations = Nominations(self.nominator.columns, lambda: 0.0)
        self.kept = self.evaluator()
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Any] = {}
        self.serial = 0

    def evaluator(self) -> Evaluator:
        return Evaluator(self.chooser, self.budgets, Everybody())

    # --- what happens --------------------------------------------------------------------------

    def set_node(self, name: str, cpu: int, pods: int, unschedulable: bool = False) -> None:
        node = make_node(name, cpu=str(cpu), pods=pods, unschedulable=unschedulable)
        if name in self.nodes:
            self.cache.update_node(node)
        else:
            self.cache.add_node(node)
        self.nodes[name] = node

    def remove_node(self, name: str) -> None:
        if name in self.nodes:
            for key in [key for key, pod in self.pods.items() if pod.node_name == name]:
                self.remove_pod(key)
            del self.nodes[name]
            self.cache.remove_node(name)

    def add_pod(self, node: str, **fields: Any) -> None:
        if node not in self.nodes:
            return
        self.serial += 1
        name = f"p{self.serial}"
        pod = make_pod(name, uid=f"uid-{name}", node=node, **fields)
        pod = replace(pod, started_at_s=self.start_s(self.serial % 5))
        self.pods[name] = pod
        self.cache.add_pod(pod)

    def start_s(self, about: int) -> float:
        """No two pods are equally important: which of them leaves is then open."""
        self.serial += 1
        return 1000.0 * about + self.serial

    def update_pod(self, key: str, **fields: Any) -> None:
        old = self.pods[key]
        self.pods[key] = replace(old, **fields)
        self.cache.update_pod(old, self.pods[key])

    def remove_pod(self, key: str) -> None:
        self.cache.remove_pod(self.pods.pop(key))

    def nominate(self, name: str, node: str, cpu: int, priority: int) -> None:
        self.nominator.nominate(make_pod(name, uid=f"uid-{name}", cpu=cpu, priority=priority), node)

    def set_budget(self, labels: dict[str, str], allowed: int) -> None:
        self.serial += 1
        raw = {
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        }
        self.budgets.put(ObjectRef(namespace="default", name="b"), KubeObject.of(raw), self.serial)

    # --- asking --------------------------------------------------------------------------------

    async def both(self, pod: Pod, limits: SearchLimits) -> tuple[Evaluation, Evaluation]:
        """Return the answer of the evaluator that keeps answers, and of one that has seen nothing."""
        cycle = self.alone.cycle(pod)
        cycle.nominated = self.nominations.counted_for(pod, cycle.nodes)
        cycle.statuses = NodeStatuses(cycle.nodes)
        framework = self.alone.framework
        await framework.run_pre_filter(cycle)
        passed = await framework.run_filter(cycle, cycle.statuses, all_rows(cycle.nodes), cycle.nominated)
        await self.check_filter(cycle, cycle.statuses, passed.tolist())
        cycle.statuses.groups[passed] = cycle.statuses.group_of(Status.unresolvable("fits"))
        kept = await self.kept.evaluate(framework, cycle, limits)
        fresh = await self.evaluator().evaluate(framework, cycle, limits)
        self.nominations.release()
        return kept, fresh

    async def check_filter(self, cycle: Cycle, statuses: NodeStatuses, passed: list[int]) -> None:
        """Check that shared verdicts of equal pods equal those of plugins that are called for each pod."""
        fresh, rows = NodeStatuses(cycle.nodes), all_rows(cycle.nodes)
        kept, cycle.kept = cycle.kept, None
        again = await self.alone.framework.run_filter(cycle, fresh, rows, cycle.nominated)
        cycle.kept = kept
        assert passed == again.tolist()
        names = cycle.nodes.names
        assert [statuses.status_of(name) for name in names] == [fresh.status_of(name) for name in names]

    def check(self, pod: Pod, limits: SearchLimits = ALL) -> Evaluation:
        kept, fresh = asyncio.run(self.both(pod, limits))
        assert kept.potential.tolist() == fresh.potential.tolist()
        assert kept.result() == fresh.result()
        assert shown(kept) == shown(fresh)
        if limits is ALL:
            assert reasons(kept) == reasons(fresh)
        return kept


def shown(found: Evaluation) -> list[tuple[str, list[str], int]] | None:
    choice = found.choice
    if choice is None:
        return None
    return [
        (
            choice.node_name(i),
            [pod.name for pod in choice.victims_of(i)],
            int(choice.candidates.violations[i]),
        )
        for i in range(len(choice.candidates))
    ]


def reasons(found: Evaluation) -> dict[str, tuple[str, ...]]:
    names = found.statuses.table.take(found.potential).names
    return {name: found.statuses.status_of(name).reasons for name in names}


def preemptor(cpu: int, priority: int, number: int = 0) -> Pod:
    return make_pod(f"new-{cpu}-{priority}-{number}", uid=f"uid-new-{number}", cpu=cpu, priority=priority)


@dataclass(frozen=True)
class Step:
    """Something that happens to a world; which one, by `what` and numbers that it reads as it likes."""

    what: str
    node: int
    which: int
    amount: int
    priority: int

    def do(self, world: World) -> None:
        node = NODES[self.node]
        keys = sorted(world.pods)
        key = keys[self.which % len(keys)] if keys else None
        match self.what:
            case "pod comes":
                labels = LABELS[self.which % 3]
                world.add_pod(node, cpu=self.amount, priority=self.priority, labels=labels)
            case "pod goes" if key:
                world.remove_pod(key)
            case "pod changes" if key:
                world.update_pod(key, priority=self.priority, started_at_s=world.start_s(self.which))
            case "node changes":
                world.set_node(node, self.amount + 2, 3 + self.which % 4, self.which == 0)
            case "node goes":
                world.remove_node(node)
            case "nominated":
                world.nominate(f"promised-{self.which % 3}", node, self.amount, self.priority + 2)
            case "nominated itself":
                world.nominate(f"new-{self.which % 2}", node, self.amount, 4)
            case "not nominated":
                name = f"promised-{self.which % 3}"
                world.nominator.remove(make_pod(name, uid=f"uid-{name}"))
            case "budget":
                world.set_budget(LABELS[1 + self.which % 2], self.amount - 1)


STEPS: Final = st.builds(
    Step,
    what=st.sampled_from(
        [
            *("pod comes", "pod comes", "pod goes", "pod changes", "node changes", "node goes"),
            *("nominated", "nominated", "nominated itself", "not nominated", "budget"),
        ]
    ),
    node=st.integers(0, len(NODES) - 1),
    which=st.integers(0, 8),
    amount=st.integers(1, 3),
    priority=st.integers(0, 4),
)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    first=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2), st.integers(0, 3)), max_size=14),
    rounds=st.lists(
        st.tuples(st.lists(STEPS, max_size=3), st.sampled_from([0, 0, 0, 1]), st.integers(0, 6)),
        min_size=1,
        max_size=8,
    ),
    limits=st.sampled_from([ALL, SearchLimits(0, 1), SearchLimits(0, 2)]),
)
def test_kept_answer_equals_the_one_that_is_found_anew(
    first: list[tuple[int, int, int]], rounds: list[tuple[list[Step], int, int]], limits: SearchLimits
) -> None:
    world = World()
    for name in NODES:
        world.set_node(name, 3, 4)
    for node, cpu, priority in first:
        world.add_pod(NODES[node], cpu=cpu, priority=priority)
    for steps, kind, start in rounds:
        for step in steps:
            step.do(world)
        if not world.nodes:
            return
        world.chooser.start = start
        world.check((preemptor(3, 4, number=start % 2), preemptor(2, 2))[kind], limits)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes each dry run was about."""
    counts: list[int] = []
    begin = DryRun.__init__

    def counted(self: DryRun, *args: Any) -> None:
        counts.append(len(args[2]))
        begin(self, *args)

    monkeypatch.setattr(DryRun, "__init__", counted)
    return counts


def full_world(more_plugins: str = "") -> World:
    world = World(more_plugins)
    for name in NODES:
        world.set_node(name, 2, 4)
        for _ in range(2):
            world.add_pod(name, cpu=1, priority=1)
    return world


def ask(world: World, pod: Pod) -> Evaluation:
    async def run() -> Evaluation:
        cycle: Cycle = world.alone.cycle(pod)
        cycle.nominated = world.nominations.counted_for(pod, cycle.nodes)
        cycle.statuses = NodeStatuses(cycle.nodes)
        framework = world.alone.framework
        await framework.run_pre_filter(cycle)
        await framework.run_filter(cycle, cycle.statuses, all_rows(cycle.nodes), cycle.nominated)
        world.nominations.release()
        return await world.kept.evaluate(framework, cycle, ALL)

    return asyncio.run(run())


def test_an_equal_preemptor_is_tried_where_something_moved(tried: list[int]) -> None:
    world = full_world()
    ask(world, preemptor(2, 4, number=9))  # the pod that comes first leaves nothing behind
    tried.clear()
    ask(world, preemptor(2, 4))
    ask(world, preemptor(2, 4, number=1))
    assert tried == [6]
    world.remove_pod("p1")
    ask(world, preemptor(2, 4, number=2))
    assert tried == [6, 1]
    world.nominate("promised", "n3", 1, 5)
    ask(world, preemptor(2, 4, number=3))
    assert tried == [6, 1, 1]
    world.set_budget({"app": "web"}, 1)
    ask(world, preemptor(2, 4, number=4))
    assert tried == [6, 1, 1, 6]


def test_a_pod_does_not_count_as_nominated_for_itself(tried: list[int]) -> None:
    world = full_world()
    world.nominate("promised", "n3", 1, 5)
    world.nominate("new-1", "n3", 1, 4)
    ask(world, preemptor(2, 4, number=9))
    tried.clear()
    for number in (0, 1, 0):
        ask(world, preemptor(2, 4, number=number))
    assert tried == [6, 1, 1]


def test_another_kind_of_preemptor_is_tried_everywhere(tried: list[int]) -> None:
    world = full_world()
    ask(world, preemptor(2, 4))
    ask(world, preemptor(1, 4))
    assert tried == [6, 6]


def test_a_plugin_that_looks_at_other_nodes_leaves_nothing_to_share(tried: list[int]) -> None:
    world = full_world(", {name: InterPodAffinity}")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    wishes = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(2):
        pod = make_pod(f"new-{number}", uid=f"uid-{number}", cpu=2, priority=4, spec={"affinity": wishes})
        ask(world, pod)
    assert tried == [6, 6]


def test_nominations_that_cannot_be_compared_share_no_outcome(tried: list[int]) -> None:
    world = full_world()
    promised: dict[str, Sequence[Pod]] = {"n1": [make_pod("promised", uid="u", cpu=1, priority=5)]}

    def counted(pod: Pod, nodes: Any) -> NominatedPods:
        return NominatedPods.of(nodes, promised)

    with mock.patch.object(world.nominations, "counted_for", counted):
        ask(world, preemptor(2, 4))
        ask(world, preemptor(2, 4, number=1))
    assert tried == [6, 6]


def test_victims_of_many_preemptions_are_let_go() -> None:
    world = full_world()
    with mock.patch("berth_host.preemption.kept_outcomes.SPARE_PODS", 4):
        for _ in range(30):
            world.remove_pod(min(world.pods, key=lambda key: int(key[1:])))
            for name in NODES:
                if sum(pod.node_name == name for pod in world.pods.values()) < 2:
                    world.add_pod(name, cpu=1, priority=1)
            world.check(preemptor(2, 4))
    (kept,) = world.kept.kept.by_pods.values()
    assert len(kept.outcomes.pods) <= 4 + 2 * 12 + 12
