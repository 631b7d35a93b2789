"""PreScore and Score of several served plugins: called concurrently, counted in the configured order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.framework.framework import Framework
from berth_host.framework.score_table import ScoreTable
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.status import Status
from support.attached import at_socket, attached_host
from support.frameworks import framework_of
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S

POINTS = {point: PointPolicy(5.0, Policy.FAIL) for point in ("filter", "preScore", "score")}


class Here:
    """An in-process plugin with the same score for all nodes, which notes when it was called."""

    def __init__(self, args: object = None, handle: object = None) -> None:
        self.asked: list[str] = []

    def pre_score(self, state: object, pod: object, nodes: object) -> Status:
        self.asked.append("pre_score")
        return Status.success()

    def score_nodes(self, state: object, pod: object, nodes: Any) -> Any:
        self.asked.append("score")
        return np.full(len(nodes), 7)


@asynccontextmanager
async def framework(
    tmp_path: Path, *plugins: identity_pb2.PluginDescriptor
) -> AsyncIterator[tuple[Framework, Cycle, ScriptedPlugin, Here]]:
    """Yield a framework of served `plugins`, in this order, with `Here` between the first and the second."""
    served = ScriptedPlugin(*plugins)
    path = tmp_path / "p.sock"
    place = at_socket(path, *(plugin.name for plugin in plugins))
    async with served.serving(path), attached_host(place, points=POINTS) as host:
        here = Here()
        clients = [host.clients[plugin.name] for plugin in plugins]
        made = framework_of([clients[0], here, *clients[1:]])
        yield made, host.cycle(nodes=host.nodes), served, here


def scorer(name: str, *more: str, **fields: Any) -> identity_pb2.PluginDescriptor:
    fields.setdefault("normalization", identity_pb2.SCORE_NORMALIZATION_PLUGIN)
    return descriptor(name, "SCORE", *more, **fields)


async def test_served_scores_are_requested_concurrently_and_added_up(tmp_path: Path) -> None:
    together = asyncio.Barrier(2)

    async def score(request: spb.ScoreRequest) -> spb.ScoreResponse:
        async with asyncio.timeout(PATIENCE_S):
            await together.wait()
        number = {"A": 1, "B": 20}[request.ctx.plugin]
        return spb.ScoreResponse(scores=spb.Scores(dense=[number, 2 * number, 0]))

    async with framework(tmp_path, scorer("A"), scorer("B")) as (made, cycle, served, _):
        served.on("Score", score)
        table = await made.run_score(cycle, cycle.nodes)
        assert isinstance(table, ScoreTable)
        assert table.total.tolist() == [28, 49, 7]
        assert [scores.plugin for scores in table.plugins] == ["A", "Here", "B"]


async def test_plugins_in_process_run_while_the_others_are_asked(tmp_path: Path) -> None:
    async with framework(tmp_path, scorer("A")) as (made, cycle, served, here):
        asked_before: list[bool] = []

        def score(_request: spb.ScoreRequest) -> spb.ScoreResponse:
            asked_before.append("score" in here.asked)
            return spb.ScoreResponse(scores=spb.Scores(dense=[1, 1, 1]))

        served.on("Score", score)
        table = await made.run_score(cycle, cycle.nodes)
        assert isinstance(table, ScoreTable)
        assert asked_before == [True]


async def test_first_error_in_the_configured_order_counts_whichever_came_first(tmp_path: Path) -> None:
    b_answered = asyncio.Event()

    async def score(request: spb.ScoreRequest) -> spb.ScoreResponse:
        if request.ctx.plugin == "A":
            await b_answered.wait()
        b_answered.set()
        reason = f"broken {request.ctx.plugin}"
        return spb.ScoreResponse(
            ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_ERROR, reasons=[reason]))
        )

    async with framework(tmp_path, scorer("A"), scorer("B")) as (made, cycle, served, _):
        served.on("Score", score)
        status = await made.run_score(cycle, cycle.nodes)
        assert isinstance(status, Status)
        assert "broken A" in status.message


async def test_pre_scores_are_requested_concurrently_unless_a_plugin_reads_shared_state(
    tmp_path: Path,
) -> None:
    together = asyncio.Barrier(2)
    order: list[str] = []

    async def pre_score(request: spb.PreScoreRequest) -> spb.PreScoreResponse:
        name = request.ctx.plugin
        order.append(name)
        if name == "C":
            assert [(entry.key, entry.value) for entry in request.ctx.shared] == [("A/x", b"1")]
            return spb.PreScoreResponse()
        async with asyncio.timeout(PATIENCE_S):
            await together.wait()
        published = [pb.CycleStateEntry(key="A/x", value=b"1")] if name == "A" else []
        return spb.PreScoreResponse(ctx=pb.ReplyContext(publish=published))

    def score(_request: spb.ScoreRequest) -> spb.ScoreResponse:
        return spb.ScoreResponse(scores=spb.Scores(dense=[1, 1, 1]))

    plugins = (scorer("A", "PRE_SCORE"), scorer("B", "PRE_SCORE"))
    reader = scorer("C", "PRE_SCORE", reads_shared=["A/x"])
    async with framework(tmp_path, *plugins, reader) as (made, cycle, served, _):
        served.on("PreScore", pre_score)
        served.on("Score", score)
        table = await made.run_score(cycle, cycle.nodes)
        assert isinstance(table, ScoreTable)
        assert (sorted(order[:2]), order[2:]) == (["A", "B"], ["C"])


@pytest.mark.parametrize("broken", ["A", "B"])
async def test_pre_score_error_names_its_plugin(tmp_path: Path, broken: str) -> None:
    def pre_score(request: spb.PreScoreRequest) -> spb.PreScoreResponse:
        code = pb.PluginStatus.CODE_ERROR if request.ctx.plugin == broken else pb.PluginStatus.CODE_SUCCESS
        return spb.PreScoreResponse(ctx=pb.ReplyContext(status=pb.PluginStatus(code=code, reasons=["no"])))

    async with framework(tmp_path, scorer("A", "PRE_SCORE"), scorer("B", "PRE_SCORE")) as made:
        built, cycle, served, _ = made
        served.on("PreScore", pre_score)
        status = await built.run_score(cycle, cycle.nodes)
        assert status == Status.error(f'running PreScore plugin "{broken}": no')
        assert not served.requests("Score")


async def test_early_scores_are_no_request_and_no_task(tmp_path: Path) -> None:
    early = scorer("A", "FILTER", normalization=identity_pb2.SCORE_NORMALIZATION_NONE)

    def filter_all(_request: spb.FilterRequest) -> spb.FilterResponse:
        return spb.FilterResponse(early_scores=spb.Scores(dense=[1, 2, 100]))

    async with framework(tmp_path, early) as (made, cycle, served, _):
        served.on("Filter", filter_all)
        (client,) = (item for item in made.plugins_at(ExtensionPoint.SCORE) if item.is_served)
        assert client.sends_score(cycle, cycle.nodes)
        assert (await client.filter(cycle, cycle.nodes)).all_passed
        assert not client.sends_score(cycle, cycle.nodes)
        assert not client.sends_score(cycle, cycle.nodes.take([0, 2]))
        table = await made.run_score(cycle, cycle.nodes)
        assert isinstance(table, ScoreTable)
        assert table.total.tolist() == [8, 9, 107]
        assert not served.requests("Score")
