"""What the host leaves out for a plugin that answers Reserve with SKIP, and what not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_host.cli.rendering.why import attempt_parts
from berth_host.explain.explanation import Explanation, explanation_of
from berth_host.metrics.plugin_stats import PluginStats
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.status import Status
from support.groups import GROUPS, member, pod_group
from support.holds_some import HoldsSome
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.scripted_plugin import ScriptedPlugin, decided, descriptor
from support.waiting import until

POINTS = ("reserve", "permit", "preBind", "postBind")
BEFORE_BINDING = ["reserve", "permit"]
WHOLE = [*BEFORE_BINDING, "pre_bind_pre_flight", "pre_bind", "post_bind"]
SKIPPED = decided(pb.PluginStatus.CODE_SKIP)
Make = Callable[..., AbstractAsyncContextManager["Seen"]]


class Seen:
    """A world and what its plugin was asked."""

    def __init__(self, world: World, log: Path) -> None:
        self.world = world
        self._log = log

    def calls(self, name: str) -> list[str]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [call for whom, call in lines if whom == name]

    @property
    def stats(self) -> PluginStats:
        return self.world.host.plugin_stats()["HoldsSome"]


def configuration(where: str, log: Path, name: str = "HoldsSome") -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: {name}}}]}}\n" for point in POINTS)
    deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in ("reserve", "permit", "preBind"))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}  pluginConfig:\n  - name: {name}\n    args: {{log: {log}}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: {name}\n  {where}\n  required: true\n  points: {{{deadlines}}}\n"
    )


@pytest.fixture(params=["in process", "served"])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes a host with the plugin, in process or served."""

    @asynccontextmanager
    async def made(
        *objects: Mapping[str, Any], gates: Mapping[str, bool] | None = None
    ) -> AsyncIterator[Seen]:
        log = tmp_path / "calls"
        log.touch()
        if request.param == "in process":
            text = configuration(f"inProcess: {HoldsSome.__module__}:HoldsSome", log)
            async with World(objects, configuration=text, gates=gates) as world:
                yield Seen(world, log)
            return
        async with plugin_process(tmp_path / "p.sock", "support.holds_some:HoldsSome") as process:
            text = configuration(f"endpoint: {process.endpoint}", log)
            async with World(objects, configuration=text, gates=gates) as world:
                yield Seen(world, log)

    return made


def attempt_text(world: World, name: str) -> str:
    """Return what `berth why` says of the latest attempt."""
    latest = world.host.diagnoses.find(f"default/{name}")
    explanation = explanation_of(f"default/{name}", world.node_of(name), "", latest)
    again = Explanation.from_json(json.loads(json.dumps(explanation.as_json())))
    assert attempt_parts(again) == attempt_parts(explanation)
    return "\n".join(attempt_parts(again))


@pytest.mark.slow
async def test_pod_for_which_nothing_is_held_costs_two_calls_instead_of_five(seen: Make) -> None:
    async with seen(node("n1"), pod("other"), pod("mine", labels={"holds": "yes"})) as made:
        world = made.world
        await world.settle()
        assert {name: world.node_of(name) for name in ("other", "mine")} == {"other": "n1", "mine": "n1"}
        await until(lambda: "post_bind" in made.calls("mine"))
        assert made.calls("mine") == WHOLE
        assert made.calls("other") == BEFORE_BINDING
        counts = {call: figures.calls for call, figures in made.stats.items()}
        assert (counts["Reserve"], counts["Permit"], counts["PreBindPreFlight"], counts["PreBind"]) == (
            2,
            2,
            1,
            1,
        )
        other, mine = (attempt_text(world, name) for name in ("other", "mine"))
        assert "Reserve: Skip by HoldsSome, which holds nothing for it" in other
        assert "Skip" not in mine


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize("holds", ["yes", "no"])
async def test_rejected_pod_is_unreserved_only_where_something_is_held(seen: Make, holds: str) -> None:
    async with seen(node("n1"), pod("web", labels={"holds": holds, "permit": "reject"})) as made:
        await made.world.settle()
        assert made.world.node_of("web") == ""
        assert "not today" in made.world.message_of("web")
        tries = made.calls("web").count("permit")
        undone = ["unreserve"] if holds == "yes" else []
        assert made.calls("web") == [*BEFORE_BINDING, *undone] * tries


@pytest.mark.slow
@pytest.mark.parametrize(("allow", "end"), [(True, "post_bind"), (False, "unreserve")])
async def test_wait_at_permit_begins_a_reservation_that_ends_as_every_other(
    seen: Make, allow: bool, end: str
) -> None:
    async with seen(node("n1"), pod("web", labels={"permit": "wait"})) as made:
        await made.world.until_waiting(1)
        waiting = made.world.host.waiting_pods
        (held,) = waiting.list("HoldsSome")
        if allow:
            waiting.allow("HoldsSome", held.pod.uid, held.cycle_id)
        else:
            waiting.reject("HoldsSome", held.pod.uid, held.cycle_id, "no")
        await until(lambda: end in made.calls("web"))
        assert made.calls("web")[:3] == [*BEFORE_BINDING, end]


@pytest.mark.long
@pytest.mark.slow
async def test_permit_without_an_answer_is_undone_because_it_may_hold_the_pod(seen: Make) -> None:
    async with seen(node("n1"), pod("web", labels={"permit": "raise"})) as made:
        await until(lambda: "unreserve" in made.calls("web"))
        assert made.calls("web")[:3] == [*BEFORE_BINDING, "unreserve"]


@pytest.mark.long
@pytest.mark.slow
async def test_trials_of_a_group_give_back_only_what_they_hold(seen: Make) -> None:
    members = [member("other", "train"), member("mine", "train", labels={"holds": "yes"})]
    async with seen(node("n1"), pod_group("train", least=2), *members, gates=GROUPS) as made:
        await made.world.settle()
        assert {made.world.node_of(name) for name in ("other", "mine")} == {"n1"}
        await until(lambda: "post_bind" in made.calls("mine"))
        assert made.calls("other") == ["reserve in a trial", *BEFORE_BINDING]
        assert made.calls("mine") == ["reserve in a trial", "unreserve", *WHOLE]


# --- what only a served plugin sees -----------------------------------------------------------------------


async def test_cycle_for_which_nothing_is_held_is_not_listed_in_reconcile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    path = tmp_path / "p.sock"
    holding: list[str] = []

    def reserve(request: Any) -> scheduling_pb2.ReserveResponse:
        if request.ctx.pod.summary.ref.name == "mine":
            holding.append(request.ctx.cycle_id)
            return scheduling_pb2.ReserveResponse(ctx=decided())
        return scheduling_pb2.ReserveResponse(ctx=SKIPPED)

    first, second = (ScriptedPlugin(descriptor("Demo", "RESERVE")) for _ in range(2))
    first.on("Reserve", reserve)

    class Hold:
        """Holds every pod at Permit."""

        def permit(self, state: Any, pod: Any, node_name: str) -> Any:
            from berth_sdk.results import PermitResult

            return PermitResult.wait()

    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: Demo}]}\n"
        "    permit: {enabled: [{name: Hold}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )
    objects = [node("n1"), pod("mine"), pod("other")]
    async with first.serving(path), World(objects, [Hold], configuration=text) as world:
        await world.until_waiting(2)
        await first.stop()
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            (listed,) = second.requests("Reconcile")
    assert [item.cycle_id for item in listed.live] == holding


async def test_wait_after_skip_is_listed_until_the_pod_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    path = tmp_path / "p.sock"
    begun, go_on = asyncio.Event(), asyncio.Event()
    first, second = (ScriptedPlugin(descriptor("Demo", "RESERVE", "PERMIT", "POST_BIND")) for _ in range(2))
    first.on("Reserve", lambda _: scheduling_pb2.ReserveResponse(ctx=SKIPPED))
    first.on("Permit", lambda _: scheduling_pb2.PermitResponse(ctx=decided(pb.PluginStatus.CODE_WAIT)))

    class Slow:
        """Keeps the pod between Permit and its binding."""

        async def pre_bind(self, state: Any, pod: Any, node_name: str, patched: Any) -> Any:
            begun.set()
            await go_on.wait()
            return Status.success()

    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: Demo}]}\n"
        "    permit: {enabled: [{name: Demo}]}\n    postBind: {enabled: [{name: Demo}]}\n"
        "    preBind: {enabled: [{name: Slow}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )
    async with first.serving(path), World([node("n1"), pod("web")], [Slow], configuration=text) as world:
        await world.until_waiting(1)
        (held,) = world.host.waiting_pods.list("Demo")
        world.host.waiting_pods.allow("Demo", held.pod.uid, held.cycle_id)
        await begun.wait()
        await first.stop()
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            go_on.set()
            await until(lambda: bool(second.requests("PostBind")))
            (listed,) = second.requests("Reconcile")
            (told,) = second.requests("PostBind")
    assert [(item.cycle_id, item.node_name, item.waiting_on_permit) for item in listed.live] == [
        (held.cycle_id, "n1", False)
    ]
    assert [item.cycle_id for item in told.items] == [held.cycle_id]


async def test_early_answers_that_come_with_skip_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    plugin = ScriptedPlugin(descriptor("Demo", "RESERVE"))
    early = scheduling_pb2.ReserveResponse(
        ctx=SKIPPED,
        early_pre_flight=scheduling_pb2.PreBindPreFlightResponse(ctx=decided(pb.PluginStatus.CODE_ERROR)),
        early_pre_bind=scheduling_pb2.PreBindResponse(ctx=decided(pb.PluginStatus.CODE_ERROR)),
    )
    plugin.on("Reserve", lambda _: early)
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: Demo}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )
    async with plugin.serving(path), World([node("n1"), pod("web")], configuration=text) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        assert world.host.plugin_stats()["Demo"].violations == 0
    assert not plugin.requests("Unreserve")
