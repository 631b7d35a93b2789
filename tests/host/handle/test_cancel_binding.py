"""`Handle.cancel_binding` under the whole host: the pod gives its node back and is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.cancels_bindings import ASKS, HELD, SELF
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.waiting import PATIENCE_S

CLASS = "support.cancels_bindings:CancelsBindings"


def configuration(where: str, folder: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: CancelsBindings}]}}\n"
        f"  pluginConfig: [{{name: CancelsBindings, args: {{folder: {folder}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: CancelsBindings\n  {where}\n  required: true\n"
        "  points: {reserve: {deadline: 10s}, preBind: {deadline: 60s}}\n"
    )


@pytest.fixture(params=["in process", "served"])
async def where(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where the plugin is, as its configuration says."""
    if request.param == "in process":
        yield f"inProcess: '{CLASS}'"
        return
    async with plugin_process(tmp_path / "p.sock", CLASS) as process:
        yield f"endpoint: '{process.endpoint}'"


def messages(world: World, name: str) -> list[str]:
    """Return the messages of the failed attempts for the pod."""
    found = world.host.diagnoses.find(f"default/{name}")
    assert found is not None
    return [attempt.message for attempt in found.attempts() if attempt.message]


async def test_cancelled_binding_of_a_pod_in_pre_bind_is_undone_and_the_pod_requeued(
    where: str, tmp_path: Path
) -> None:
    async with World([node("n0"), pod(HELD)], configuration=configuration(where, tmp_path)) as world:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread((tmp_path / HELD).exists):
                await asyncio.sleep(0.005)
        world.server.create(pod(ASKS))
        await world.settle()
        assert (world.node_of(HELD), world.node_of(ASKS)) == ("n0", "n0")
        assert messages(world, HELD) == ['cancelled by plugin "CancelsBindings": no more room']
        assert world.everything_is_accounted_for()
    log = await asyncio.to_thread((tmp_path / "log").read_text)
    answers = ["NOT_IN_PRE_BIND", "STALE_CYCLE", "CANCELLED", "NOT_IN_PRE_BIND"]
    lines = log.splitlines()
    assert [line for line in lines if line.isupper()] == answers
    assert sorted(line for line in lines if not line.isupper()) == [
        f"pre_bind {ASKS}",
        f"pre_bind {HELD}",
        f"pre_bind {HELD}",
        f"unreserve {HELD}",
    ]


async def test_plugin_cancels_the_binding_of_the_pod_of_its_own_call(tmp_path: Path) -> None:
    text = configuration(f"inProcess: '{CLASS}'", tmp_path)
    async with World([node("n0"), pod(SELF)], configuration=text) as world:
        await world.settle()
        assert world.node_of(SELF) == "n0"
        assert messages(world, SELF) == ['cancelled by plugin "CancelsBindings": changed its mind']
    log = await asyncio.to_thread((tmp_path / "log").read_text)
    assert log.splitlines() == [
        f"pre_bind {SELF}",
        "CANCELLED",
        f"unreserve {SELF}",
        f"pre_bind {SELF}",
    ]
