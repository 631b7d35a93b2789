"""While served plugins are called at Filter, in-process plugins judge and score the changed rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.kept import merged_verdicts
from berth_host.framework.kept.judging_early import Meanwhile
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.route import ClientSettings
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_pod
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.attached import AttachedHost, at_socket, attached_host
from support.by_pods import ByPods, Empty
from support.frameworks import framework_of
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S

POINTS = {point: PointPolicy(5.0, Policy.FAIL) for point in ("filter", "score")}


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow slow calls: the machine may be busy."""
    monkeypatch.setattr(merged_verdicts, "QUICK_S", PATIENCE_S)


class Refuses(ByPods):
    """A plugin that fails to score a node with a pod."""

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Score by pods. Raises ValueError if a node has a pod."""
        if nodes.pod_count.any():
            raise ValueError("no score")
        return super().score_nodes(state, pod, nodes)


@asynccontextmanager
async def with_a_filter_elsewhere(
    tmp_path: Path, plugin: type[Plugin], depends_on: DependsOn | None = DependsOn.TABLE
) -> AsyncIterator[tuple[Framework, AttachedHost, ScriptedPlugin]]:
    """Yield a framework of an in-process `plugin` and a served Filter plugin that declares `depends_on`."""
    ByPods.asked.clear()
    declared: dict[str, Any] = {} if depends_on is None else {"depends_on": depends_on.value}
    served = ScriptedPlugin(descriptor("Elsewhere", "FILTER", **declared))
    path = tmp_path / "p.sock"
    async with served.serving(path), attached_host(at_socket(path, "Elsewhere"), points=POINTS) as host:
        framework = framework_of(
            [plugin({}, NO_HANDLE), host.clients["Elsewhere"]], settings=ClientSettings(points=POINTS)
        )
        # After the first of several equal pods nothing is kept.
        await attempt(framework, host)
        ByPods.asked.clear()
        yield framework, host, served


async def attempt(framework: Framework, host: AttachedHost) -> list[int] | str:
    """Run Filter and Score for one of several equal pods; return the totals, or the message of the error."""
    cycle = host.cycle(nodes=host.nodes)
    await framework.run_pre_filter(cycle)
    rows = all_rows(cycle.nodes)
    rows = await framework.run_filter(cycle, NodeStatuses(cycle.nodes), rows, cycle.nominated)
    scores = await framework.run_score(cycle, cycle.nodes.take(rows))
    return scores.message if isinstance(scores, Status) else scores.total.tolist()


async def test_rows_that_moved_are_scored_while_a_served_filter_is_asked(tmp_path: Path) -> None:
    asked_before: list[list[list[str]]] = []

    def filtered(_request: spb.FilterRequest) -> spb.FilterResponse:
        asked_before.append([*ByPods.asked])
        return spb.FilterResponse()

    async with with_a_filter_elsewhere(tmp_path, ByPods) as (framework, host, served):
        served.on("Filter", filtered)
        assert await attempt(framework, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        assert await attempt(framework, host) == [0, 1, 0]
    everything = ["n0", "n1", "n2"]
    assert asked_before == [[], [everything, ["n1"]]]
    assert ByPods.asked == [everything, ["n1"]]


@pytest.mark.parametrize("fits", [True, False])
async def test_failure_counts_only_if_the_node_fits(tmp_path: Path, fits: bool) -> None:
    async with with_a_filter_elsewhere(tmp_path, Refuses) as (framework, host, served):
        assert await attempt(framework, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        if not fits:
            rejected = spb.NodeGroup(
                status=pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE),
                nodes=pb.NodeSet(bitmap=b"\x02"),
            )
            served.on("Filter", lambda _: spb.FilterResponse(verdicts=spb.NodeVerdicts(rejected=[rejected])))
            assert await attempt(framework, host) == [0, 0]
        else:
            message = await attempt(framework, host)
            assert isinstance(message, str)
            assert message.startswith('running Score plugins: plugin "Refuses" failed with: ')


class Picky(Refuses):
    """A plugin that rejects a node with a pod, after a turn of the loop."""

    async def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject nodes with a pod."""
        await asyncio.sleep(0)
        return Verdicts.reject_where(nodes.pod_count > 0, Status.unschedulable("full"))


async def test_plugin_is_not_asked_to_score_nodes_that_it_has_yet_to_judge(tmp_path: Path) -> None:
    async with with_a_filter_elsewhere(tmp_path, Picky) as (framework, host, _):
        elsewhere, picky = framework.clients[1], framework.clients[0]
        behind = framework_of([elsewhere, picky])
        assert await attempt(behind, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        for _ in range(3):
            assert await attempt(behind, host) == [0, 0]
        assert not picky.stats.of("Score").failures


class Slow(Plugin):
    """A plugin like `ByPods`, which scores after many turns of the loop."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Sign all pods as equal."""
        return ()

    async def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return the number of pods, after many turns of the loop."""
        ByPods.asked.append(list(nodes.names))
        for _ in range(1000):
            await asyncio.sleep(0)
        return nodes.pod_count.astype(np.int64)


async def test_score_that_takes_longer_than_the_filter_is_awaited(tmp_path: Path) -> None:
    async with with_a_filter_elsewhere(tmp_path, Slow) as (framework, host, _):
        assert await attempt(framework, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        assert await attempt(framework, host) == [0, 1, 0]
    assert ByPods.asked == [["n0", "n1", "n2"], ["n1"]]


class SkipsScore(ByPods):
    """A plugin that skips Score, by an early answer, if a node has one pod."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        """Pass all nodes."""
        return FilterResult(Verdicts.feasible(len(nodes)), skip_score=bool((nodes.pod_count == 1).any()))


async def test_zeros_of_a_pod_that_is_not_scored_are_not_kept(tmp_path: Path) -> None:
    async with with_a_filter_elsewhere(tmp_path, SkipsScore) as (framework, host, _):
        assert await attempt(framework, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        await attempt(framework, host)
        assert await attempt(framework, host) == [0, 1, 0]


async def test_no_task_runs_on_when_filter_is_cancelled(tmp_path: Path) -> None:
    async with with_a_filter_elsewhere(tmp_path, ByPods) as (framework, host, served):
        assert await attempt(framework, host) == [0, 0, 0]
        host.state.put(make_pod("bound", uid="bound"), "n1")
        arrived = asyncio.Event()

        async def never(_request: spb.FilterRequest) -> spb.FilterResponse:
            arrived.set()
            await asyncio.Event().wait()
            raise AssertionError

        served.on("Filter", never)
        before = asyncio.all_tasks()
        asking = asyncio.ensure_future(attempt(framework, host))
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
            asking.cancel()
            await asyncio.wait({asking})
        assert asking.cancelled()
        left = {task for task in asyncio.all_tasks() - before if "_here" in repr(task.get_coro())}
        assert not left
        served.on("Filter", lambda _: spb.FilterResponse())
        assert await attempt(framework, host) == [0, 1, 0]


def rejecting(
    bitmap: bytes, code: pb.PluginStatus.Code.ValueType = pb.PluginStatus.CODE_UNSCHEDULABLE
) -> spb.FilterResponse:
    """Return an answer that rejects the nodes in `bitmap`."""
    status = pb.PluginStatus(code=code, reasons=["elsewhere"])
    rejected = spb.NodeGroup(status=status, nodes=pb.NodeSet(bitmap=bitmap))
    return spb.FilterResponse(verdicts=spb.NodeVerdicts(rejected=[rejected]))


async def judged(framework: Framework, host: AttachedHost) -> tuple[list[int], dict[str, str]]:
    """Run Filter for one of several equal pods; return the rows that pass, and why the others do not."""
    cycle = host.cycle(nodes=host.nodes)
    await framework.run_pre_filter(cycle)
    statuses = NodeStatuses(cycle.nodes)
    rows = await framework.run_filter(cycle, statuses, all_rows(cycle.nodes), cycle.nominated)
    return rows.tolist(), {name: status.message for name, status in statuses.rejections().by_node.items()}


async def test_rows_that_moved_are_judged_while_a_served_filter_is_asked(tmp_path: Path) -> None:
    asked: list[tuple[pb.NodeSet, list[list[str]]]] = []

    def filtered(request: spb.FilterRequest) -> spb.FilterResponse:
        asked.append((request.candidates, [*ByPods.asked]))
        return spb.FilterResponse()

    async with with_a_filter_elsewhere(tmp_path, Empty) as (framework, host, served):
        served.on("Filter", filtered)
        assert await judged(framework, host) == ([0, 1, 2], {})
        host.state.put(make_pod("bound", uid="bound"), "n1")
        assert await judged(framework, host) == ([0, 2], {"n1": "full"})
        assert await judged(framework, host) == ([0, 2], {"n1": "full"})
    everything = ["n0", "n1", "n2"]
    assert ByPods.asked == [everything, ["n1"]]
    whole = pb.NodeSet(complement=True)
    # The second request was sent before the node was judged, the third after it.
    assert [candidates for candidates, _ in asked] == [whole, whole, pb.NodeSet(bitmap=b"\x05")]


async def test_plugin_that_declares_nothing_sees_no_row_that_is_rejected_before_it(tmp_path: Path) -> None:
    """As in process: the plugin may keep state about the rows of its calls."""
    asked: list[pb.NodeSet] = []

    def filtered(request: spb.FilterRequest) -> spb.FilterResponse:
        asked.append(request.candidates)
        return spb.FilterResponse()

    async with with_a_filter_elsewhere(tmp_path, Empty, depends_on=None) as (framework, host, served):
        served.on("Filter", filtered)
        assert await judged(framework, host) == ([0, 1, 2], {})
        host.state.put(make_pod("bound", uid="bound"), "n1")
        assert await judged(framework, host) == ([0, 2], {"n1": "full"})
    assert asked == [pb.NodeSet(complement=True), pb.NodeSet(bitmap=b"\x05")]


async def test_served_verdict_on_a_row_that_the_host_rejects_is_not_counted(
    tmp_path: Path,
) -> None:
    async with with_a_filter_elsewhere(tmp_path, Empty) as (framework, host, served):
        assert await judged(framework, host) == ([0, 1, 2], {})
        host.state.put(make_pod("bound", uid="bound"), "n1")
        served.on("Filter", lambda _: rejecting(b"\x03"))
        assert await judged(framework, host) == ([2], {"n0": "elsewhere", "n1": "full"})
        host.state.put(make_pod("another", uid="another"), "n1")
        served.on("Filter", lambda _: rejecting(b"\x04"))
        assert await judged(framework, host) == ([0], {"n1": "full", "n2": "elsewhere"})


async def test_error_about_a_row_that_is_rejected_here_ends_no_cycle(tmp_path: Path) -> None:
    async with with_a_filter_elsewhere(tmp_path, Empty) as (framework, host, served):
        assert await judged(framework, host) == ([0, 1, 2], {})
        host.state.put(make_pod("bound", uid="bound"), "n1")
        served.on("Filter", lambda _: rejecting(b"\x02", pb.PluginStatus.CODE_ERROR))
        assert await judged(framework, host) == ([0, 2], {"n1": "full"})


async def test_served_filter_is_not_asked_if_no_node_is_known_to_fit(tmp_path: Path) -> None:
    asked: list[pb.NodeSet] = []

    def filtered(request: spb.FilterRequest) -> spb.FilterResponse:
        asked.append(request.candidates)
        return spb.FilterResponse()

    async with with_a_filter_elsewhere(tmp_path, Empty) as (framework, host, served):
        served.on("Filter", filtered)
        for i in range(3):
            host.state.put(make_pod(f"p{i}", uid=f"p{i}"), f"n{i}")
        full = {f"n{i}": "full" for i in range(3)}
        assert await judged(framework, host) == ([], full)
        host.state.put(make_pod("more", uid="more"), "n1")
        assert await judged(framework, host) == ([], full)
        assert not asked


async def test_slow_in_process_filter_runs_before_the_served_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[list[str]]] = []

    def filtered(_request: spb.FilterRequest) -> spb.FilterResponse:
        asked.append([*ByPods.asked])
        return spb.FilterResponse()

    async with with_a_filter_elsewhere(tmp_path, Empty) as (framework, host, served):
        served.on("Filter", filtered)
        assert await judged(framework, host) == ([0, 1, 2], {})
        monkeypatch.setattr(merged_verdicts, "QUICK_S", 0.0)
        host.state.put(make_pod("bound", uid="bound"), "n1")
        assert await judged(framework, host) == ([0, 2], {"n1": "full"})
    everything = ["n0", "n1", "n2"]
    assert asked == [[everything], [everything, ["n1"]]]


# --- the work beside the calls -----------------------------------------------------------------------------


async def test_work_beside_a_call_that_does_not_wait_has_no_task_of_its_own() -> None:
    tasks = []

    async def work() -> NDArray[np.intp]:
        tasks.append(asyncio.current_task())
        return np.arange(1)

    meanwhile = Meanwhile(work)
    assert (await meanwhile.result()).tolist() == [0]
    await meanwhile.end()
    await asyncio.sleep(0)
    assert tasks == [asyncio.current_task()]


async def test_work_begins_when_the_call_waits_and_its_result_is_read_later() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work() -> NDArray[np.intp]:
        begun.set()
        await go.wait()
        return np.arange(2)

    meanwhile = Meanwhile(work)
    assert not begun.is_set()
    await begun.wait()
    go.set()
    assert (await meanwhile.result()).tolist() == [0, 1]


@pytest.mark.parametrize("turns", [0, 1, 2, 3], ids=["not begun", "about to begin", "begun", "waiting"])
async def test_work_ends_with_a_call_that_failed(turns: int) -> None:
    steps = []

    async def work() -> NDArray[np.intp]:
        steps.append("begun")
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            steps.append("ended")
        return np.arange(0)

    meanwhile = Meanwhile(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    await meanwhile.end()
    for _ in range(3):
        await asyncio.sleep(0)
    assert steps in ([], ["begun", "ended"])
    assert steps or turns < 2
