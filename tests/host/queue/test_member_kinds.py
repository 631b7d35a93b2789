"""Members of a group that are alike: one call of a gate or a hint decides about all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import GateQuestion, HintQuestion
from berth_host.queue.registrations import Registration
from berth_sdk.events import ASSIGNED_POD, ActionType
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.status import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from support.queue_parts import Plugins, QueueBench, a_pod, node_added
from support.tiers import examples

GROUPS = ("g", "h")
APPS = ("x", "y")
ANY_POD = Registration(resource=ASSIGNED_POD, action=int(ActionType.ALL), ask=True)
NODE = Registration(resource="Node", action=int(ActionType.ADD), ask=True)


def app_of(pod: Pod) -> Hashable:
    return pod.labels["app"]


class Gang(QueueBench):
    """A queue with two groups. `First` and `Second` are closed for the apps in `closed`, and judge an event
    by the app. `shares`: they sign pods.
    """

    def __init__(self, *, shares: bool) -> None:
        self.closed: set[tuple[str, str]] = set()
        self.helped: set[str] = set()
        self.gate_calls = 0
        self.hint_calls = 0
        names = ("First", "Second")
        super().__init__(
            Plugins(
                gates=dict.fromkeys(names, self.gate),
                registrations={name: [ANY_POD, NODE] for name in names},
                hint=self.hint,
                signs=dict.fromkeys(names, app_of) if shares else {},
            )
        )
        for name in GROUPS:
            self.queue.add_group(PodGroup(name=name, uid=f"uid-group-{name}", is_gang=True, min_count=2))

    def gate(self, question: GateQuestion) -> Status:
        self.gate_calls += 1
        app = str(app_of(question.pod.pod))
        if (question.plugin, app) in self.closed:
            return Status.unresolvable(f"{question.plugin} is closed for {app}")
        return Status.success()

    def hint(self, question: HintQuestion) -> bool:
        self.hint_calls += 1
        return app_of(question.pod) in self.helped

    def member(self, name: str, group: str, app: str) -> None:
        if f"default/{name}" not in self.pods.by_key:
            labels, key = {"app": app}, f"podgroup/default/{group}"
            self.queue.add(self.pods.put(a_pod(name, group_key=key, labels=labels)))
            self.clock.advance(0.001)

    def assigned(self) -> None:
        self.queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.ADD, new=a_pod("other", node_name="n1")))

    def step(self, what: str, *details: Any) -> None:
        match what, details:
            case "member comes", (name, group, app):
                self.member(name, group, app)
            case "gates are closed", (closed,):
                self.closed = set(closed)
            case "apps are helped", (apps,):
                self.helped = set(apps)
            case "pod is assigned", _:
                self.assigned()
            case "node comes", _:
                self.queue.move_all(node_added())
            case "is relabelled", (name, app):
                old = self.pods.pod(f"default/{name}")
                if old is not None:
                    new = replace(old, labels={"app": app}, resource_version=f"{old.resource_version}0")
                    self.queue.update(
                        old, self.pods.put(new), [QueueEvent("Pod", ActionType.UPDATE_POD_LABEL, old, new)]
                    )
            case "is deleted", (name,):
                pod = self.pods.by_key.pop(f"default/{name}", None)
                if pod is not None:
                    self.queue.delete(pod)
            case "time passes", _:
                self.clock.advance(12)
                self.queue.flush_backoff()

    def state(self) -> list[tuple[object, ...]]:
        return [
            (
                group,
                None if found is None else found[0],
                [] if found is None else _members(found[1].pods()),
                None if found is None else (found[1].gating_plugin, found[1].gating_message),
            )
            for group in GROUPS
            for found in [self.queue.places.find(f"podgroup/default/{group}")]
        ]


def _members(infos: Any) -> list[tuple[object, ...]]:
    return [
        (
            one.pod.name,
            one.gating_plugin,
            one.gating_message,
            sorted(one.unschedulable_plugins),
            [entry[1:] for entry in one.history],
        )
        for one in infos
    ]


PLUGIN = st.sampled_from(["First", "Second"])
NAME = st.sampled_from([f"m{number}" for number in range(6)])
APP = st.sampled_from(APPS)
STEPS = st.one_of(
    st.tuples(st.just("member comes"), NAME, st.sampled_from(GROUPS), APP),
    st.tuples(st.just("gates are closed"), st.sets(st.tuples(PLUGIN, APP))),
    st.tuples(st.just("apps are helped"), st.sets(APP)),
    st.tuples(st.just("pod is assigned")),
    st.tuples(st.just("node comes")),
    st.tuples(st.just("is relabelled"), NAME, APP),
    st.tuples(st.just("is deleted"), NAME),
    st.tuples(st.just("time passes")),
)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(
    closed=st.sets(st.tuples(PLUGIN, APP), min_size=1),
    names=st.lists(st.tuples(NAME, st.sampled_from(GROUPS), APP), min_size=2, max_size=6),
    steps=st.lists(STEPS, min_size=1, max_size=15),
)
def test_alike_members_end_up_as_if_each_was_judged_by_itself(
    closed: set[tuple[str, str]], names: list[tuple[str, str, str]], steps: list[tuple[Any, ...]]
) -> None:
    alone, together = Gang(shares=False), Gang(shares=True)
    for gang in (alone, together):
        gang.closed = set(closed)
        for name in names:
            gang.member(*name)
    for what, *details in steps:
        for gang in (alone, together):
            gang.step(what, *details)
        assert together.state() == alone.state()
        assert Counter(together.notes.entered) == Counter(alone.notes.entered)
        assert Counter(together.notes.rejected) == Counter(alone.notes.rejected)
        assert together.notes.events == alone.notes.events


def gated_members(count: int) -> Gang:
    gang = Gang(shares=True)
    gang.closed = {("First", "x")}
    gang.helped = {"x"}
    for number in range(count):
        gang.member(f"m{number:03}", "g", "x")
        gang.assigned()
    assert [info.gating_plugin for info in gang.queue.places.pool] == ["First"]
    return gang


def test_event_calls_gates_and_hints_as_often_for_many_alike_members_as_for_few() -> None:
    calls: list[tuple[int, int]] = []
    for count in (3, 40):
        gang = gated_members(count)
        gang.gate_calls = gang.hint_calls = 0
        gang.assigned()
        gang.helped.clear()
        gang.assigned()
        calls.append((gang.gate_calls, gang.hint_calls))
    assert calls == [(1, 2), (1, 2)]


def test_gates_are_reported_for_each_member_that_a_closed_gate_keeps() -> None:
    gang = gated_members(5)
    gang.notes.rejected.clear()
    gang.assigned()
    assert Counter(gang.notes.rejected) == {("First", "default-scheduler"): 5}


def test_relabelled_member_is_judged_apart_from_those_that_it_was_alike_to() -> None:
    gang = Gang(shares=True)
    gang.closed = {("First", "x"), ("First", "y")}
    for name in ("m0", "m1", "m2"):
        gang.member(name, "g", "x")
    gang.helped = {"x"}
    gang.assigned()
    gang.helped.clear()
    gang.step("is relabelled", "m1", "y")
    gang.gate_calls = 0
    gang.assigned()
    assert gang.gate_calls == 0
    gang.helped = {"y"}
    gang.assigned()
    assert gang.gate_calls > 0
