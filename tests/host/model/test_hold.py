"""Which pods a hold of room lets in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.model.hold import Hold
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

NOW_S = 1000.0


def hold(waits_for: Mapping[str, float | None], **more: Any) -> Hold:
    given = {"priority": 5, "preempts_lower": True, "nodes": {"m": "n0"}, **more}
    return Hold(
        key="podgroup/default/g",
        uid="g",
        group_keys=frozenset({"podgroup/default/g"}),
        since_s=NOW_S,
        until_s=NOW_S + 300,
        waits_for=waits_for,
        **given,
    )


def pod(*, priority: int = 5, deadline: object = None, group: str = "") -> Pod:
    spec = {"containers": [], "priority": priority, "activeDeadlineSeconds": deadline}
    made = KubeObject.of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    known = Pod.from_object(made)
    return Pod(name="p", priority=priority, group_key=group, object=known.object)


@pytest.mark.parametrize(
    ("one", "is_let_in"),
    [
        (pod(), False),
        (pod(deadline=50), True),
        (pod(deadline=51), False),
        (pod(deadline="50"), False),
        (pod(priority=4), True),
        (pod(group="podgroup/default/g"), True),
        (pod(group="podgroup/default/other"), False),
        (Pod(name="p", priority=5), False),
    ],
    ids=["endless", "short", "long", "odd", "lower", "member", "stranger", "unknown"],
)
def test_pods_that_do_no_harm_are_let_in(one: Pod, is_let_in: bool) -> None:
    assert hold({"a": NOW_S + 20, "b": NOW_S + 50}).lets_in(one, NOW_S) == is_let_in


@pytest.mark.parametrize("waits_for", [{}, {"a": NOW_S + 50, "b": None}], ids=["none known", "no end"])
def test_without_an_expected_start_no_pod_is_short_enough(waits_for: Mapping[str, float | None]) -> None:
    assert hold(waits_for).expected_start_s is None
    assert not hold(waits_for).lets_in(pod(deadline=1), NOW_S)


def test_group_that_never_preempts_lets_no_pod_of_lower_priority_in() -> None:
    assert not hold({}, preempts_lower=False).lets_in(pod(priority=4), NOW_S)


def test_pods_that_were_let_in_are_counted() -> None:
    room = hold({})
    room.count(pod(priority=4), "n0", NOW_S)
    room.count(pod(priority=4), "n1", NOW_S)
    room.count(pod(priority=6), "n0", NOW_S)
    room.count(pod(group="podgroup/default/g"), "n0", NOW_S)
    assert room.backfilled == 1
