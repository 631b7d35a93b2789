"""Up to Score a pod costs a served plugin one round trip, whatever points it has, and the decisions are those
of the same class in process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_host.attach.configured_places import Place
from berth_host.attempt.cycle import Cycle
from berth_host.framework.answers import Answers, AskEveryone
from berth_host.framework.filtering import all_rows
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.runtime.descriptor import describe
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_pod
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.attached import AttachedHost, attached_host, wanted
from support.frameworks import cycle_of, framework_of

NODES = 9
UP_TO_SCORE = ("PreFilter", "Filter", "SimulateFilter", "PreScore", "Score", "NormalizeScore")
THIRD = Status.unschedulable("every third node")


class Base(Plugin):
    """Machines may be busy: here nothing is too slow to be answered early."""

    answers_early = True
    depends_on: DependsOn | None = DependsOn.OTHER
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX


class Prepares:
    """Its PreFilter leaves something for later points."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        state.write("by", 2 if pod.labels.get("app") == "db" else 1)


class Judges:
    """Every third node is not for it."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.slots % 3 == 0, THIRD)


class PreScores:
    """Its PreScore leaves something for Score."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status | None:
        state.write("plus", 5)
        return Status.skip() if pod.labels.get("app") == "quiet" else None


class Scores:
    """By number, and by what was left."""

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        scores: NDArray[np.int64] = nodes.slots.astype(np.int64)
        scores *= state.get("by", 1)
        scores += state.get("plus", 0)
        return scores


class All(Prepares, Judges, PreScores, Scores, Base):
    """Every point."""


class FilterScore(Judges, Scores, Base):
    """Two points."""


class Simple(Plugin):
    """The same for each node, declaring nothing."""

    answers_early = True

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status | None:
        return THIRD if node.name in ("n0", "n3") else None

    def score(self, state: CycleState, pod: Pod, node: Node) -> int:
        return 10 * int(node.name[1:])


class PreScoreScore(Base):
    """A node's final score depends on the other candidates."""

    normalization: ScoreNormalization | None = ScoreNormalization.PLUGIN

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        state.write("most", int(nodes.slots.max()))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        scores: NDArray[np.int64] = 100 * nodes.slots // max(state.read("most"), 1)
        return scores


class PreFilterFilter(Prepares, Judges, Base):
    """No scores."""


class OnlyScore(Base):
    """One point."""

    normalization: ScoreNormalization | None = ScoreNormalization.PLUGIN

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return 100 - nodes.slots.astype(np.int64)


class Narrows(Judges, PreScores, Scores, Base):
    """It leaves some nodes, one of which there is not."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        return PreFilterResult(eligible=frozenset(["n1", "n3", "n4", "n7", "gone"]))


class Skips(PreScores, Scores, Judges, Base):
    """It skips Filter alone."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return Status.skip()


class ByPods(Prepares, Judges, Scores, Base):
    """Its answers are shared by row in its own process."""

    depends_on: DependsOn | None = DependsOn.ROW

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        return None


class Relative(Prepares, Judges, PreScoreScore):
    """Its scores have to wait until the candidates are known."""


class TwoSteps(Prepares, Judges, PreScores, Scores, Base):
    """It brings its own scores to 0..100."""

    normalization: ScoreNormalization | None = ScoreNormalization.RPC

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        return scores * 100 // max(int(scores.max()), 1)


class Asked(All):
    """It does not want to early answer."""

    answers_early = False


class Here(Plugin):
    """In the host, in front of the others: rejects n8 and gives points."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.slots == 8, Status.unschedulable("not n8"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return np.minimum(nodes.pod_count, 100).astype(np.int64)


@asynccontextmanager
async def served(cls: type, folder: Path) -> AsyncIterator[AttachedHost]:
    """Yield a host with the plugin behind a socket."""
    with PluginServer({cls.__name__: cls}) as server:
        place = Place(endpoint=server.listen(f"unix://{folder / 'p.sock'}"), plugins=(wanted(cls.__name__),))
        async with attached_host(place, node_count=NODES) as host:
            yield host


async def decided(framework: Framework, cycle: Cycle, nominated: NominatedPods = NOBODY) -> list[Any]:
    """All that one pod's attempt comes to, up to the scores."""
    outcome = await framework.run_pre_filter(cycle)
    rows = all_rows(cycle.nodes)
    if outcome.eligible is not None:
        rows = rows[np.isin(cycle.nodes.names, list(outcome.eligible))]
    statuses = NodeStatuses(cycle.nodes)
    passed = await framework.run_filter(cycle, statuses, rows, nominated)
    scores = await framework.run_score(cycle, cycle.nodes.take(passed))
    assert isinstance(scores, ScoreTable)
    by_plugin = [(one.plugin, one.raw.tolist(), one.normalized.tolist()) for one in scores.plugins]
    verdicts = [statuses.statuses[group] for group in statuses.groups]
    return [outcome, passed.tolist(), verdicts, scores.total.tolist(), by_plugin, scores.skipped]


def pods() -> Sequence[Pod]:
    """Three that are the same, and two others."""
    labels: list[dict[str, str]] = [{}, {}, {}, {"app": "db"}, {"app": "quiet"}]
    return [make_pod(f"p{i}", uid=f"u{i}", labels=more) for i, more in enumerate(labels)]


ONE = [
    pytest.param(All, 1, id="PreFilter, Filter, PreScore, Score"),
    pytest.param(FilterScore, 1, id="Filter, Score"),
    pytest.param(Simple, 1, id="Filter, Score, node by node"),
    pytest.param(PreScoreScore, 1, id="PreScore, Score"),
    pytest.param(PreFilterFilter, 1, id="PreFilter, Filter"),
    pytest.param(OnlyScore, 1, id="Score"),
    pytest.param(Narrows, 1, id="leaves some nodes"),
    pytest.param(Skips, 1, id="skips Filter"),
    pytest.param(ByPods, 1, id="shared by row"),
    pytest.param(Relative, 2, id="scores by the other candidates"),
    pytest.param(TwoSteps, 3, id="scores in two steps"),
]


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False], ids=["keep answers", "everyone"])
@pytest.mark.parametrize(("cls", "round_trips"), [*ONE, pytest.param(Asked, 4, id="point by point")])
async def test_a_pod_costs_one_round_trip_and_the_decision_is_the_same(
    cls: type, round_trips: int, keeps: bool, tmp_path: Path
) -> None:
    def answers() -> Answers | None:
        return None if keeps else AskEveryone()

    async with served(cls, tmp_path) as host:
        there = framework_of([Here({}, NO_HANDLE), host.client], answers=answers())
        here = framework_of([Here({}, NO_HANDLE), cls({}, NO_HANDLE)], answers=answers())
        for i, pod in enumerate(pods()):
            before = len(host.sent)
            got = await decided(there, host.cycle(pod, nodes=host.nodes))
            calls = [call for _, call, _, _ in host.sent[before:] if call in UP_TO_SCORE]
            assert got == await decided(here, cycle_of(pod, host.nodes, f"cycle-{i}"))
            skipping = pod.labels.get("app") == "quiet" and issubclass(cls, PreScores)
            kept = keeps and describe(cls).host_keeps_answers
            assert len(calls) <= round_trips if skipping or kept else len(calls) == round_trips, calls


async def test_a_node_with_nominated_pods_is_asked_about_once_more_and_the_scores_hold(
    tmp_path: Path,
) -> None:
    other = make_pod("other", uid="other")
    async with served(All, tmp_path) as host:
        nominated = NominatedPods.of(host.nodes, {"n1": [other], "n4": [other]})
        there = framework_of([host.client], answers=AskEveryone())
        here = framework_of([All({}, NO_HANDLE)], answers=AskEveryone())
        got = await decided(there, host.cycle(nodes=host.nodes), nominated)
        assert got == await decided(here, cycle_of(make_pod("p"), host.nodes), nominated)
        calls = [call for _, call, _, _ in host.sent if call in UP_TO_SCORE]
        assert calls == ["PreFilter", "SimulateFilter"]


async def test_a_node_that_pre_filter_left_out_is_asked_about_where_the_pod_is_promised_it(
    tmp_path: Path,
) -> None:
    async with served(Narrows, tmp_path) as host:
        cycle = host.cycle()
        await host.client.pre_filter(cycle, host.nodes)
        promised = host.nodes.take([2])
        assert (await host.client.filter(cycle, promised)).all_passed
        assert [call for _, call, _, _ in host.sent if call in UP_TO_SCORE] == ["PreFilter", "Filter"]


async def test_a_pod_that_fits_nowhere_costs_one_round_trip_and_says_why(tmp_path: Path) -> None:
    async with served(All, tmp_path) as host:
        nodes = host.nodes.take([0, 3, 6])
        framework = framework_of([host.client], answers=AskEveryone())
        cycle = host.cycle(nodes=nodes)
        await framework.run_pre_filter(cycle)
        statuses = NodeStatuses(nodes)
        assert not len(await framework.run_filter(cycle, statuses, all_rows(nodes), NOBODY))
        assert [statuses.statuses[group].reasons for group in statuses.groups] == [THIRD.reasons] * 3
        assert [call for _, call, _, _ in host.sent if call in UP_TO_SCORE] == ["PreFilter"]


async def test_scores_that_are_run_apart_are_asked_for_and_those_of_the_cycle_stay(tmp_path: Path) -> None:
    async with served(All, tmp_path) as host:
        framework = framework_of([host.client], answers=AskEveryone())
        cycle = host.cycle(nodes=host.nodes)
        before = await decided(framework, cycle)
        # n0 and n3 were rejected: what came early says nothing of them.
        apart = await framework.run_score_apart(cycle, host.nodes.take([0, 1, 3]))
        assert isinstance(apart, ScoreTable)
        assert apart.plugins[0].raw.tolist() == [5, 6, 8]
        again = await framework.run_score(cycle, host.nodes.take(before[1]))
        assert isinstance(again, ScoreTable)
        assert again.total.tolist() == before[3]
        calls = [call for _, call, _, _ in host.sent if call in UP_TO_SCORE]
        assert calls == ["PreFilter", "PreScore"]


class ByImage(Base):
    """Some nodes have what the pod wants: its PreScore skips where none of the candidates does."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.slots == 0, THIRD)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status | None:
        return None if (nodes.slots % 3 == 0).any() else Status.skip()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return np.where(nodes.slots % 3 == 0, nodes.slots, 0).astype(np.int64)


async def test_plugin_that_skips_pre_score_for_one_node_is_asked_about_the_others(tmp_path: Path) -> None:
    """As where the pod is promised a node, which another plugin rejects."""
    found = []
    async with served(ByImage, tmp_path) as host:
        for client, cycle in (
            (host.client, host.cycle(nodes=host.nodes)),
            (ByImage({}, NO_HANDLE), cycle_of(make_pod("p"), host.nodes)),
        ):
            framework = framework_of([client], answers=AskEveryone())
            await framework.run_pre_filter(cycle)
            await framework.run_filter(cycle, NodeStatuses(host.nodes), np.array([1]), NOBODY)
            found.append(await decided(framework, cycle))
    there, here = found
    assert there == here
    assert here[-2][0][1] == [0, 0, 3, 0, 0, 6, 0, 0]


async def test_a_skip_that_came_early_does_not_count_for_scores_that_are_run_apart(tmp_path: Path) -> None:
    found = []
    async with served(ByImage, tmp_path) as host:
        nodes = host.nodes.take([0, 1, 2])
        for client, cycle in (
            (host.client, host.cycle(nodes=nodes)),
            (ByImage({}, NO_HANDLE), cycle_of(make_pod("p"), nodes)),
        ):
            framework = framework_of([client], answers=AskEveryone())
            await decided(framework, cycle)
            closed = await framework.run_score_apart(cycle, host.nodes.take([0, 1, 3]))
            assert isinstance(closed, ScoreTable)
            found.append([(one.plugin, one.raw.tolist()) for one in closed.plugins])
    there, here = found
    assert there == here == [("ByImage", [0, 0, 3])]
