"""Which answers a served plugin gives before it is asked, and which it leaves for later."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

import numpy as np
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, ExtensionPoint, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.runtime.early import LATEST_S, Early
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.runtime.worth import SAVED_S
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from numpy.typing import NDArray
from support.waiting import PATIENCE_S

NONE = ScoreNormalization.NONE
SPOT = Status.unschedulable("node is a spot node")
POD = Pod(name="web", uid="u1")
QUIET = Pod(name="p", labels={"quiet": "1"})
EVERY_POINT = frozenset(ExtensionPoint)


def table(*pools: str) -> NodeTable:
    """Nodes n0, n1, ... with a label `pool`."""
    columns = NodeColumns()
    for i, pool in enumerate(pools):
        columns.add(Node(name=f"n{i}", labels={"pool": pool}))
    return NodeTable(columns)


NODES = table("spot", "steady", "spot", "steady")


class Clock:
    """Seconds that methods take."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Whole(Plugin):
    """A node's score is its number plus 10, spot nodes are rejected; notes what it is asked."""

    normalization = NONE
    depends_on = DependsOn.OTHER
    answers_early: bool | None = True
    takes_s = 0.0

    def __init__(self, *_made_with: object) -> None:
        self.asked: list[tuple[str, int]] = []
        self.clock = Clock()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        self.asked.append(("pre_filter", len(nodes)))

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        self.asked.append(("filter", len(nodes)))
        self.clock.now_s += self.takes_s
        codes, values = nodes.label("pool")
        return Verdicts.reject_where(np.equal(codes, values.find("spot")), SPOT)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        self.asked.append(("pre_score", len(nodes)))
        return Status.skip() if pod.labels.get("quiet") else None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        self.asked.append(("score", len(nodes)))
        return nodes.slots.astype(np.int64) + 10


def ahead(plugin: Whole, enabled: frozenset[ExtensionPoint] = EVERY_POINT) -> Early:
    return Early(PluginRuntime(plugin), enabled, plugin.clock)


def made(cls: type[Whole] = Whole, **methods: Any) -> Whole:
    return type("Example", (cls,), methods)()  # type: ignore[no-any-return]  # a subclass


async def result(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def state() -> CycleState:
    return CycleState("cycle-1", plugin="Example")


async def test_everything_comes_with_pre_filter_for_the_nodes_that_are_left() -> None:
    plugin = made()
    got = await result(ahead(plugin).pre_filter(state(), POD, NODES))
    assert got.early_filter.to_list() == [SPOT, SUCCESS, SPOT, SUCCESS]
    assert got.early_scores.tolist() == [0, 11, 0, 13]
    assert plugin.asked == [("pre_filter", 4), ("filter", 4), ("pre_score", 2), ("score", 2)]


async def test_nodes_that_pre_filter_leaves_out_are_not_asked_about() -> None:
    only = PreFilterResult(eligible=frozenset(["n3", "n2", "gone"]))
    plugin = made(pre_filter=lambda *_: only)
    got = await result(ahead(plugin).pre_filter(state(), POD, NODES))
    assert (got.eligible, got.early_filter.to_list()[2:]) == (only.eligible, [SPOT, SUCCESS])
    assert got.early_scores.tolist() == [0, 0, 0, 13]
    assert plugin.asked == [("filter", 2), ("pre_score", 1), ("score", 1)]


async def test_plugin_that_skips_filter_still_scores() -> None:
    got = await result(ahead(made(pre_filter=lambda *_: Status.skip())).pre_filter(state(), POD, NODES))
    assert (got.status.code, got.early_filter) == (Code.SKIP, None)
    assert got.early_scores.tolist() == [10, 11, 12, 13]


async def test_skipped_scoring_is_answered_with_pre_filter() -> None:
    got = await result(ahead(made()).pre_filter(state(), QUIET, NODES))
    assert (got.early_filter.passed.tolist(), got.early_scores, got.skip_score) == (
        [False, True, False, True],
        None,
        True,
    )


@pytest.mark.parametrize("status", [SPOT, Status.unresolvable("no"), Status.error("broken")])
async def test_a_pod_that_is_rejected_costs_no_more(status: Status) -> None:
    plugin = made(pre_filter=lambda *_: status)
    assert await result(ahead(plugin).pre_filter(state(), POD, NODES)) == PreFilterResult(status)
    assert plugin.asked == []


@pytest.mark.parametrize("normalization", [ScoreNormalization.PLUGIN, ScoreNormalization.RPC])
async def test_scores_that_depend_on_the_candidates_come_with_pre_score(
    normalization: ScoreNormalization,
) -> None:
    more: dict[str, Any] = {"normalize": lambda *_: None} if normalization is ScoreNormalization.RPC else {}
    plugin = made(normalization=normalization, **more)
    first = await result(ahead(plugin).pre_filter(state(), POD, NODES))
    assert (first.early_filter.all_passed, first.early_scores) == (False, None)
    assert plugin.asked == [("pre_filter", 4), ("filter", 4)]
    second = await result(ahead(plugin).pre_score(state(), POD, NODES.take([1, 3])))
    assert (second.status, second.scores.tolist()) == (SUCCESS, [11, 13])


async def test_scores_come_with_filter_where_pre_filter_is_not_asked() -> None:
    points = frozenset([ExtensionPoint.FILTER, ExtensionPoint.SCORE])
    plugin = made()
    got = await result(ahead(plugin, points).filter(state(), POD, NODES))
    assert (got.early_scores.tolist(), plugin.asked) == ([0, 11, 0, 13], [("filter", 4), ("score", 2)])


async def test_pre_score_that_skips_beside_filter_is_asked_again_about_the_candidates() -> None:
    plugin = made()
    got = await result(ahead(plugin).filter(state(), QUIET, NODES))
    assert (got.early_scores, got.skip_score) == (None, False)
    assert plugin.asked == [("filter", 4), ("pre_score", 2)]


async def test_point_that_the_profile_does_not_enable_is_not_answered() -> None:
    only = frozenset([ExtensionPoint.PRE_FILTER])
    plugin = made()
    assert await result(ahead(plugin, only).pre_filter(state(), POD, NODES)) == PreFilterResult()
    assert plugin.asked == [("pre_filter", 4)]


async def test_answers_that_the_plugin_gives_early_itself_stay_unchanged() -> None:
    own = PreFilterResult(
        early_filter=Verdicts.feasible(4), early_scores=np.arange(4, dtype=np.int64), eligible=None
    )
    plugin = made(pre_filter=lambda *_: own)
    got = await result(ahead(plugin).pre_filter(state(), POD, NODES))
    assert (got.early_filter, got.early_scores.tolist(), plugin.asked) == (own.early_filter, [0, 1, 2, 3], [])


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"score_nodes": lambda *_: 1 / 0}, id="score raises"),
        pytest.param({"pre_score": lambda *_: 1 / 0}, id="pre_score raises"),
        pytest.param({"pre_score": lambda *_: Status.error("no")}, id="pre_score fails"),
    ],
)
async def test_a_fault_in_scoring_fails_nothing_that_was_asked(broken: dict[str, Any]) -> None:
    first = await result(ahead(made(**broken)).pre_filter(state(), POD, NODES))
    second = await result(ahead(made(**broken)).filter(state(), POD, NODES))
    assert first.early_scores is second.early_scores is None
    assert first.early_filter.to_list() == second.verdicts.to_list() == [SPOT, SUCCESS, SPOT, SUCCESS]
    if "score_nodes" in broken:
        third = await result(ahead(made(**broken)).pre_score(state(), POD, NODES))
        assert (third.status, third.scores) == (SUCCESS, None)


async def test_a_fault_in_filter_does_not_fail_pre_filter() -> None:
    got = await result(ahead(made(filter_nodes=lambda *_: 1 / 0)).pre_filter(state(), POD, NODES))
    assert got == PreFilterResult()


async def test_without_a_feasible_node_nothing_is_scored() -> None:
    plugin = made(score_nodes=lambda *_: 1 / 0)
    got = await result(ahead(plugin).pre_filter(state(), POD, table("spot")))
    assert (got.early_filter.to_list(), got.early_scores) == ([SPOT], None)


async def test_methods_that_wait_are_waited_for() -> None:
    async def filter_nodes(self: Any, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.feasible(len(nodes))

    got = await result(ahead(made(filter_nodes=filter_nodes)).pre_filter(state(), POD, NODES))
    assert got.early_scores.tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("said", [{"answers_early": False}, {"reads_shared": ("Other/key",)}])
async def test_plugin_that_declines_early_answers_is_asked_point_by_point(said: dict[str, Any]) -> None:
    plugin = made(**({"answers_early": None} | said))
    asked = ahead(plugin)
    assert await result(asked.pre_filter(state(), POD, NODES)) == PreFilterResult()
    assert (await result(asked.filter(state(), POD, NODES))).early_scores is None
    assert (await result(asked.pre_score(state(), POD, NODES))).scores is None
    assert [point for point, _ in plugin.asked] == ["pre_filter", "filter", "pre_score"]


async def test_no_scores_are_made_where_filter_took_long() -> None:
    got = await result(ahead(made(takes_s=2 * LATEST_S)).pre_filter(state(), POD, NODES))
    assert (got.early_filter.passed.sum(), got.early_scores) == (2, None)


@pytest.mark.parametrize("wanted", [None, True])
async def test_nothing_is_begun_where_pre_filter_itself_took_long(wanted: bool | None) -> None:
    def pre_filter(self: Whole, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        self.clock.now_s += 2 * LATEST_S

    plugin = made(pre_filter=pre_filter, answers_early=wanted)
    assert await result(ahead(plugin).pre_filter(state(), POD, NODES)) == PreFilterResult()
    assert plugin.asked == []


async def test_no_scores_are_begun_where_filter_alone_took_long() -> None:
    plugin = made(takes_s=2 * LATEST_S)
    got = await result(ahead(plugin).filter(state(), POD, NODES))
    assert (got.verdicts.passed.sum(), got.early_scores) == (2, None)
    assert plugin.asked == [("filter", 4)]


@pytest.mark.parametrize("at", ["filter_nodes", "score_nodes"])
async def test_one_cancelled_call_is_enough_to_be_asked_point_by_point(at: str) -> None:
    started = asyncio.Event()

    async def hangs(self: Whole, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        self.clock.now_s += 1.0
        started.set()
        await asyncio.Event().wait()

    methods: dict[str, Any] = {"answers_early": None, at: hangs}
    asked = ahead(made(**methods))
    call = asyncio.ensure_future(result(asked.pre_filter(state(), POD, NODES)))
    await started.wait()
    call.cancel()  # as where its deadline is over
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(20):
            assert await result(asked.pre_filter(state(), POD, NODES)) == PreFilterResult()


async def test_a_slow_plugin_is_soon_asked_point_by_point_unless_it_says_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow, sure = made(answers_early=None, takes_s=3 * SAVED_S), made(takes_s=3 * SAVED_S)
    with caplog.at_level(logging.INFO, "berth_sdk.plugin"):
        for plugin in (slow, sure):
            asked = ahead(plugin)
            for _ in range(40):
                await result(asked.pre_filter(state(), POD, NODES))
    assert slow.asked.count(("filter", 4)) < 20
    assert sure.asked.count(("filter", 4)) == 40
    (line,) = caplog.messages
    assert "Example: early answers took" in line
    assert "point by point" in line


async def test_pods_that_are_never_bound_are_not_scored_early_at_some_cost() -> None:
    plugin = made(answers_early=None, takes_s=0.5 * SAVED_S)
    asked = ahead(plugin)
    for _ in range(40):
        await result(asked.pre_filter(state(), POD, NODES))
        asked.ended(bound=False)
    assert plugin.asked.count(("filter", 4)) < 40
