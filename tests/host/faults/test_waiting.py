"""Rows 16 and 17 of the failure table, with real processes: decisions about waits at the wrong time."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from support.faults import FailingProcess, configuration, held, in_time, running
from support.hosts import World, node, pod

pytestmark = pytest.mark.slow


class Holder(Plugin):
    """An in-process plugin that holds every pod."""

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait()


IS_BOUND = {
    ("allow", "waits"): True,
    ("reject", "waits"): False,
    ("allow", "denies"): False,
    ("reject", "approves"): True,
}
"""What becomes of a pod, by the early decision and the answer of Permit."""


async def test_row_16_a_decision_before_the_answer_of_permit_counts_with_wait_alone(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="permit")
    async with running(plugin), World([node("n0")], configuration=text) as world:
        for (early, answer), is_bound in IS_BOUND.items():
            name = f"{early}-{answer}"
            world.server.create(pod(name, labels={"early": early, "permit": answer}))
            said = world.node_of if is_bound else world.message_of
            await in_time(functools.partial(said, name))
            assert bool(world.node_of(name)) == is_bound, name
            assert plugin.did("decided")[-1][1] == "STORED_EARLY", name
            assert not len(world.host.waiting_pods), name


async def test_row_17_decisions_for_an_old_cycle_or_twice_have_no_effect(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="permit")
    web = pod("web", labels={"permit": "waits"})
    async with running(plugin), World([node("n0"), web], configuration=text) as world:
        await held(world)
        (waiting,) = world.host.waiting_pods.list()
        uid, cycle = waiting.pod.uid, waiting.cycle_id
        assert await plugin.order("allow", uid, "an-older-cycle") == "STALE_CYCLE"
        assert await plugin.order("reject", "nobody", cycle) == "NOT_WAITING"
        assert len(world.host.waiting_pods) == 1
        assert await plugin.order("allow", uid, cycle) == "APPLIED"
        assert await plugin.order("reject", uid, cycle) in ("ALREADY_DECIDED", "NOT_WAITING")
        await in_time(lambda: world.node_of("web"))


@pytest.mark.long
async def test_row_17_allow_ends_no_wait_of_another_plugin_unless_it_names_the_plugin(tmp_path: Path) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="permit").replace(
        "[{name: Failing}]", "[{name: Failing}, {name: Holder}]"
    )
    async with running(plugin), World([node("n0"), pod("web")], [Holder], configuration=text) as world:
        await held(world)
        (waiting,) = world.host.waiting_pods.list()
        assert await plugin.order("allow", waiting.pod.uid, waiting.cycle_id) == "NOT_PERMITTED"
        assert len(world.host.waiting_pods) == 1
        assert not world.node_of("web")


@pytest.mark.long
async def test_row_17_a_second_decision_of_a_plugin_has_no_effect_while_another_one_holds_the_pod(
    tmp_path: Path,
) -> None:
    plugin = FailingProcess(tmp_path)
    text = configuration(plugin, Failing="permit").replace(
        "[{name: Failing}]", "[{name: Failing}, {name: Holder}]"
    )
    web = pod("web", labels={"permit": "waits"})
    async with running(plugin), World([node("n0"), web], [Holder], configuration=text) as world:
        await held(world)
        (waiting,) = world.host.waiting_pods.list()
        outcomes = [
            await plugin.order(verdict, waiting.pod.uid, waiting.cycle_id) for verdict in ("allow", "allow")
        ]
        assert outcomes == ["APPLIED", "ALREADY_DECIDED"]
        (waiting,) = world.host.waiting_pods.list()
        assert waiting.pending_plugins == ("Holder",)
