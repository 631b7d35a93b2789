"""Failures that the host must survive, row by row, as one attachment sees them.

tests/host/rpc has rows that need a scheduler, tests/host/faults the faults of real processes.

Source: the failure table of the plugin contract.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import berth_host
import pytest
from berth_host.attach import probing
from berth_host.attach.state import State
from berth_host.errors.plugins import CycleRestartError
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2, state_pb2
from berth_sdk.results import NodeRejections
from berth_sdk.status import Code, Status
from berth_sdk.testing.builders import make_node, make_pod
from support.attached import at_socket, attached_host, launched
from support.places import TESTS
from support.plugin_processes import plugin_process
from support.scripted_plugin import ScriptedPlugin, decided, descriptor, for_ever, lacking
from support.waiting import PATIENCE_S, until

ECHO = "support.echo_plugin:Echo"
FAIL = {point: PointPolicy(policy=Policy.FAIL) for point in ("score", "postFilter")}


@pytest.fixture(autouse=True)
def modules_of_tests_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.mark.long
@pytest.mark.slow
async def test_row_1_optional_plugin_that_is_absent_counts_for_nothing_until_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    async with attached_host(at_socket(path, "Echo"), patience_s=0.0, required=False) as host:
        cycle = host.cycle()
        assert (await host.client.filter(cycle, host.nodes)).all_passed
        assert (await host.client.score(cycle, host.nodes)).normalized.tolist() == [0, 0, 0]
        assert (await host.client.reserve(cycle, "n0")).is_success
        assert (await host.client.bind(cycle, "n0")).status.code is Code.SKIP
        assert "is not attached" in cycle.account.notes[0]
        async with plugin_process(path, ECHO):
            await until(lambda: host.client.available)
            outcome = await host.client.score(host.cycle(), host.nodes)
            assert outcome.normalized.tolist() == [100, 100, 100]


async def test_row_13_reserve_without_an_answer_is_followed_by_an_unreserve(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE"))
    plugin.on("Reserve", for_ever)
    path = tmp_path / "p.sock"
    points = {"reserve": PointPolicy(0.05)}
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=points) as host:
        cycle = host.cycle()
        status = await host.client.reserve(cycle, "n0")
        assert status.message == 'plugin "Demo" did not answer within 50 ms at Reserve'
        await host.client.unreserve(cycle, "n0", "reserve failed")
        (request,) = plugin.requests("Unreserve")
        assert [item.cycle_id for item in request.items] == [cycle.cycle_id]


@pytest.mark.parametrize("have", ["base", "target", "older", "unknown", "nothing"])
async def test_row_18_copy_of_another_version_is_brought_to_the_cycles_version(
    tmp_path: Path, have: str
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        older = plugin.held
        host.state.put(make_pod("a", uid="a"), "n0")
        await host.client.filter(host.cycle(), host.nodes)
        base = plugin.requests("Filter")[-1].ctx.version
        host.state.put(make_pod("b", uid="b"), "n1")
        target = pb.StateVersion(epoch=host.state.version.epoch, generation=host.state.version.generation)
        stands = {
            "base": base,
            "target": target,
            "older": older,
            "unknown": pb.StateVersion(epoch=1, generation=1),
            "nothing": None,
        }[have]
        if have not in ("base", "target"):
            plugin.once(
                "Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE, have=stands))
            )
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        last = plugin.requests("Filter")[-1].ctx
        assert last.version == target
        if have in ("unknown", "nothing"):
            assert not plugin.requests("SyncState")[-1][0].chunk.HasField("base")
            assert not last.HasField("delta")
        else:
            assert last.delta.base == (older if have == "older" else base)
            assert last.delta.target == target


async def test_row_18_repair_is_made_once_a_call_and_the_rest_heals_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TICK_S", 0.05)
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        for _ in range(2):
            plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE)))
        assert (await host.client.filter(host.cycle(), host.nodes)).status(0).code is Code.ERROR
        assert len(plugin.requests("Filter")) == 2
        synced = len(plugin.requests("SyncState"))
        await until(lambda: len(plugin.requests("SyncState")) > synced)
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


async def test_row_19_copy_that_was_dropped_in_a_call_or_in_between_is_counted_once(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        of_demo = host.attachments.plugins["Demo"]
        link = host.attachments.places[0].link
        assert link is not None
        plugin.once("Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE)))
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert of_demo.drifts == 1
        # One that is only behind has not drifted.
        older = pb.StateVersion(epoch=1, generation=1)
        plugin.once(
            "Filter", lambda _: scheduling_pb2.FilterResponse(ctx=lacking(pb.MISSING_STATE, have=older))
        )
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert of_demo.drifts == 1
        plugin.once("SyncState", lambda _: state_pb2.SyncStateResponse(need_full=True))
        host.state.put(make_pod("a", uid="a"), "n0")
        await link.sync(("Demo", "SyncState"), time.monotonic() + PATIENCE_S)
        assert of_demo.drifts == 2
        assert not plugin.requests("SyncState")[-1][0].chunk.HasField("base")


@pytest.mark.slow
async def test_row_20_plugin_restarts_between_two_calls_of_a_cycle(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    async with (
        plugin_process(path, ECHO) as process,
        attached_host(at_socket(path, "Echo")) as host,
    ):
        cycle = host.cycle()
        assert (await host.client.filter(cycle, host.nodes)).all_passed
        await process.kill()
        await process.start()
        # Nobody has looked at the connection yet, or somebody has: either way this cycle cannot go on with
        # the new instance, and says so instead of asking it.
        await until(lambda: host.attachments.recoveries == 2)
        with pytest.raises(CycleRestartError):
            await host.client.filter(cycle, host.nodes)
        again = host.cycle(restarted=True)
        assert (await host.client.filter(again, host.nodes)).all_passed


async def test_row_21_large_state_goes_in_chunks(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), node_count=3000) as host:
        (chunks,) = plugin.requests("SyncState")
        assert len(chunks) > 1
        assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
        assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert sum(len(chunk.chunk.upserts) for chunk in chunks) == 3000
        assert host.client.available


async def test_row_22_slow_plugin_costs_a_cycle_no_more_than_its_budget(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_FILTER", "FILTER", "PRE_SCORE", "SCORE"))

    for rpc in ("PreFilter", "Filter", "PreScore", "Score"):
        plugin.on(rpc, for_ever)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        cycle = host.cycle(budget_s=0.3)
        first = (await host.client.pre_filter(cycle, host.nodes)).status
        assert re.search(r"within \d+ ms, all that was left of the cycle's budget", first.message)
        await host.client.filter(cycle, host.nodes)
        await host.client.pre_score(cycle, host.nodes)
        await host.client.score(cycle, host.nodes)
        assert cycle.budget_left_s <= 0
        assert not [rpc for rpc in ("Filter", "PreScore", "Score") if plugin.requests(rpc)]


@pytest.mark.long
@pytest.mark.slow
async def test_row_22_rounds_of_pre_bind_without_end_are_ended_by_the_one_deadline(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "PRE_BIND"))

    def again(_request: Any) -> scheduling_pb2.PreBindResponse:
        reply = scheduling_pb2.PreBindResponse(ctx=decided())
        reply.ask_again_after.FromMilliseconds(1)
        return reply

    plugin.on("PreBind", again)
    path = tmp_path / "p.sock"
    points = {"preBind": PointPolicy(2.0)}
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=points) as host:
        cycle = host.cycle()
        while (answer := await host.client.pre_bind(cycle, "n0")).status.is_success:
            assert answer.ask_again_after_s == pytest.approx(0.001)
        assert answer.status.message == 'plugin "Demo" did not answer within 2000 ms at PreBind'
        rounds = [request.round for request in plugin.requests("PreBind")]
        assert rounds == list(range(len(rounds)))
        assert len(rounds) > 2


INVALID: dict[str, tuple[str, Any, str]] = {
    "unknown node": (
        "Filter",
        scheduling_pb2.FilterResponse(
            verdicts=scheduling_pb2.NodeVerdicts(
                rejected=[scheduling_pb2.NodeGroup(nodes=pb.NodeSet(bitmap=b"\x00\xff"))]
            )
        ),
        "a node that is not among the candidates",
    ),
    "wrong length": (
        "Score",
        scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1])),
        "answered 1 scores for 3",
    ),
    "score 1000": (
        "Score",
        scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1, 2, 1000])),
        "returns an invalid score 1000",
    ),
    "unset code at Reserve": ("Reserve", scheduling_pb2.ReserveResponse(), "did not decide"),
    "unset code at Permit": ("Permit", scheduling_pb2.PermitResponse(), "did not decide"),
    "unset code at PreBind": ("PreBind", scheduling_pb2.PreBindResponse(), "did not decide"),
    "unset code at Bind": ("Bind", scheduling_pb2.BindResponse(host_binds=True), "did not decide"),
    "victim of higher priority": (
        "PostFilter",
        scheduling_pb2.PostFilterResponse(
            ctx=decided(), nominated_node="n1", victims=[pb.ObjectRef(name="vip", uid="vip")]
        ),
        "of priority 1000, not below the pod's 0",
    ),
    "patch on an undeclared kind": (
        "PreBind",
        scheduling_pb2.PreBindResponse(
            ctx=decided(),
            patches=[
                scheduling_pb2.ObjectPatch(
                    resource="secrets", ref=pb.ObjectRef(name="s"), merge_patch_json=b"{}"
                )
            ],
        ),
        "patched secrets /s, a resource that it did not declare",
    ),
}


@pytest.mark.parametrize("invalid", INVALID)
async def test_row_24_answer_that_violates_the_contract_is_refused_counted_and_named(
    tmp_path: Path, invalid: str
) -> None:
    rpc, reply, words = INVALID[invalid]
    points = ("FILTER", "POST_FILTER", "SCORE", "RESERVE", "PERMIT", "PRE_BIND", "BIND")
    plugin = ScriptedPlugin(descriptor("Demo", *points))
    plugin.on(rpc, lambda _: reply)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=FAIL) as host:
        host.state.put(make_pod("vip", uid="vip", priority=1000), "n1")
        cycle, client = host.cycle(), host.client
        ask: dict[str, Callable[[], Any]] = {
            "Filter": lambda: client.filter(cycle, host.nodes),
            "PostFilter": lambda: client.post_filter(cycle, NodeRejections()),
            "Score": lambda: client.score(cycle, host.nodes),
            "Reserve": lambda: client.reserve(cycle, "n0"),
            "Permit": lambda: client.permit(cycle, "n0"),
            "PreBind": lambda: client.pre_bind(cycle, "n0"),
            "Bind": lambda: client.bind(cycle, "n0"),
        }
        answer: Any = await ask[rpc]()
        status = answer.status(0) if rpc == "Filter" else getattr(answer, "status", answer)
        assert isinstance(status, Status)
        assert status.code is Code.ERROR
        assert 'plugin "Demo"' in status.message
        assert words in status.message
        assert host.client.stats.violations == 1
        assert host.client.stats.of(rpc).failures == {"violation": 1}


async def test_row_28_node_that_was_deleted_and_came_back_is_another_node(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        state = host.state
        old_index = state.index_of("n1")
        old_generation = int(state.nodes.generation[1])
        state.cache.remove_node("n1")
        state.snapshot.update(state.cache)
        state.add_nodes([make_node("n1", cpu="64")])
        await host.client.filter(host.cycle(), host.nodes)
        delta = plugin.requests("Filter")[-1].ctx.delta
        assert list(delta.removed) == [old_index]
        (upsert,) = delta.upserts
        assert (upsert.name, upsert.index) == ("n1", state.index_of("n1"))
        assert upsert.index != old_index
        assert upsert.generation > old_generation


@pytest.mark.slow
async def test_row_32_child_that_exits_at_once_is_started_again_with_growing_waits() -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no licence')")
    async with attached_host(launched(command, "Demo"), patience_s=0.0) as host:
        (place,) = host.attachments.places
        assert place.state is State.BACKOFF
        assert "exited with code 1: no licence" in place.reason
        await until(lambda: place.backoff.failures >= 3)
        assert not host.client.available


@pytest.mark.long
@pytest.mark.slow
async def test_row_32_child_that_floods_its_output_is_bounded_and_useful(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import sys, threading, time\n"
        "from berth_sdk.__main__ import main\n"
        "def flood():\n"
        "    time.sleep(0.5)\n"
        "    for i in range(100000):\n"
        "        print('noise', i, file=sys.stderr)\n"
        "        print('noise', i)\n"
        "threading.Thread(target=flood, daemon=True).start()\n"
        "sys.exit(main(['serve', 'support.echo_plugin:Echo']))\n"
    )
    async with attached_host(launched((sys.executable, str(noisy)), "Echo")) as host:
        (place,) = host.attachments.places
        # A busy machine may need more than one start.
        await until(lambda: host.client.available)
        child = place.child
        assert child is not None
        await until(lambda: child.output.dropped > 1000)
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        assert len(child.output.lines) <= 200


@pytest.mark.parametrize("package", ["rpc", "attach"])
def test_row_34_no_deadline_is_measured_on_a_clock_that_steps(package: str) -> None:
    """Deadlines are monotonic: no code of a call reads the wall clock. Only certificates have dates."""
    readings = []
    modules = 0
    for path in (Path(berth_host.__file__).parent / package).rglob("*.py"):
        modules += 1
        if path.name == "tls.py":
            continue
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.Attribute) and found.attr in ("time", "time_ns", "now", "utcnow"):
                readings.append(f"{path.name}:{found.lineno} {ast.unparse(found)}")
    assert modules > 5
    assert [reading for reading in readings if not reading.endswith("loop.time")] == []


async def test_row_34_start_time_from_another_clock_is_no_obstacle(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    reply = plugin.unscripted("Handshake")(None)
    reply.started_at.FromSeconds(1)
    plugin.on("Handshake", lambda _: reply)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


@pytest.mark.slow
async def test_every_call_to_a_stopped_process_ends_at_its_deadline(tmp_path: Path) -> None:
    """Also after so many unanswered calls that gRPC does not enforce the deadlines of later ones."""
    path = tmp_path / "p.sock"
    points = {"filter": PointPolicy(0.02, Policy.FAIL)}
    async with (
        plugin_process(path, ECHO) as process,
        attached_host(at_socket(path, "Echo"), points=points) as host,
    ):
        os.kill(process.pid, signal.SIGSTOP)
        state = Path(f"/proc/{process.pid}/status")
        await until(lambda: "State:\tT" in state.read_text())
        try:
            for _ in range(200):
                async with asyncio.timeout(PATIENCE_S / 2):
                    verdicts = await host.client.filter(host.cycle(), host.nodes)
                assert verdicts.to_list()[0].code is Code.ERROR
                if not host.client.available:
                    break  # the keeper has noticed
        finally:
            os.kill(process.pid, signal.SIGCONT)
