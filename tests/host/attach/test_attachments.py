"""Attachments over real sockets: start, refusal, loss, recovery and stop."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.attach import probing, retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.remarks import MAX_REMARKS
from berth_host.attach.state import State
from berth_host.attempt.cycle import CycleEnd
from berth_host.model.backoff import Backoff
from berth_host.rpc.served.statuses import MAX_REASON_BYTES
from berth_sdk.plugin.v1 import identity_pb2, state_pb2
from berth_sdk.status import Code
from berth_sdk.testing.builders import make_pod
from structlog.testing import capture_logs
from support.attached import AttachedHost, at_socket, attached_host, launched, wanted
from support.places import TESTS
from support.plugin_processes import can_connect, plugin_process, serve_command
from support.scripted_plugin import ScriptedPlugin, descriptor, for_ever, refuse
from support.waiting import PATIENCE_S, until

ECHO = "support.echo_plugin:Echo"


@pytest.fixture(autouse=True)
def modules_of_tests_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = TESTS
    monkeypatch.setenv("PYTHONPATH", str(tests))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes and looks at refused places every few hundredths of a second."""
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.05)
    monkeypatch.setattr(probing, "TICK_S", 0.05)
    monkeypatch.setattr(retrying, "REJECTED_LOOK_S", 0.05)


def state_of(host: AttachedHost) -> State:
    (condition,) = host.attachments.conditions()
    return condition.state


def reason_of(host: AttachedHost) -> str:
    (condition,) = host.attachments.conditions()
    return condition.reason


# --- coming up -----------------------------------------------------------------------------------------


async def test_calls_come_in_the_order_of_the_states(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    async with (
        plugin.serving(tmp_path / "p.sock"),
        attached_host(at_socket(tmp_path / "p.sock", "Demo")) as host,
    ):
        assert [rpc for rpc, _ in plugin.asked] == ["Handshake", "Configure", "SyncState", "Probe"]
        assert state_of(host) is State.ACTIVE
        assert host.client.available
        assert host.witness.seen == [("attached", "Demo")]
        handshake, configure = plugin.asked[0][1], plugin.asked[1][1]
        assert handshake.host_epoch == host.state.version.epoch
        assert [(item.major, item.minor) for item in handshake.offered] == [(1, 0)]
        assert (configure.accepted, configure.attachment_id) == (True, handshake.attachment_id)
        assert configure.max_message_bytes == 4 * 1024 * 1024


async def test_state_is_there_before_the_first_call(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    async with (
        plugin.serving(tmp_path / "p.sock"),
        attached_host(at_socket(tmp_path / "p.sock", "Demo")) as host,
    ):
        (chunks,) = plugin.requests("SyncState")
        assert not any(chunk.chunk.HasField("base") for chunk in chunks)
        assert sum(len(chunk.chunk.upserts) for chunk in chunks) == 3
        assert chunks[-1].chunk.target.generation == host.state.version.generation


async def test_an_instance_is_used_only_once_it_is_ready(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    unready = identity_pb2.ProbeResponse(ready=False, instance_id=plugin.instance_id, message="warming up")
    for _ in range(3):
        plugin.once("Probe", lambda _: unready)
    async with (
        plugin.serving(tmp_path / "p.sock"),
        attached_host(at_socket(tmp_path / "p.sock", "Demo")) as host,
    ):
        assert state_of(host) is State.ACTIVE
        assert len(plugin.requests("Probe")) == 4


@pytest.mark.slow
async def test_a_real_server_is_attached_and_answers(tmp_path: Path) -> None:
    async with (
        plugin_process(tmp_path / "p.sock", ECHO),
        attached_host(at_socket(tmp_path / "p.sock", "Echo"), node_count=20) as host,
    ):
        verdicts = await host.client.filter(host.cycle(), host.nodes)
        assert verdicts.passed.tolist() == (host.nodes.slots % 7 != 3).tolist()


@pytest.mark.slow
async def test_a_child_is_launched_attached_and_ended_with_the_host(tmp_path: Path) -> None:
    async with attached_host(launched(serve_command(ECHO), "Echo")) as host:
        (place,) = host.attachments.places
        assert state_of(host) is State.ACTIVE
        assert (await host.client.filter(host.cycle(), host.nodes)).passed.any()
        child = place.child
        assert child is not None
    assert "exited with code 0" in await child.ended()
    assert state_of(host) is State.CLOSED


async def test_two_plugins_of_one_process_share_its_attachment(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("A", "FILTER"), descriptor("B", "SCORE"))
    async with (
        plugin.serving(tmp_path / "p.sock"),
        attached_host(at_socket(tmp_path / "p.sock", "A", "B")) as host,
    ):
        assert len(plugin.requests("Handshake")) == 1
        (configure,) = plugin.requests("Configure")
        assert [item.name for item in configure.plugins] == ["A", "B"]
        assert all(client.available for client in host.clients.values())


async def test_plugin_behind_loopback_tcp_is_attached(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    server = plugin.server("127.0.0.1:0")
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        place = Place(endpoint=f"127.0.0.1:{port}", plugins=(wanted("Demo"),))
        async with attached_host(place) as host:
            assert state_of(host) is State.ACTIVE
    finally:
        await server.stop(0)


async def test_plugin_that_the_instance_does_not_serve_is_absent_with_that_reason(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("A", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "A", "B")) as host:
        assert host.clients["A"].available
        assert not host.clients["B"].available
        assert host.clients["B"].absence.message == (
            f'plugin "B" is not served by the instance at unix://{path}'
        )


# --- being refused -------------------------------------------------------------------------------------


async def test_foreign_contract_is_refused_with_both_versions(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    reply = plugin.unscripted("Handshake")(None)
    reply.supported[0].major = 2
    plugin.on("Handshake", lambda _: reply)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert state_of(host) is State.REJECTED
        (verdict,) = plugin.requests("Configure")
        assert not verdict.accepted
        assert "the host supports 1.0, the plugin supports 2.0" in verdict.reason
        assert verdict.reason == reason_of(host)
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert 'plugin "Demo" is not attached: incompatible contract' in status.message


@pytest.mark.long
@pytest.mark.slow
async def test_refused_instance_is_left_alone_until_another_socket_takes_its_place(
    tmp_path: Path, quick: None
) -> None:
    stranger = ScriptedPlugin(descriptor("Stranger", "FILTER"))
    path = tmp_path / "p.sock"
    async with attached_host(at_socket(path, "Demo"), patience_s=0.0) as host:
        async with stranger.serving(path):
            await until(lambda: state_of(host) is State.REJECTED)
            await asyncio.sleep(0.3)
            assert len(stranger.requests("Handshake")) == 1
        async with ScriptedPlugin(descriptor("Demo", "FILTER")).serving(path):
            await until(lambda: state_of(host) is State.ACTIVE)


async def test_arguments_that_the_plugin_refuses_are_final(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(error="limit must be positive"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert state_of(host) is State.REJECTED
        assert reason_of(host) == "refuses its arguments: limit must be positive"
        assert not plugin.requests("SyncState")


@pytest.mark.parametrize("field", ["error", "warnings"])
async def test_texts_of_an_instance_are_bounded(tmp_path: Path, field: str) -> None:
    said: dict[str, Any] = {"error": "e" * 2_000_000, "warnings": [f"w{n}" for n in range(10_000)]}
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(**{field: said[field]}))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        (condition,) = host.attachments.conditions()
        assert len(condition.reason) <= MAX_REASON_BYTES
        assert len(condition.warnings) <= MAX_REMARKS + 1
        assert condition.reason or condition.warnings


async def test_warnings_of_both_sides_are_in_the_condition(tmp_path: Path) -> None:
    message = descriptor("Demo", "FILTER")
    message.points.append(66)  # type: ignore[arg-type]  # from a newer contract
    plugin = ScriptedPlugin(message)
    plugin.on("Configure", lambda _: identity_pb2.ConfigureResponse(warnings=["limit is low"]))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        (condition,) = host.attachments.conditions()
        assert condition.warnings == (
            "plugin Demo declares the unknown extension point 66, which is ignored",
            "limit is low",
        )


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        ("Handshake", grpc.StatusCode.FAILED_PRECONDITION),
        ("Handshake", grpc.StatusCode.INTERNAL),
        ("Configure", grpc.StatusCode.UNAVAILABLE),
        ("SyncState", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("Probe", grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_each_step_that_fails_is_tried_again_from_the_first(
    tmp_path: Path, rpc: str, code: grpc.StatusCode
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.once(rpc, refuse(code))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert state_of(host) is State.ACTIVE
        ids = [request.attachment_id for request in plugin.requests("Handshake")]
        assert len(ids) == 2
        assert len(set(ids)) == 2


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("rpc", ["Handshake", "Configure", "SyncState", "Probe", "Reconcile"])
async def test_each_step_whose_answer_cannot_be_read_is_tried_again_and_says_so(
    tmp_path: Path, rpc: str
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER", "RESERVE"))
    plugin.once(rpc, lambda _: b"\xff\xff\xff")
    path = tmp_path / "p.sock"
    with capture_logs() as log:
        async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
            assert state_of(host) is State.ACTIVE
    told = [str(line.get("reason") or line.get("error")) for line in log]
    assert f'plugin "Demo" answered what is no reply to it at {rpc}' in told


@pytest.mark.slow
async def test_probes_that_cannot_be_read_are_missed_probes(tmp_path: Path, quick: None) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    with capture_logs() as log:
        async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
            for _ in range(3):
                plugin.once("Probe", lambda _: b"\xff\xff\xff")
            await until(lambda: len(plugin.requests("Probe")) >= 5)
            await until(lambda: state_of(host) is State.ACTIVE)
    told = [str(line.get("reason")) for line in log]
    assert "plugin Demo did not answer 3 probes: answered what is no reply to it" in told


@pytest.mark.slow
async def test_a_sync_that_needs_everything_gets_everything(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.once("SyncState", lambda _: state_pb2.SyncStateResponse(need_full=True))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert state_of(host) is State.ACTIVE
        assert len(plugin.requests("SyncState")) == 2


# --- being there ---------------------------------------------------------------------------------------


async def test_idle_copy_is_brought_up_to_date_in_the_background(tmp_path: Path, quick: None) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        host.state.put(make_pod("x", uid="x"), "n1")
        version = host.state.version
        await until(lambda: plugin.held is not None and plugin.held.generation == version.generation)
        assert plugin.requests("SyncState")[-1][0].chunk.HasField("base")
        await until(lambda: host.attachments.confirmed_generation() == version.generation)


async def test_instance_that_is_not_ready_any_more_gets_no_new_cycle(tmp_path: Path, quick: None) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        reply = identity_pb2.ProbeResponse(ready=False, instance_id=plugin.instance_id, message="no database")
        plugin.on("Probe", lambda _: reply)
        await until(lambda: not host.client.available)
        assert host.client.absence.message == 'plugin "Demo" is not ready: no database'
        reply.ready = True
        await until(lambda: host.client.available)
        assert [entry[0] for entry in host.witness.seen] == ["attached", "lost", "attached"]


@pytest.mark.slow
async def test_instance_that_misses_three_probes_is_not_asked_until_it_answers_one(
    tmp_path: Path, quick: None
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        well = identity_pb2.ProbeResponse(ready=True, instance_id=plugin.instance_id)
        plugin.on("Probe", refuse(grpc.StatusCode.INTERNAL))
        await until(lambda: state_of(host) is State.DEGRADED)
        assert "did not answer 3 probes" in reason_of(host)
        context = host.cycle()
        verdicts = await host.client.filter(context, host.nodes)
        assert not verdicts.passed.any()
        assert plugin.requests("Filter") == []
        assert "is not asked until it is well again (it did not answer 3 probes" in str(verdicts.statuses)
        plugin.on("Probe", lambda _: well)
        await until(lambda: state_of(host) is State.ACTIVE)
        assert len(plugin.requests("Handshake")) == 1
        assert host.witness.seen == [("attached", "Demo"), ("attached", "Demo")]


@pytest.mark.slow
async def test_another_instance_at_the_same_socket_begins_a_new_attachment(
    tmp_path: Path, quick: None
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        plugin.instance_id = "the-other-one"
        await until(lambda: len(plugin.requests("Handshake")) == 2)
        await until(lambda: state_of(host) is State.ACTIVE)
        (condition,) = host.attachments.conditions()
        assert condition.instance_id == "the-other-one"


# --- being lost and coming back --------------------------------------------------------------------------


@pytest.mark.slow
async def test_killed_process_is_attached_and_synchronised_again_when_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    async with (
        plugin_process(path, ECHO) as process,
        attached_host(at_socket(path, "Echo")) as host,
    ):
        await process.kill()
        lost = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert lost.code is Code.ERROR
        await until(lambda: not host.client.available)
        host.state.put(make_pod("x", uid="x"), "n1")
        await process.start()
        await until(lambda: host.client.available)
        assert (await host.client.filter(host.cycle(), host.nodes)).passed.tolist() == [True] * 3
        assert host.attachments.recoveries == 2


@pytest.mark.long
@pytest.mark.slow
async def test_process_that_comes_late_is_not_made_to_wait_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backoff concerns the process that failed; a new socket belongs to another process."""
    monkeypatch.setattr(Backoff, "next_s", lambda _: 3600.0)
    path = tmp_path / "p.sock"
    async with attached_host(at_socket(path, "Echo"), patience_s=0.0) as host:
        await until(lambda: state_of(host) is State.BACKOFF)
        async with plugin_process(path, ECHO) as process:
            await until(lambda: host.client.available)
            await process.kill()
            await until(lambda: state_of(host) is State.BACKOFF)
            await process.start()
            await until(lambda: host.client.available)


@pytest.mark.long
@pytest.mark.slow
async def test_stop_needs_no_other_instance_of_a_plugin_that_dies_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "next_s", lambda _: 3600.0)
    path = tmp_path / "p.sock"
    async with attached_host(at_socket(path, "Echo"), patience_s=0.0) as host:
        async with plugin_process(path, ECHO):
            await until(lambda: host.client.available)
        async with asyncio.timeout(PATIENCE_S / 2):
            await host.attachments.stop()


@pytest.mark.slow
async def test_killed_child_is_started_again(tmp_path: Path) -> None:
    async with attached_host(launched(serve_command(ECHO), "Echo")) as host:
        (place,) = host.attachments.places
        first, child = place.instance_id, place.child
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        await until(lambda: host.attachments.recoveries == 2)
        assert place.instance_id != first
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


@pytest.mark.slow
async def test_loss_says_how_the_child_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "CHILD_END_S", PATIENCE_S)
    async with attached_host(launched(serve_command(ECHO), "Echo")) as host:
        (place,) = host.attachments.places
        assert place.child is not None
        os.kill(place.child.pid, signal.SIGKILL)
        # The wait of the back-off may be over before a look; the reason stays until the next one is there.
        await until(lambda: "its process was ended by signal 9" in reason_of(host))


@pytest.mark.long
@pytest.mark.slow
async def test_restarting_instance_is_waited_for_and_one_that_never_came_is_not(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    async with attached_host(at_socket(path, "Echo"), patience_s=0.0) as host:
        assert not host.attachments.restoring
        async with plugin_process(path, ECHO) as process:
            await until(lambda: host.client.available)
            await process.kill()
            await until(lambda: not host.client.available)
            assert host.attachments.restoring


@pytest.mark.slow
async def test_unreserve_without_an_instance_reaches_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    first, second = (ScriptedPlugin(descriptor("Demo", "RESERVE")) for _ in range(2))
    async with attached_host(at_socket(path, "Demo"), patience_s=0.0) as host:
        async with first.serving(path):
            await until(lambda: host.client.available)
            cycle = host.cycle()
            await host.client.reserve(cycle, "n0")
        await host.client.unreserve(cycle, "n0", "the bind failed")
        host.client.end_cycle(cycle, CycleEnd.ABORTED)
        async with second.serving(path):
            await until(lambda: bool(second.requests("Unreserve")))
            (request,) = second.requests("Unreserve")
            (item,) = request.items
            assert (item.cycle_id, item.node_name, item.reason) == (cycle.cycle_id, "n0", "the bind failed")


# --- going -----------------------------------------------------------------------------------------------


async def test_stop_drains_and_waits_for_what_is_open(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER", "BIND"))
    path = tmp_path / "p.sock"
    released = asyncio.Event()

    async def slow(_request: Any) -> Any:
        await released.wait()
        return plugin.unscripted("Bind")(None)

    plugin.on("Bind", slow)
    async with plugin.serving(path):
        async with attached_host(at_socket(path, "Demo")) as host:
            bind = asyncio.ensure_future(host.client.bind(host.cycle(), "n0"))
            await until(lambda: bool(plugin.requests("Bind")))
            stopping = asyncio.ensure_future(host.attachments.stop())
            await until(lambda: bool(plugin.requests("Drain")))
            assert not host.client.available
            released.set()
            await stopping
            assert (await bind).host_binds
        (request,) = plugin.requests("Drain")
        assert request.final
        assert request.grace.ToTimedelta().total_seconds() == 30.0


async def test_stop_does_not_wait_for_instances_that_never_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "BIND"))
    plugin.on("Bind", for_ever)
    plugin.on("Drain", for_ever)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        bind = asyncio.ensure_future(host.client.bind(host.cycle(), "n0"))
        await until(lambda: bool(plugin.requests("Bind")))
        async with asyncio.timeout(PATIENCE_S):  # less than the ten minutes that Bind has
            await host.attachments.places[0].stop(grace_s=0.2)
        # The channel was closed under the call: an unknown outcome, not a cancelled task.
        assert (await bind).status.code is Code.ERROR


async def test_stop_before_anything_was_attached_is_harmless(tmp_path: Path) -> None:
    async with attached_host(at_socket(tmp_path / "p.sock", "Demo"), patience_s=0.0) as host:
        assert state_of(host) is State.BACKOFF
    assert state_of(host) is State.CLOSED
    assert not can_connect(tmp_path / "p.sock")


async def test_a_plugin_that_becomes_another_one_by_its_arguments_is_refused(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "FILTER"))
    changed = identity_pb2.ConfigureResponse(plugins=[descriptor("Demo", "FILTER", "SCORE")])
    plugin.once("Configure", lambda _: changed)
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        assert state_of(host) is State.REJECTED
        assert "declares another points in the answer to Configure" in reason_of(host)
        accepted, refused = plugin.requests("Configure")
        assert (accepted.accepted, refused.accepted) == (True, False)
        assert refused.reason == reason_of(host)
        assert not plugin.requests("SyncState")
