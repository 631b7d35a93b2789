"""Events and conditions of a life say what became of the pods."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.life.told import Told
from berth_bench.versus.objects import pod
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod


def item(name: str, *, node: str = "", message: str = "", priority: int = 0) -> KubeObject:
    made: dict[str, Any] = pod(name, "1")
    made["metadata"] |= {"uid": name, "namespace": "default"}
    made["spec"]["priority"] = priority
    if node:
        made["spec"]["nodeName"] = node
    if message:
        held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        made["status"] = {"conditions": [held]}
    return KubeObject.of(made)


def told(*, requires: bool = True) -> Told:
    made = Told()
    made.requires = requires
    return made


@pytest.mark.parametrize("event_first", [False, True])
def test_binding_needs_a_scheduled_event_before_or_after_it(event_first: bool) -> None:
    found = told()
    found.pod_is(item("a"))
    if event_first:
        found.event(Pod.from_object(item("a")), "Scheduled", "")
    found.pod_is(item("a", node="n1"))
    assert list(found.unsaid()) == ([] if event_first else ["default/a"])
    found.event(Pod.from_object(item("a")), "Scheduled", "")
    assert list(found.unsaid()) == []


def test_binding_while_calls_fail_and_pod_that_came_bound_need_no_event() -> None:
    found = told(requires=False)
    found.pod_is(item("a"))
    found.pod_is(item("a", node="n1"))
    found.requires = True
    found.pod_is(item("b", node="n1"))
    assert list(found.unsaid()) == []


def test_pod_that_is_gone_needs_no_event() -> None:
    found = told()
    found.pod_is(item("a"))
    found.pod_is(item("a", node="n1"))
    found.pod_is_gone(item("a", node="n1"))
    assert list(found.unsaid()) == []


@pytest.mark.parametrize(("message", "is_missed"), [("", True), ("older", True), ("no room", False)])
def test_failed_attempt_needs_a_condition_with_its_reason(message: str, is_missed: bool) -> None:
    found = told()
    found.event(Pod.from_object(item("a")), "FailedScheduling", "no room")
    pending = [item("a", message=message), item("never-tried")]
    assert list(found.without_condition(pending)) == (["default/a"] if is_missed else [])


@pytest.mark.parametrize(
    ("notes", "message", "is_missed"),
    [
        (("no room", "older"), "no room", False),
        (("no room", ""), "other", False),
        (("no room", ""), "", True),
        (("no room", "older"), "other", True),
    ],
)
def test_event_out_of_order_or_without_text_lets_the_condition_have_another_message(
    notes: tuple[str, ...], message: str, is_missed: bool
) -> None:
    for in_order in (False, True):
        found = Told(in_order=in_order)
        found.requires = True
        for note in notes:
            found.event(Pod.from_object(item("a")), "FailedScheduling", note)
        missed = is_missed or (in_order and message == "no room")
        assert list(found.without_condition([item("a", message=message)])) == ["default/a"] * missed


def test_attempt_that_failed_while_calls_failed_and_bound_pod_need_no_condition() -> None:
    found = told(requires=False)
    found.event(Pod.from_object(item("a")), "FailedScheduling", "no room")
    found.requires = True
    found.event(Pod.from_object(item("b")), "FailedScheduling", "no room")
    assert list(found.without_condition([item("a"), item("b", node="n1")])) == []


@pytest.mark.parametrize(("priority", "is_wrong"), [(0, True), (99, True), (101, False)])
def test_preemptor_has_more_priority_than_its_victim(priority: int, is_wrong: bool) -> None:
    found = told()
    found.pod_is(item("preemptor", priority=priority))
    victim = Pod.from_object(item("victim", node="n1", priority=100))
    wrong = found.event(victim, "Preempted", "Preempted by pod preemptor on node n1")
    assert bool(wrong) == is_wrong
    assert found.event(victim, "Preempted", "Preempted by pod unknown on node n1") == ""
