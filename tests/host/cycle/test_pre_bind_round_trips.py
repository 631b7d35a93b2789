"""Early answers save calls: PreBindPreFlight with Reserve, and the last round of PreBind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Status
from support.hosts import World, node, pod
from support.scripted_plugin import ScriptedPlugin, decided, descriptor


def configuration(path: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n"
        "    reserve: {enabled: [{name: Demo}]}\n    preBind: {enabled: [{name: Demo}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
        "  points: {reserve: {deadline: 10s}, preBind: {deadline: 10s}}\n"
    )


async def asked(path: Path, plugin: ScriptedPlugin) -> dict[str, int]:
    """How often each call came until one pod was placed."""
    async with (
        plugin.serving(path),
        World([node("n1"), pod("web")], configuration=configuration(path)) as world,
    ):
        await world.settle()
        assert world.node_of("web") == "n1"
    return {rpc: len(plugin.requests(rpc)) for rpc in ("Reserve", "PreBindPreFlight", "PreBind")}


@pytest.mark.parametrize(
    ("ctx", "pre_binds"),
    [
        pytest.param(decided(pb.PluginStatus.CODE_SUCCESS), 1, id="success"),
        pytest.param(pb.ReplyContext(), 1, id="no status"),
        pytest.param(decided(pb.PluginStatus.CODE_SKIP), 0, id="skip"),
    ],
)
async def test_pre_flight_is_not_asked_where_reserve_has_answered_it(
    tmp_path: Path, ctx: pb.ReplyContext, pre_binds: int
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "PRE_BIND"))
    early = scheduling_pb2.PreBindPreFlightResponse(ctx=ctx)
    plugin.on("Reserve", lambda _: scheduling_pb2.ReserveResponse(ctx=decided(), early_pre_flight=early))
    found = await asked(tmp_path / "p.sock", plugin)
    assert found == {"Reserve": 1, "PreBindPreFlight": 0, "PreBind": pre_binds}


async def test_pre_flight_is_asked_unless_reserve_answered_it(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "PRE_BIND"))
    assert await asked(tmp_path / "p.sock", plugin) == {"Reserve": 1, "PreBindPreFlight": 1, "PreBind": 1}


@pytest.mark.parametrize(("version", "rounds"), [("", 1), ("1000000", 2)])
async def test_a_round_follows_only_where_a_patch_was_not_applied(
    tmp_path: Path, version: str, rounds: int
) -> None:
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE", "PRE_BIND"))

    def patches(request: Any) -> scheduling_pb2.PreBindResponse:
        change = scheduling_pb2.ObjectPatch(
            resource="pods",
            ref=request.ctx.pod.summary.ref,
            expected_resource_version=version,
            merge_patch_json=json.dumps({"metadata": {"annotations": {"gpu": "3"}}}).encode(),
        )
        return scheduling_pb2.PreBindResponse(ctx=decided(), patches=[change], done_when_applied=True)

    plugin.once("PreBind", patches)
    found = await asked(tmp_path / "p.sock", plugin)
    assert found["PreBind"] == rounds
    outcomes = [[item.outcome for item in request.patched] for request in plugin.requests("PreBind")]
    assert outcomes == [[], [scheduling_pb2.PatchResult.OUTCOME_CONFLICT]][:rounds]


@pytest.mark.parametrize(("version", "outcomes"), [("", [[]]), ("1000000", [[], [PatchOutcome.CONFLICT]])])
async def test_in_process_the_round_after_an_early_pre_bind_is_the_same(
    version: str, outcomes: list[list[PatchOutcome]]
) -> None:
    rounds: list[list[PatchOutcome]] = []

    class Marks:
        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult | Status:
            rounds.append([item.outcome for item in patched])
            if patched:
                return SUCCESS
            change = {"metadata": {"annotations": {"gpu": "3"}}}
            patch = ObjectPatch(
                resource="pods", ref=pod.ref, merge_patch=change, expected_resource_version=version
            )
            return PreBindResult(SUCCESS, (patch,), done_when_applied=True)

    async with World([node("n1"), pod("web")], [Marks]) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
    assert rounds == outcomes


def test_plugin_that_also_waits_gets_another_round_after_its_patches() -> None:
    done = PatchResult(outcome=PatchOutcome.APPLIED, ref=Pod(name="web").ref)
    failed = PatchResult(outcome=PatchOutcome.REFUSED, ref=Pod(name="web").ref)
    assert PreBindResult(SUCCESS, done_when_applied=True).is_done([done, done])
    assert not PreBindResult(SUCCESS, done_when_applied=True).is_done([done, failed])
    assert not PreBindResult(SUCCESS, ask_again_after_s=1.0, done_when_applied=True).is_done([done])
    assert not PreBindResult(SUCCESS).is_done([done])
