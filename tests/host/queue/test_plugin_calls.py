"""The queue's questions to served plugins travel in batches, and long ones to in-process plugins give way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from berth_host.errors.state import InvariantError
from berth_host.queue import plugin_calls
from berth_host.queue.interfaces import HintQuestion
from berth_host.queue.plugin_calls import TURN_S, Batcher, Turn, WaitingAlike
from berth_host.rpc import in_process
from berth_plugins.node_affinity import NodeAffinity
from berth_sdk.events import ClusterEvent
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from support.hosts import World, node, pod
from support.scripted_plugin import ScriptedPlugin, decided, descriptor


async def test_answer_that_cannot_be_taken_costs_no_other_question() -> None:
    answered: list[int] = []
    told: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def ask(questions: Sequence[int]) -> Sequence[int]:
        return [10 * question for question in questions]

    def take(question: int, answer: int) -> None:
        if question == 2:
            raise LookupError("no such pod")
        answered.append(answer)

    busy: set[asyncio.Future[Any]] = set()
    batcher = Batcher[int, int](ask, take, busy)
    for question in (1, 2, 3):
        batcher.put(question)
    await asyncio.gather(*busy)
    batcher.put(4)
    await asyncio.gather(*busy)
    assert answered == [10, 30, 40]
    assert [str(error) for error in told] == ["no such pod"]


async def test_call_that_fails_ends_the_host_and_later_questions_are_asked() -> None:
    answered: list[int] = []
    told: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def ask(questions: Sequence[int]) -> Sequence[int]:
        if 2 in questions:
            raise LookupError("no such table")
        return questions

    busy: set[asyncio.Future[Any]] = set()
    batcher = Batcher[int, int](ask, lambda question, _: answered.append(question), busy)
    for question in range(300):
        batcher.put(question)
    await asyncio.gather(*busy)
    batcher.put(300)
    await asyncio.gather(*busy)
    assert answered == list(range(256, 301))
    (error,) = told
    assert isinstance(error, InvariantError)
    assert "a call with 256 questions of the queue failed: LookupError('no such table')" in str(error)


async def test_one_answer_holds_for_all_of_a_kind() -> None:
    answered: list[tuple[int, int]] = []
    asked: list[Sequence[int]] = []

    async def ask(questions: Sequence[int]) -> Sequence[int]:
        asked.append(questions)
        return [10 * question for question in questions]

    busy: set[asyncio.Future[Any]] = set()
    batcher = Batcher[int, int](
        ask,
        lambda question, answer: answered.append((question, answer)),
        busy,
        lambda question: question % 300,
    )
    for question in range(900):
        batcher.put(question)
    await asyncio.gather(*busy)
    assert [list(questions) for questions in asked] == [list(range(256)), list(range(256, 300))]
    assert sorted(answered) == [(question, 10 * (question % 300)) for question in range(900)]


async def test_turn_is_over_after_its_share_of_the_processor_and_the_next_one_begins_anew() -> None:
    now_s = 0.0
    turn = Turn(lambda: now_s)
    assert not turn.is_over()
    now_s = 0.9 * TURN_S
    assert not turn.is_over()
    now_s = 1.1 * TURN_S
    assert turn.is_over()
    await asyncio.sleep(0)
    assert not turn.is_over()


async def test_hints_of_in_process_plugins_that_take_long_are_spread_over_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin_calls, "TURN_S", -1.0)
    monkeypatch.setattr(in_process, "SLICE_S", -1.0)
    hint, turn, turns = NodeAffinity.queueing_hint, 0, Counter[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    def counting(self: NodeAffinity, event: ClusterEvent, pod: Pod) -> Any:
        turns[turn] += 1
        return hint(self, event, pod)

    monkeypatch.setattr(NodeAffinity, "queueing_hint", counting)
    # All ask for the label by which NodeAffinity names the pods that the event concerns: no hint is saved.
    pods = [pod(f"p{i}", nodeSelector={"arch": "arm", "disk": f"d{i}"}) for i in range(40)]
    async with World([node("n0"), *pods]) as world:
        await world.settle()
        assert not any(world.node_of(f"p{i}") for i in range(40))
        next_turn()
        world.server.create(node("n1", labels={"arch": "arm", "disk": "d7"}))
        await world.settle()
        assert [i for i in range(40) if world.node_of(f"p{i}")] == [7]
    assert turns.total() == 40
    assert max(turns.values()) <= 2


LABELS, REQUESTS = identity_pb2.POD_FIELD_LABELS, identity_pb2.POD_FIELD_REQUESTS
REJECTED = pb.PluginStatus.CODE_UNSCHEDULABLE


def configured(endpoint: str) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {multiPoint: {enabled: [{name: Demo}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- {{name: Demo, endpoint: '{endpoint}', required: true,"
        " points: {preFilter: {deadline: 10s}}}\n"
    )


def demo(
    *fields: identity_pb2.PodField.ValueType,
    signs: bool = True,
    depends_on: identity_pb2.DependsOn.ValueType = identity_pb2.DEPENDS_ON_NODE,
) -> ScriptedPlugin:
    """Return a plugin that rejects every pod in PreFilter and has a hint for changes of nodes."""
    events = [
        identity_pb2.EventInterest(resource="Node", hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN),
    ]
    said = descriptor("Demo", "PRE_FILTER", snapshot=False, events=events)
    said.depends_on = depends_on
    if signs:
        said.sign_fields.CopyFrom(identity_pb2.PodFields(fields=fields))
    plugin = ScriptedPlugin(said)
    plugin.on("PreFilter", lambda _: scheduling_pb2.PreFilterResponse(ctx=decided(REJECTED, "no")))
    plugin.on("QueueingHints", lambda asked: queue_pb2.QueueingHintsResponse(queue=[False] * len(asked.pods)))
    return plugin


def waiting() -> list[dict[str, Any]]:
    return [pod(f"{app}-{n}", labels={"app": app}) for app in ("web", "db") for n in range(20)]


def asked(plugin: ScriptedPlugin) -> list[str]:
    """Return the names of the pods in all questions."""
    return [one.summary.ref.name for request in plugin.requests("QueueingHints") for one in request.pods]


@pytest.mark.parametrize(
    ("fields", "signs", "want"),
    [
        pytest.param((LABELS,), True, {"web": 1, "db": 1}, id="labels"),
        pytest.param((REQUESTS,), True, {"either": 1}, id="requests"),
        pytest.param((), True, {"either": 1}, id="nothing of a pod"),
        pytest.param((LABELS, 99), True, {"web": 20, "db": 20}, id="a field of a newer contract"),
        pytest.param((), False, {"web": 20, "db": 20}, id="unset"),
    ],
)
async def test_an_event_asks_about_one_of_each_kind(
    tmp_path: Path, fields: tuple[Any, ...], signs: bool, want: dict[str, int]
) -> None:
    async with demo(*fields, signs=signs).serving(tmp_path / "p.sock") as plugin:
        text = configured(f"unix://{tmp_path / 'p.sock'}")
        async with World([node("n0"), *waiting()], configuration=text) as world:
            await world.settle()
            assert len(plugin.requests("PreFilter")) == 40
            world.server.create(node("n1"))
            await world.settle()
            found = Counter("either" if "either" in want else name.split("-")[0] for name in asked(plugin))
            assert found == want


async def test_each_pod_is_asked_about_where_depends_on_is_not_declared(tmp_path: Path) -> None:
    undeclared = demo(LABELS, depends_on=identity_pb2.DEPENDS_ON_UNSPECIFIED)
    async with undeclared.serving(tmp_path / "p.sock") as plugin:
        text = configured(f"unix://{tmp_path / 'p.sock'}")
        async with World([node("n0"), *waiting()], configuration=text) as world:
            await world.settle()
            world.server.create(node("n1"))
            await world.settle()
            assert len(asked(plugin)) == 40


async def test_the_answer_holds_for_all_that_are_equal_and_for_no_others(tmp_path: Path) -> None:
    def hints(request: Any) -> queue_pb2.QueueingHintsResponse:
        return queue_pb2.QueueingHintsResponse(
            queue=[one.summary.labels["app"] == "web" for one in request.pods]
        )

    async with demo(LABELS).serving(tmp_path / "p.sock") as plugin:
        plugin.on("QueueingHints", hints)
        text = configured(f"unix://{tmp_path / 'p.sock'}")
        async with World([node("n0"), *waiting()], configuration=text) as world:
            await world.settle()
            before = len(plugin.requests("PreFilter"))
            world.server.create(node("n1"))
            await world.settle()
            again = [one.ctx.pod.summary.ref.name for one in plugin.requests("PreFilter")[before:]]
            assert sorted(again) == sorted(f"web-{n}" for n in range(20))


def test_the_pod_that_the_event_is_about_is_asked_about_by_itself() -> None:
    first, second, third = (Pod(name=name, uid=name) for name in ("a", "b", "c"))
    event = ClusterEvent(resource="Pod", action="update", old=first, new=first)
    kind_of = WaitingAlike(lambda: (PodField.LABELS,)).kind_of
    own, *others = (kind_of(HintQuestion("Demo", event, one, 1, "Update")) for one in (first, second, third))
    assert own not in others
    assert others[0] == others[1]
    another = ClusterEvent(resource="Pod", action="update", old=first, new=first)
    assert kind_of(HintQuestion("Demo", another, second, 1, "Update")) != others[0]


def test_fields_of_the_instance_of_the_moment_count() -> None:
    said: list[tuple[PodField, ...] | None] = [(PodField.LABELS,)]
    kind_of = WaitingAlike(lambda: said[0]).kind_of
    event = ClusterEvent(resource="Node", action="add")
    questions = [HintQuestion("Demo", event, Pod(name=name, uid=name), 1, "Add") for name in "ab"]
    assert kind_of(questions[0]) == kind_of(questions[1])
    said[0] = None
    assert kind_of(questions[0]) != kind_of(questions[1])
    said[0] = ()
    assert kind_of(questions[0]) == kind_of(questions[1])
