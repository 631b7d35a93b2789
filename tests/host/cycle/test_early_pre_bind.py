"""PreBind's first answer may come with Reserve: the pods end up as if the host had asked for it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.rpc import failure_record
from berth_sdk.cycle_state import CycleState
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2, state_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PermitResult, PreBindResult, ReserveResult
from berth_sdk.status import SUCCESS, Status
from support.early_plugin import marked
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.scripted_plugin import ScriptedPlugin, decided, descriptor
from support.waiting import until

SAYS = (
    "is-done",
    "asks-again",
    "waits",
    "has-nothing-to-do",
    "gives-up",
    "tries-again",
    "rejects",
    "breaks",
    "oversteps",
    "too-many",
)
MARK = {"early/mark": "yes"}
Outcome = tuple[dict[str, Any], Counter[str], PluginStats]
Run = Callable[..., Awaitable[Outcome]]


def configuration(where: str, *, args: str = "", policy: str = "Fail", permit: str = "") -> str:
    points = "".join(f"    {point}: {{enabled: [{{name: Early}}]}}\n" for point in ("reserve", "preBind"))
    hold = f"    permit: {{enabled: [{{name: {permit}}}]}}\n" if permit else ""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{points}{hold}"
        f"{args}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: Early\n  {where}\n  required: true\n"
        f"  points: {{reserve: {{deadline: 10s}}, preBind: {{deadline: 10s, policy: {policy}}}}}\n"
    )


@pytest.fixture(autouse=True)
def no_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the quarantine off, as the plugin violates the contract for some pods."""
    monkeypatch.setattr(failure_record, "VIOLATIONS", 1000)


@pytest.fixture(params=["in process", "served"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return a function that schedules pods with labels, and returns outcomes, calls of the plugin and its
    figures.
    """

    async def scheduled(labels: dict[str, dict[str, str]], policy: str = "Fail") -> Outcome:
        log = tmp_path / f"{len(list(tmp_path.iterdir()))}.log"
        log.touch()
        args = f"  pluginConfig:\n  - name: Early\n    args: {{log: {log}}}\n"
        objects = [node("n1"), *(pod(name, labels=told) for name, told in labels.items())]

        async def outcome(where: str) -> Outcome:
            text = configuration(where, args=args, policy=policy)
            async with World(objects, configuration=text) as world:
                await world.settle()
                stats = world.host.plugin_stats()["Early"]
                return {name: fate(world, name) for name in labels}, asked(log), stats

        if request.param == "in process":
            return await outcome("inProcess: support.early_plugin:Early")
        async with plugin_process(tmp_path / "p.sock", "support.early_plugin:Early") as process:
            return await outcome(f"endpoint: {process.endpoint}")

    return scheduled


def fate(world: World, name: str) -> tuple[str, Any, str]:
    found = world.pod(name)
    assert found is not None
    marks = found.get("metadata.annotations", {})
    return world.node_of(name), marks, world.message_of(name).replace(f"{name} ", "POD ")


def asked(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines())


def rounds(found: Counter[str], name: str) -> set[str]:
    """Return the rounds of PreBind of a pod, as the outcomes that each got."""
    lines = [json.loads(line) for line in found]
    return {" ".join(rest) for what, whom, *rest in lines if (what, whom) == ("pre_bind", name)}


@pytest.mark.slow
async def test_early_pre_bind_has_the_same_result_as_a_call_of_pre_bind(run: Run) -> None:
    by_call, was_asked, _ = await run({what: {"says": what} for what in SAYS})
    early, was_asked_less, _ = await run({what: {"says": what, "early": "y"} for what in SAYS})
    assert early == by_call
    assert {name: (on, marks) for name, (on, marks, _) in early.items()} == {
        "is-done": ("n1", MARK),
        "asks-again": ("n1", MARK),
        "waits": ("n1", {}),
        "has-nothing-to-do": ("n1", {}),
        "gives-up": ("", {}),
        "tries-again": ("n1", MARK),
        "rejects": ("", {}),
        "breaks": ("", {}),
        "oversteps": ("", {}),
        "too-many": ("", {}),
    }
    assert "did not declare" in early["oversteps"][2]
    assert "65 patches" in early["too-many"][2]
    # What comes after the first round is asked in both cases, and what failed is given back.
    for name in SAYS:
        first = {""} if name != "waits" else set()
        assert rounds(was_asked_less, name) == rounds(was_asked, name) - first, name
        given_back = json.dumps(["unreserve", name])
        assert (given_back in was_asked_less) == (given_back in was_asked) == (not early[name][0]), name


@pytest.mark.long
@pytest.mark.slow
async def test_early_pre_bind_counts_no_call_and_every_failure(run: Run) -> None:
    _, _, stats = await run({"a": {"says": "is-done", "early": "y"}, "b": {"says": "skips", "early": "y"}})
    figures = dict(stats.items())
    assert figures["Reserve"].calls == 2
    assert not {"PreBindPreFlight", "PreBind"} & figures.keys()
    _, _, stats = await run({"a": {"says": "asks-again", "early": "y"}})
    assert stats.of("PreBind").calls == 1
    _, _, stats = await run({"a": {"says": "too-many", "early": "y"}})
    figures = dict(stats.items())
    tries = figures["Reserve"].calls
    assert tries > 1
    assert stats.violations == tries
    assert figures["PreBind"].failures == {"violation": tries}
    assert figures["PreBind"].policies == {"Fail": tries}
    assert figures["PreBind"].calls == figures["PreBind"].messages == 0


@pytest.mark.slow
async def test_early_skip_saves_the_call_of_pre_bind(run: Run) -> None:
    got, was_asked, _ = await run({"a": {"says": "skips", "early": "y"}})
    assert got["a"][:2] == ("n1", {})
    assert not rounds(was_asked, "a")


@pytest.mark.long
@pytest.mark.slow
async def test_policy_of_pre_bind_applies_to_an_invalid_early_answer(run: Run) -> None:
    labels = {"says": "oversteps"}
    by_call, _, _ = await run({"a": labels}, policy="Ignore")
    early, _, stats = await run({"a": {**labels, "early": "y"}}, policy="Ignore")
    assert early == by_call
    assert early["a"][:2] == ("n1", {})
    assert stats.of("PreBind").policies == {"Ignore": 1}


# --- when it is taken ------------------------------------------------------------------------------------


class Hold:
    """Holds every pod at Permit."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait()


def early(request: Any, *, version: str = "", done: bool = True) -> scheduling_pb2.ReserveResponse:
    """Return a script for Reserve."""
    change = scheduling_pb2.ObjectPatch(
        resource="pods",
        ref=request.ctx.pod.summary.ref,
        expected_resource_version=version,
        merge_patch_json=json.dumps({"metadata": {"annotations": MARK}}).encode(),
    )
    ctx = decided()
    ctx.plugin_token = b"gpu 3"
    return scheduling_pb2.ReserveResponse(
        ctx=ctx,
        early_pre_flight=scheduling_pb2.PreBindPreFlightResponse(ctx=decided()),
        early_pre_bind=scheduling_pb2.PreBindResponse(
            ctx=decided(), patches=[change], done_when_applied=done
        ),
    )


def scripted(answer: Callable[[Any], Any] = early) -> ScriptedPlugin:
    plugin = ScriptedPlugin(descriptor("Early", "RESERVE", "PRE_BIND"))
    plugin.on("Reserve", answer)
    return plugin


def given_back(plugin: ScriptedPlugin) -> set[str]:
    """Return the cycles, with repeats."""
    return {item.cycle_id for request in plugin.requests("Unreserve") for item in request.items}


def decide(world: World, *, allow: bool) -> None:
    (held,) = world.host.waiting_pods.list("Hold")
    waiting = world.host.waiting_pods
    if allow:
        waiting.allow("Hold", held.pod.uid, held.cycle_id)
    else:
        waiting.reject("Hold", held.pod.uid, held.cycle_id, "no")


@pytest.mark.parametrize("allow", [True, False])
async def test_early_pre_bind_is_used_only_after_permit(tmp_path: Path, allow: bool) -> None:
    plugin = scripted()
    text = configuration(f"endpoint: unix://{tmp_path / 'p.sock'}", permit="Hold")
    objects = [node("n1"), pod("web")]
    async with plugin.serving(tmp_path / "p.sock"), World(objects, [Hold], configuration=text) as world:
        await world.until_waiting(1)
        await until(lambda: len(world.host.binding) == 1 and not world.host.binding.active_count)
        assert fate(world, "web")[:2] == ("", {})
        decide(world, allow=allow)
        await until(lambda: bool(world.node_of("web") if allow else given_back(plugin)))
        assert fate(world, "web")[:2] == (("n1", MARK) if allow else ("", {}))
        assert bool(given_back(plugin)) is not allow
        assert not plugin.requests("PreBind")


async def test_round_after_an_early_pre_bind_is_the_second(tmp_path: Path) -> None:
    plugin = scripted(lambda request: early(request, version="1000000"))
    text = configuration(f"endpoint: unix://{tmp_path / 'p.sock'}")
    async with (
        plugin.serving(tmp_path / "p.sock"),
        World([node("n1"), pod("web")], configuration=text) as world,
    ):
        await world.settle()
        assert fate(world, "web")[:2] == ("n1", {})
    (request,) = plugin.requests("PreBind")
    assert (request.round, request.ctx.plugin_token) == (1, b"gpu 3")
    assert [item.outcome for item in request.patched] == [scheduling_pb2.PatchResult.OUTCOME_CONFLICT]


class First:
    """Marks the pod, and says so at Reserve."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult:
        return ReserveResult(SUCCESS, PreBindResult(SUCCESS, (marked(pod),), done_when_applied=True))

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Status:
        return Status.error("was asked")


@pytest.mark.parametrize("first", [True, False])
async def test_early_pre_bind_is_used_in_the_order_of_the_plugins(first: bool) -> None:
    seen: list[Any] = []

    class Second:
        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> Status:
            seen.append(fate(world, "web")[1])
            return SUCCESS

    plugins = [First, Second] if first else [Second, First]
    async with World([node("n1"), pod("web")], plugins) as world:
        await world.settle()
        assert fate(world, "web")[:2] == ("n1", MARK)
    assert seen == [MARK if first else {}]


# --- an instance that dies between Reserve and PreBind ------------------------------------------------


@pytest.mark.parametrize("back", [True, False])
async def test_early_pre_bind_holds_while_the_instance_is_absent_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    path = tmp_path / "p.sock"
    plugin, second = scripted(), scripted()
    text = configuration(f"endpoint: unix://{path}", permit="Hold")
    async with plugin.serving(path), World([node("n1"), pod("web")], [Hold], configuration=text) as world:
        await world.until_waiting(1)
        await until(lambda: len(world.host.binding) == 1 and not world.host.binding.active_count)
        await plugin.stop()
        await until(lambda: not world.host.attachments.attached_places.plugins["Early"].is_attached)
        if not back:
            decide(world, allow=True)
            await until(lambda: not len(world.host.binding))
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            if back:
                decide(world, allow=True)
            await world.settle()
            assert fate(world, "web")[:2] == ("n1", MARK)
            assert not second.requests("PreBind")
            assert not second.requests("Unreserve")


async def test_early_pre_bind_is_void_if_the_new_instance_does_not_know_the_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    path = tmp_path / "p.sock"
    plugin, second = scripted(), scripted(lambda _: scheduling_pb2.ReserveResponse(ctx=decided()))

    def knows_nothing(request: state_pb2.ReconcileRequest) -> state_pb2.ReconcileResponse:
        return state_pb2.ReconcileResponse(unknown_cycle_ids=[item.cycle_id for item in request.live])

    second.on("Reconcile", knows_nothing)
    text = configuration(f"endpoint: unix://{path}", permit="Hold")
    async with plugin.serving(path), World([node("n1"), pod("web")], [Hold], configuration=text) as world:
        await world.until_waiting(1)
        await until(lambda: len(world.host.binding) == 1 and not world.host.binding.active_count)
        await plugin.stop()
        await until(lambda: not world.host.attachments.attached_places.plugins["Early"].is_attached)
        world.host.waiting_pods.preempt = lambda *_: False  # type: ignore[method-assign]  # it waits on
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            decide(world, allow=True)
            await until(lambda: bool(second.requests("Unreserve")))
            assert fate(world, "web")[:2] == ("", {})


# --- nonsense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(scheduling_pb2.PreBindResponse(), "did not decide", id="no code"),
        pytest.param(
            scheduling_pb2.PreBindResponse(
                ctx=decided(), patches=[scheduling_pb2.ObjectPatch(resource="pods", merge_patch_json=b"{")]
            ),
            "a patch that is not JSON",
            id="no JSON",
        ),
        pytest.param(
            scheduling_pb2.PreBindResponse(ctx=decided(pb.PluginStatus.CODE_WAIT)),
            "Wait",
            id="no code of PreBind",
        ),
    ],
)
async def test_invalid_early_answer_is_a_failure_of_pre_bind(
    tmp_path: Path, answer: scheduling_pb2.PreBindResponse, words: str
) -> None:
    plugin = scripted(
        lambda _: scheduling_pb2.ReserveResponse(
            ctx=decided(),
            early_pre_flight=scheduling_pb2.PreBindPreFlightResponse(ctx=decided()),
            early_pre_bind=answer,
        )
    )
    text = configuration(f"endpoint: unix://{tmp_path / 'p.sock'}")
    async with (
        plugin.serving(tmp_path / "p.sock"),
        World([node("n1"), pod("web")], configuration=text) as world,
    ):
        await world.settle()
        assert world.node_of("web") == ""
        assert words in world.message_of("web")
        assert "PreBind" in world.message_of("web")
        assert given_back(plugin) == {request.ctx.cycle_id for request in plugin.requests("Reserve")}
        assert not plugin.requests("PreBind")


async def test_plugin_without_pre_bind_may_not_answer_it_early(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Early", "RESERVE"))
    plugin.on("Reserve", early)
    text = configuration(f"endpoint: unix://{tmp_path / 'p.sock'}").replace(
        "    preBind: {enabled: [{name: Early}]}\n", ""
    )
    async with (
        plugin.serving(tmp_path / "p.sock"),
        World([node("n1"), pod("web")], configuration=text) as world,
    ):
        await world.settle()
        assert fate(world, "web")[:2] == ("", {})
        assert "answered PreBind early, in which it does not take part at Reserve" in world.message_of("web")
