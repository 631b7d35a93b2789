"""Which calls to extenders the comparison of recorded scenarios treats as equal; needs no server."""

from __future__ import annotations

from typing import Any

import pytest
from support.observed.extender_calls import Call, Paths, call_of, calls_difference, first_field

Json = dict[str, Any]
PATHS = Paths(prioritize=("/a/prioritize", "/b/prioritize"), bind=("/bind",))
FAILED = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
HEADERS = {"Content-Type": "application/json", "Content-Length": "<n>"}


def call(
    path: str = "/filter",
    *,
    pod: str = "p1",
    status: Json | None = None,
    nodes: tuple[str, ...] = ("n1", "n2"),
    headers: Json = HEADERS,
    method: str = "POST",
    answer: Any = "ok",
) -> Call:
    body = {
        "Pod": {"metadata": {"name": pod, "namespace": "default"}, "status": status or {"phase": "Pending"}},
        "Nodes": None,
        "NodeNames": list(nodes),
    }
    request = {"method": method, "path": path, "headers": headers, "body": body}
    return call_of({"request": request, "response": {"status": 200, "body": answer}})


def bind(pod: str = "p1", node: str = "n1") -> Call:
    body = {"PodName": pod, "PodNamespace": "default", "Node": node}
    request = {"method": "POST", "path": "/bind", "headers": HEADERS, "body": body}
    return call_of({"request": request, "response": {"status": 200}})


def agree(expected: list[Call], actual: list[Call], **options: Any) -> bool:
    return calls_difference(expected, actual, PATHS, **options) is None


def in_either_mode(expected: list[Call], actual: list[Call]) -> set[bool]:
    return {agree(expected, actual), agree(expected, actual, retries_count=False)}


@pytest.mark.parametrize(
    "changed",
    [
        call(path="/filters"),
        call(method="PUT"),
        call(headers={**HEADERS, "Accept": "*/*"}),
        call(headers={"Content-Length": "<n>"}),
        call(nodes=("n1",)),
        call(nodes=("n1", "n3")),
        call(pod="p2"),
    ],
    ids=["path", "method", "more headers", "fewer headers", "fewer nodes", "another node", "another pod"],
)
def test_changed_request_is_a_difference(changed: Call) -> None:
    assert in_either_mode([call()], [changed]) == {False}


def test_missing_and_additional_calls_are_differences() -> None:
    assert in_either_mode([call(), bind()], [call()]) == {False}
    assert in_either_mode([call()], [call(), bind()]) == {False}
    assert in_either_mode([], [call()]) == {False}
    assert in_either_mode([call()], []) == {False}


def test_name_of_a_field_counts_with_its_case_and_with_its_null() -> None:
    request = call().request
    lower = {
        **request,
        "body": {"pod" if key == "Pod" else key: item for key, item in request["body"].items()},
    }
    without = {**request, "body": {key: item for key, item in request["body"].items() if item is not None}}
    for changed in (lower, without):
        assert in_either_mode([call()], [call_of({"request": changed, "response": {}})]) == {False}


def test_order_of_nodes_is_not_compared() -> None:
    assert agree([call(nodes=("n1", "n2"))], [call(nodes=("n2", "n1"))])
    whole = [{"metadata": {"name": name}} for name in ("n1", "n2")]
    first, second = (
        call_of(
            {"request": {"path": "/f", "headers": {}, "body": {"Nodes": {"items": items}}}, "response": {}}
        )
        for items in (whole, whole[::-1])
    )
    assert agree([first], [second])


def test_order_of_calls_is_compared_within_a_pod_and_between_the_cycles_of_pods() -> None:
    first, second = call(path="/a/filter"), call(path="/b/filter")
    assert in_either_mode([first, second], [second, first]) == {False}
    other = call(path="/a/filter", pod="p2")
    assert in_either_mode([first, other], [other, first]) == {False}


def test_order_of_prioritizers_is_not_compared() -> None:
    first, second = call(path="/a/prioritize"), call(path="/b/prioritize")
    assert in_either_mode([call(), first, second], [call(), second, first]) == {True}
    assert in_either_mode([call(), first, second], [first, call(), second]) == {False}


def test_bind_call_keeps_its_place_among_the_calls_about_its_pod() -> None:
    other = call(pod="p2")
    assert in_either_mode([call(), bind(), other], [call(), other, bind()]) == {True}
    assert in_either_mode([call(), bind(), other], [bind(), call(), other]) == {False}


def test_repeated_attempts_count_unless_retries_do_not() -> None:
    again = call(status=FAILED)
    assert not agree([call()], [call(), again])
    assert agree([call()], [call(), again], retries_count=False)
    assert agree([call(), again], [call()], retries_count=False)
    assert agree([call(), again], [call(), again, again], retries_count=False)


def test_status_of_the_pod_in_a_repeated_attempt_is_compared() -> None:
    another = {**FAILED, "nominatedNodeName": "n1"}
    again, changed = call(status=FAILED), call(status=another)
    assert in_either_mode([call(), again], [call(), changed]) == {False}


def test_call_with_another_answer_is_no_repetition() -> None:
    refused, accepted = call(answer="no"), call(status=FAILED, answer="yes")
    assert not agree([refused, accepted], [refused], retries_count=False)
    assert not agree([refused], [refused, accepted], retries_count=False)


def test_late_attempt_of_an_earlier_step_is_no_difference() -> None:
    earlier, now = call(), call(pod="p2")
    late = call(status=FAILED)
    assert agree([now], [late, now], retries_count=False, earlier=[earlier])
    assert not agree([now], [late, now], earlier=[earlier])
    assert not agree([now], [call(nodes=("n9",)), now], retries_count=False, earlier=[earlier])


def test_one_history_begins_the_other_where_two_recordings_differed() -> None:
    assert agree([call(), bind()], [call()], unstable=True)
    assert agree([call()], [call(), bind()], unstable=True)
    assert not agree([call()], [bind()], unstable=True)


def test_difference_names_the_field() -> None:
    difference = calls_difference([call()], [call(status=FAILED)], PATHS)
    assert difference is not None
    assert difference["object"] == "/filter of default/p1"
    assert difference["field"] == "body.Pod.status.conditions"
    assert first_field({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ("a[1].b", 2, 3)
    assert first_field({"a": [1]}, {"a": [1, 2]}) == ("a", [1], [1, 2])
