"""Equal pods take Filter and Score in one step, with the decisions and the counts of the longer way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from berth_host.app.alone import FrameworkAlone
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.cycle.attempt import ScheduleResult, SearchStart
from berth_host.cycle.chooser import SeededChooser
from berth_host.cycle.schedule_one import Algorithm
from berth_host.framework.kept.merged_answers import MergedAnswers
from berth_host.framework.kept.one_step import OneStep, Skips, nobody_else_scores
from berth_host.framework.score_table import ScoreTable, WeightedPlugin
from berth_host.framework.scoring import ScoreRoles
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod
from support.asking import NO_HANDLE
from support.by_pods import ByPods
from support.frameworks import local_client
from support.hosts import enabling


class LastNodes(Plugin):
    """Keeps pods off the first node, and prefers the others by their names."""

    depends_on = DependsOn.NODE
    sign_fields = ()

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status | None:
        """By the name."""
        return Status.unschedulable("the first one") if node.name == "n0" else None

    def score(self, state: CycleState, pod: Pod, node: Node) -> int:
        """By the name."""
        return 15 * int(node.name[1:])


PLUGINS = {"LastNodes": LastNodes}
SCOPED = enabling(
    ["LastNodes"],
    "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\nplugins:\n"
    f"- name: LastNodes\n  inProcess: {__name__}:LastNodes\n"
    "  scope: {podSelector: {matchLabels: {last: please}}}\n",
)


class Cluster:
    """Six nodes with the default plugins."""

    def __init__(
        self, configuration: LoadedConfiguration | None = None, *, keep_answers: bool = True
    ) -> None:
        self.alone = FrameworkAlone(configuration, plugins=PLUGINS, keep_answers=keep_answers)
        for number in range(6):
            self.alone.add_node(make_node(f"n{number}", cpu=4, memory="8Gi", pods=9))
        self.algorithm = Algorithm(self.alone.framework, SeededChooser(7))
        self.count = 0

    def place(self, pod: Pod) -> ScheduleResult:
        """Choose a node for the pod, and assume it there."""
        self.count += 1
        one = replace(pod, name=f"p{self.count}", uid=f"p{self.count}")
        result = asyncio.run(self._choose(one))
        self.alone.cache.assume(one.on_node(result.node_name))
        return result

    async def _choose(self, pod: Pod) -> ScheduleResult:
        cycle = self.cycle = self.alone.cycle(pod)
        found = await self.algorithm.find_feasible(cycle, SearchStart())
        assert found.is_success
        result = await self.algorithm.prioritize(cycle)
        assert isinstance(result, ScheduleResult)
        return result


def by_plugin(scores: ScoreTable) -> list[tuple[str, int, list[int], list[int]]]:
    return [(one.plugin, one.weight, one.raw.tolist(), one.normalized.tolist()) for one in scores.plugins]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the uses of the one step, by point."""
    used: Counter[str] = Counter()
    score, judge = OneStep.score, OneStep.filter

    async def scored(self: OneStep, *args: Any) -> ScoreTable | None:
        used["Score"] += 1
        return await score(self, *args)

    async def filtered(self: OneStep, *args: Any) -> Any:
        used["Filter"] += 1
        return await judge(self, *args)

    monkeypatch.setattr(OneStep, "score", scored)
    monkeypatch.setattr(OneStep, "filter", filtered)
    return used


def test_pods_of_two_kinds_are_placed_as_without_kept_answers(steps: Counter[str]) -> None:
    kinds = (make_pod("small", cpu="100m"), make_pod("large", cpu=1))
    kept, asked = Cluster(), Cluster(keep_answers=False)
    for number in range(20):
        one, other = kept.place(kinds[number % 2]), asked.place(kinds[number % 2])
        assert (one.node_name, one.tied.names) == (other.node_name, other.tied.names)
        assert one.scores is not None
        assert other.scores is not None
        assert one.scores.total.tolist() == other.scores.total.tolist()
        assert one.scores.skipped == other.scores.skipped
        assert by_plugin(one.scores) == by_plugin(other.scores)
    # Two pods of each kind are asked about first, and the third makes the step.
    assert steps == {"Filter": 16, "Score": 16}


def test_pods_inside_and_outside_a_scope_are_placed_as_without_kept_answers(steps: Counter[str]) -> None:
    configuration = load_configuration(SCOPED, source="test", registered=ClassRegistry(PLUGINS).points())
    kinds = (make_pod("any", cpu="100m"), make_pod("last", cpu="100m", labels={"last": "please"}))
    kept, asked = Cluster(configuration), Cluster(configuration, keep_answers=False)
    draw = random.Random(5)
    inside = [draw.random() < 0.5 for _ in range(50)]
    for number in inside:
        one, other = kept.place(kinds[number]), asked.place(kinds[number])
        assert (one.node_name, one.tied.names) == (other.node_name, other.tied.names)
        assert one.scores is not None
        assert other.scores is not None
        assert by_plugin(one.scores) == by_plugin(other.scores)
    # The step of the pod before is used for a pod of the same kind, and for no other.
    assert 0 < steps["Score"] <= sum(one is other for one, other in pairwise(inside))


def test_the_step_ends_with_the_scores_that_it_reads() -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.place(make_pod("p", cpu="100m"))
    kept = cluster.cycle.kept
    assert kept is not None
    known = kept.known
    assert isinstance(known, MergedAnswers)
    assert known.step_for(cluster.cycle) is not None
    assert known.roles is not None
    # A pod for which other plugins score has made the kept scores its own.
    known.roles = replace(known.roles)
    assert known.step_for(cluster.cycle) is None


def test_the_step_ends_when_a_node_object_changes(steps: Counter[str]) -> None:
    cluster = Cluster()
    for _ in range(4):
        cluster.place(make_pod("p", cpu="100m"))
    before = steps["Score"]
    assert before
    cluster.alone.add_node(make_node("n0", cpu=4, memory="8Gi", pods=9, labels={"new": "yes"}))
    # The plugins are asked at PreFilter and PreScore; the next pod makes the step anew.
    for _ in range(2):
        cluster.place(make_pod("p", cpu="100m"))
    assert steps["Score"] == before
    cluster.place(make_pod("p", cpu="100m"))
    assert steps["Score"] > before


def test_a_shared_total_is_copied_before_it_changes() -> None:
    cluster = Cluster()
    for _ in range(4):
        scores = cluster.place(make_pod("p", cpu="100m")).scores
    assert scores is not None
    with pytest.raises(ValueError, match="read-only"):
        scores.total[0] = 1
    shared = scores.total
    before = shared.tolist()
    scores.add(np.arange(6))
    assert shared.tolist() == before
    assert scores.total.tolist() == [value + row for row, value in enumerate(before)]
    assert scores.recorded is None


@pytest.mark.parametrize("asked_at", ["PreScore", "Score", ""])
def test_no_step_where_a_plugin_is_asked_for_every_pod(asked_at: str) -> None:
    plugin = WeightedPlugin(local_client(ByPods({}, NO_HANDLE)))
    other = WeightedPlugin(local_client(ByPods({}, NO_HANDLE)))
    rest = (other.client,) if asked_at == "PreScore" else ()
    others = (other,) if asked_at == "Score" else ()
    roles = ScoreRoles((plugin, *others), frozenset(), frozenset(), (plugin, *others), (plugin,), others)
    assert nobody_else_scores(Skips(rest, rest, frozenset()), roles) is (not asked_at)
