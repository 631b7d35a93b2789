"""Sidecars under a whole host: they come, are replaced, hang, answer wrongly, and what a user sees."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.endpoints.pages import plugins_answer
from berth_host.model.user import User
from berth_host.rpc.failure_record import DRIFTS, VIOLATIONS
from berth_sdk.kube_object import ObjectRef
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess, plugin_environment
from support.serving import FakeProcess, KnownUsers, served
from support.waiting import PATIENCE_S, until

ECHO = "support.echo_plugin:Echo"
OWN_POD = ObjectRef(name="berth-0", namespace="kube-system", uid="u-1")
READS = User(name="reads", groups=("system:masters",))


def configuration(folder: Path, *, policy: str = "Ignore", deadline: str = "250ms") -> str:
    """Echo filters and scores; sidecars bring it."""
    enabled = "".join(f"    {point}: {{enabled: [{{name: Echo}}]}}\n" for point in ("filter", "score"))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"socketFolder: {folder}\nplugins:\n- name: Echo\n"
        f"  required: false\n"
        f"  points: {{filter: {{policy: {policy}, deadline: {deadline}}}, score: {{policy: Neutral}}}}\n"
    )


def plugin(world: World) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (one for one in plugins_answer(world.host)["plugins"] if one["name"] == "Echo")
    return found


@asynccontextmanager
async def sidecar(world: World, folder: Path, name: str) -> AsyncIterator[PluginProcess]:
    """One that is attached, and is gone afterwards."""
    process = PluginProcess(folder / f"{name}.sock", ECHO)
    try:
        await process.start()
        await until(lambda: states(world).get(f"{name}.sock") in ("Active", "Standby"))
        yield process
    finally:
        if process.pid:
            os.kill(process.pid, signal.SIGCONT)
        await process.kill()


def events(world: World) -> list[tuple[str, str]]:
    """Type and reason of the events about the host's own pod, in their order."""
    return [(one.type, one.reason) for one in world.server.events.recent if one.regarding.key == OWN_POD.key]


def states(world: World) -> dict[str, str]:
    found = plugin(world)
    instances = [one for one in (found["attachment"], *found["otherInstances"]) if one is not None]
    return {Path(one["place"]).name: one["state"] for one in instances}


def cluster(pods: int) -> list[dict[str, Any]]:
    return [*(node(f"n{number}") for number in range(10)), *(pod(f"p{number}") for number in range(pods))]


@pytest.mark.slow
async def test_row_7_hot_swap_and_fall_back_are_seen_by_whoever_watches(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    async with (
        World(cluster(3), configuration=configuration(folder), own_pod=OWN_POD) as world,
        sidecar(world, folder, "one"),
    ):
        process = FakeProcess(world.host.configuration, world.host)
        async with served(process, KnownUsers({"reads": READS})) as port:
            watch = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "berth_host", "plugins", "--watch", "--token", "reads"),
                *(
                    "--server",
                    f"https://127.0.0.1:{port.endpoints.server.port}",
                    "--insecure-skip-tls-verify",
                ),
                stdout=asyncio.subprocess.PIPE,
                env=plugin_environment(),
            )
            try:
                await _rows(watch, {"one.sock": "Active"})
                async with sidecar(world, folder, "two"):
                    await _rows(watch, {"two.sock": "Active", "one.sock": "Standby"})
                await _rows(watch, {"one.sock": "Active"})
                watch.send_signal(signal.SIGINT)
                async with asyncio.timeout(PATIENCE_S):
                    assert await watch.wait() == 130
            finally:
                if watch.returncode is None:
                    watch.kill()
                await watch.communicate()
        await world.settle()
        assert all(world.node_of(f"p{number}") for number in range(3))
        assert ("Normal", "PluginSwapped") in events(world)
        back = world.server.events.latest("PluginFellBack", OWN_POD.key)
        assert back is not None
        assert back.note.endswith(", an older one: lost its instance")


async def _rows(watch: asyncio.subprocess.Process, wanted: dict[str, str]) -> None:
    """Read on until Echo's rows show these states."""
    assert watch.stdout is not None
    rows: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE_S):
        while {name: rows.get(name) for name in wanted} != wanted:
            words = (await watch.stdout.readline()).decode().split()
            assert watch.returncode is None
            if words[:1] == ["NAME"]:
                rows = {}
            elif words[:1] == ["Echo"] and len(words) > 2:
                rows[Path(words[1]).name] = words[2]


@pytest.mark.long
@pytest.mark.slow
async def test_row_23_hung_sidecar_costs_a_few_deadlines_and_is_asked_again_when_it_goes_on(
    tmp_path: Path,
) -> None:
    """The circuit breaker opens, the policy applies at once; an answered probe and one call
    that passes every check close it.
    """
    pods = 60
    async with (
        World(cluster(0), configuration=configuration(tmp_path), is_patient=False) as world,
        sidecar(world, tmp_path, "one") as process,
    ):
        os.kill(process.pid, signal.SIGSTOP)
        for number in range(pods):
            world.cluster.server.create(pod(f"p{number}"))
        settling = asyncio.create_task(world.settle())
        await until(lambda: all(world.node_of(f"p{number}") for number in range(pods)))
        calls = world.host.plugin_stats()["Echo"].of("Filter")
        assert calls.failures["timeout"] < pods / 2
        assert calls.failures["circuit_open"] > pods / 2
        found = plugin(world)
        assert found["attachment"]["state"] == "Degraded"
        assert found["circuits"]["filter"]["state"] == "Open"
        assert "did not answer within 250 ms" in found["circuits"]["filter"]["lastFailure"]

        os.kill(process.pid, signal.SIGCONT)
        await settling
        assert plugin(world)["circuits"]["filter"]["state"] == "HalfOpen"
        world.cluster.server.create(pod("after"))
        await world.settle()
        await until(lambda: plugin(world)["attachment"]["state"] == "Active")
        assert calls.calls > calls.failed


@pytest.mark.long
@pytest.mark.slow
async def test_row_24_sidecar_that_answers_wrongly_again_and_again_is_in_quarantine_until_another_comes(
    tmp_path: Path,
) -> None:
    invalid = PluginProcess(tmp_path / "invalid.sock", "support.invalid_plugin:Echo")
    text = configuration(tmp_path, deadline="5s")
    async with World(cluster(0), configuration=text, own_pod=OWN_POD) as world:
        try:
            await invalid.start()
            await until(lambda: states(world).get("invalid.sock") == "Active")
            for number in range(VIOLATIONS):
                world.cluster.server.create(pod(f"p{number}"))
            await world.settle()
            await until(lambda: states(world)["invalid.sock"] == "Quarantined")
            found = plugin(world)
            assert "broke the contract 3 times within 60 s" in found["attachment"]["reason"]
            assert not found["available"]
            assert found["violations"] == 3
            async with sidecar(world, tmp_path, "honest"):
                assert states(world) == {"honest.sock": "Active", "invalid.sock": "Quarantined"}
                assert plugin(world)["attachment"]["place"].endswith("/honest.sock")
                assert plugin(world)["available"]
                world.cluster.server.create(pod("after"))
                await world.settle()
                assert int(world.node_of("after")[1:]) % 7 != 3
            assert events(world)[:3] == [
                ("Normal", "PluginActive"),
                ("Warning", "PluginQuarantined"),
                ("Normal", "PluginActive"),
            ]
        finally:
            await invalid.kill()


@pytest.mark.long
@pytest.mark.slow
async def test_row_19_sidecar_whose_copy_drifts_gets_it_anew_and_is_in_quarantine_the_third_time(
    tmp_path: Path,
) -> None:
    drifting = PluginProcess(tmp_path / "drifting.sock", "support.drifting_plugin:Echo")
    async with World(cluster(0), configuration=configuration(tmp_path, deadline="5s")) as world:
        try:
            await drifting.start()
            await until(lambda: states(world).get("drifting.sock") == "Active")
            # Each pod spoils the copy, and brings a change that does not fit the one spoilt before.
            for number in range(1 + DRIFTS):
                assert plugin(world)["available"]
                world.cluster.server.create(pod(f"p{number}"))
                await world.settle()
                assert world.host.drifts() == {"Echo": number}
                assert int(world.node_of(f"p{number}")[1:]) % 7 != 3
            await until(lambda: states(world)["drifting.sock"] == "Quarantined")
            assert "lost its copy of the cluster's state 3 times" in plugin(world)["attachment"]["reason"]
            async with sidecar(world, tmp_path, "honest"):
                assert states(world) == {"honest.sock": "Active", "drifting.sock": "Quarantined"}
        finally:
            await drifting.kill()
