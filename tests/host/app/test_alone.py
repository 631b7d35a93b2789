"""A Framework without a scheduler."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from berth_host.app import Fit, FrameworkAlone
from berth_host.app import alone as alone_module
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.errors.plugins import PluginLoadError
from berth_sdk.pod import Pod
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeView
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
