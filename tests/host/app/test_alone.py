"""A Framework without a scheduler."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from berth_host.app import Fit, FrameworkAlone, Simulate, TryGroup, WhatIf
from berth_host.app import alone as alone_module
from berth_host.attempt.cycle import Cycle
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.errors.plugins import CycleRestartError, PluginLoadError
from berth_sdk import CycleState, Plugin
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable, NodeView
from berth_sdk.testing import make_node, make_pod
from support.hosts import enabling
from support.only_even import OnlyEven
from support.plugin_processes import plugin_environment


async def test_each_node_shape_gets_its_own_answer() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0", cpu="1"))
    alone.add_node(make_node("n1", cpu="4"))
    verdicts = (await alone.ask(Fit(make_pod("web", cpu="2")))).verdicts
    assert verdicts["n1"].is_success
    assert (verdicts["n0"].plugin, verdicts["n0"].message) == ("NodeResourcesFit", "Insufficient cpu")


async def test_pods_on_a_node_and_nominated_to_it_count() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0", cpu="2"))
    alone.add_pod(make_pod("old", cpu="1", node="n0"))
    pod = make_pod("web", cpu="1")
    assert (await alone.ask(Fit(pod))).verdicts["n0"].is_success
    promised = make_pod("first", cpu="1", nominated="n0", priority=5)
    assert (await alone.ask(Fit(pod, [promised]))).verdicts["n0"].message == "Insufficient cpu"


async def test_framework_alone_runs_the_plugins_of_the_program() -> None:
    text = enabling(["OnlyEven"])
    configuration = load_configuration(text, source="x", registered={"OnlyEven": frozenset({"filter"})})
    alone = FrameworkAlone(configuration, plugins={"OnlyEven": OnlyEven})
    for i in range(2):
        alone.add_node(make_node(f"n{i}"))
    verdicts = (await alone.ask(Fit(make_pod("web")))).verdicts
    assert verdicts["n0"].is_success
    assert verdicts["n1"] == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("odd",), "OnlyEven")


async def test_rejection_by_pre_filter_holds_for_every_node() -> None:
    class Never:
        def pre_filter(self, state: object, pod: Pod, nodes: object) -> Status:
            return Status.unresolvable("never")

        def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
            return Status.success()

    text = enabling(["Never"])
    registered = {"Never": frozenset({"preFilter", "filter"})}
    alone = FrameworkAlone(
        load_configuration(text, source="x", registered=registered), plugins={"Never": Never}
    )
    alone.add_node(make_node("n0"))
    assert (await alone.ask(Fit(make_pod("web")))).verdicts["n0"].message == "never"


def test_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match="nobody"):
        FrameworkAlone(scheduler_name="nobody")


def served(where: str) -> LoadedConfiguration:
    more = (
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: OnlyEven\n  {where}\n  points: {{filter: {{deadline: 10s}}}}\n"
        "cycleBudget: 10s\n"
    )
    return load_configuration(enabling(["OnlyEven"], more), source="x")


def nodes_and_pods(alone: FrameworkAlone) -> None:
    for number in range(4):
        alone.add_node(make_node(f"n{number}", cpu="2"))
    alone.add_pod(make_pod("big", cpu="2", node="n2"))


async def test_served_plugin_gives_the_verdicts_that_it_gives_in_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    in_process = FrameworkAlone(
        load_configuration(
            enabling(["OnlyEven"]), source="x", registered={"OnlyEven": frozenset({"filter"})}
        ),
        plugins={"OnlyEven": OnlyEven},
    )
    command = f'command: [{sys.executable}, -m, berth_sdk, serve, "support.only_even:OnlyEven"]'
    async with FrameworkAlone(served(command)) as alone:
        for framework in (in_process, alone):
            nodes_and_pods(framework)
        web = make_pod("web", cpu="1")
        wanted = (await in_process.ask(Fit(web))).verdicts
        assert {name: status.message for name, status in wanted.items()} == {
            "n0": "",
            "n1": "odd",
            "n2": "Insufficient cpu",
            "n3": "odd",
        }
        assert (await alone.ask(Fit(web))).verdicts == wanted
        alone.add_node(make_node("n4", cpu="2"))  # what is added later reaches the plugin, too
        assert (await alone.ask(Fit(web))).verdicts["n4"].is_success


async def test_absent_served_plugin_makes_every_node_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(alone_module, "ATTACH_S", 0.0)
    async with FrameworkAlone(served(f"endpoint: unix://{tmp_path}/far.sock")) as alone:
        nodes_and_pods(alone)
        verdict = (await alone.ask(Fit(make_pod("web")))).verdicts["n0"]
        assert verdict.code is Code.ERROR
        assert "OnlyEven" in verdict.message


async def test_error_of_a_framework_that_was_not_entered_names_the_cure() -> None:
    alone = FrameworkAlone(served("endpoint: unix:///run/far.sock"))
    with pytest.raises(PluginLoadError, match="async with FrameworkAlone"):
        await alone.ask(Fit(make_pod("web")))


async def test_fit_names_the_plugins_that_would_keep_the_pod_out_of_the_queue() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0"))
    gated = replace(make_pod("web"), scheduling_gates=("example.com/a",))
    found = await alone.ask(Fit(gated))
    assert [(gate.plugin, gate.message) for gate in found.gates] == [
        ("SchedulingGates", "waiting for scheduling gates: [example.com/a]")
    ]
    open_now = await alone.ask(Fit(make_pod("web")))
    assert (found.node, found.fits_now, open_now.fits_now) == ("n0", False, True)


class Waits(Plugin):
    """Lets others run within each question."""

    async def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        await asyncio.sleep(0)
        return Verdicts.feasible(len(nodes))


def waiting() -> FrameworkAlone:
    registered = {"Waits": frozenset({"filter"})}
    configuration = load_configuration(
        enabling(["Waits"]), source="x", registered=registered, feature_gates={"GenericWorkload": True}
    )
    alone = FrameworkAlone(configuration, plugins={"Waits": Waits})
    alone.add_node(make_node("n0", cpu="2"))
    return alone


async def test_questions_at_once_are_answered_one_after_the_other() -> None:
    alone = waiting()
    asked = (Fit(make_pod("web", cpu=cpu)) for cpu in ("1", "2", "3"))
    found = await asyncio.gather(*(alone.ask(question) for question in asked))
    assert [answer.node for answer in found] == ["n0", "n0", ""]
    group = PodGroup(name="g", is_gang=True, min_count=1)
    tries = (TryGroup(group, [make_pod(name, cpu="2")]) for name in ("a", "b"))
    assert [one.fits for one in await asyncio.gather(*(alone.ask(question) for question in tries))] == [
        True,
        True,
    ]


def test_questions_may_come_from_one_loop_after_the_other() -> None:
    alone = waiting()

    async def both() -> list[str]:
        found = await asyncio.gather(*(alone.ask(Fit(make_pod(name, cpu="1"))) for name in "ab"))
        return [answer.node or "" for answer in found]

    assert [asyncio.run(both()) for _ in range(2)] == [["n0", "n0"]] * 2


async def test_simulation_that_is_run_after_its_plugins_are_gone_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(alone_module, "ATTACH_S", 0.0)
    alone = FrameworkAlone(served(f"endpoint: 'unix://{tmp_path}/p.sock'"))
    nodes_and_pods(alone)
    async with alone:
        simulation = await alone.ask(Simulate(pods=[make_pod("web")]))
    with pytest.raises(PluginLoadError, match="attaches it for the block"):
        await simulation.placements()


async def test_what_if_about_a_node_that_is_there_begins_anew_once_when_a_plugin_lost_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = waiting()
    run, restarted = alone.framework.run_pre_filter, []

    async def lost(cycle: Cycle) -> Any:
        restarted.append(cycle.restarted)
        if len(restarted) == 1:
            raise CycleRestartError("Waits", "it was killed")
        return await run(cycle)

    monkeypatch.setattr(alone.framework, "run_pre_filter", lost)
    assert await alone.ask(WhatIf(make_pod("web"), [Scenario("n0")])) == [SUCCESS]
    assert restarted == [False, True]
