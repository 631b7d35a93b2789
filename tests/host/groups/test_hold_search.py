"""Which pods leave first, and how few of them a group needs to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from berth_host.groups.hold_search import Ends, Fit, Leaving, first_fit, still_fits
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment
from berth_sdk.results import Trial
from berth_sdk.rfc3339 import format_time
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import PodTable
from hypothesis import given
from hypothesis import strategies as st

NOW_S = 1_767_225_600.0
ENDLESS = {"restartPolicy": "Always"}
TASK = {"restartPolicy": "Never"}


def running(
    name: str,
    *,
    started_s: float | None = 0.0,
    spec: Mapping[str, Any] = ENDLESS,
    metadata: Mapping[str, Any] | None = None,
) -> Pod:
    """Return a pod on a node. `started_s`: seconds after NOW_S; None: not started."""
    status = {} if started_s is None else {"startTime": format_time(NOW_S + started_s)}
    return Pod.from_object(
        KubeObject.of(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "uid": name, **(metadata or {})},
                "spec": {"nodeName": "n", "containers": [{"name": "c"}], **spec},
                "status": status,
            }
        )
    )


def leaving(
    pods: Sequence[Pod], *, preempts: bool = False, known: Mapping[str, float] | None = None
) -> Leaving:
    table = PodTable()
    table.set_node_pods(0, pods, (), 1)
    own = {"own"}
    return Ends().leaving(table, own, 0, NOW_S, known or {}, preempts_lower=preempts)


def test_pods_with_an_end_leave_first_then_tasks_then_pods_that_only_their_owner_removes() -> None:
    daemon = {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]
    }
    found = leaving(
        [
            running("service-old", started_s=-500),
            running("service-new", started_s=-100),
            running("task-new", started_s=-100, spec=TASK),
            running("task-old", started_s=-500, spec={"restartPolicy": "OnFailure"}),
            running("task-lower", spec={**TASK, "priority": -1}),
            running("task-higher", spec={**TASK, "priority": 1}),
            running("long", started_s=-100, spec={"activeDeadlineSeconds": 900}),
            running("short", started_s=-100, spec={"activeDeadlineSeconds": 200}),
            running("not-started", started_s=None, spec={"activeDeadlineSeconds": 500}),
            running("deleted", metadata={"deletionTimestamp": format_time(NOW_S + 30)}),
            running("daemon", metadata=daemon),
            running("static", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
            running("own", spec=TASK),
        ]
    )
    assert not found.at_once
    ends = {
        pod.uid: None if end is None else end - NOW_S
        for pod, end in zip(found.in_order, found.ends, strict=True)
    }
    assert list(ends.items()) == [
        ("deleted", 30.0),
        ("short", 100.0),
        ("not-started", 500.0),
        ("long", 800.0),
        ("task-lower", None),
        ("task-old", None),
        ("task-new", None),
        ("service-new", None),
        ("service-old", None),
    ]


def test_pods_that_the_group_may_evict_leave_at_once() -> None:
    found = leaving(
        [running("lower", spec={"priority": -1}), running("equal"), running("own")], preempts=True
    )
    assert [pod.uid for pod in found.at_once] == ["lower"]
    assert [pod.uid for pod in found.in_order] == ["equal"]


def test_estimate_of_a_pod_that_has_not_started_stays_until_it_starts() -> None:
    spec = {"activeDeadlineSeconds": 500}
    waits = leaving([running("p", started_s=None, spec=spec)], known={"p": NOW_S + 400})
    assert waits.ends == [NOW_S + 400]
    started = leaving([running("p", started_s=-50, spec=spec)], known={"p": NOW_S + 400})
    assert started.ends == [NOW_S + 450]


def test_object_of_a_running_pod_stays_in_its_small_form() -> None:
    spec = b'{"nodeName":"n","activeDeadlineSeconds":9,"containers":[]}'
    raw = b'{"metadata":{"name":"p","uid":"p"},"spec":' + spec + b"}"
    pod = Pod.from_object(KubeObject("v1", "Pod", raw=raw))
    assert pod.object is not None
    pod.object.release()
    assert leaving([pod]).ends == [NOW_S + 9]
    assert not pod.object.is_parsed


class Cluster:
    """Fits a group if enough pods have left. `answers`: the status of each number of removed pods."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.asked: list[int] = []
        self.broken_at = -1

    async def run_without(self, removed: Sequence[Pod]) -> Trial:
        self.asked.append(len(removed))
        if len(removed) == self.broken_at:
            return Trial(Status.error("broken"))
        if len(removed) < self.needed:
            return Trial(Status.unschedulable("too few"))
        return Trial(SUCCESS, (Assignment(Pod(name="m", uid="m"), f"n{len(removed)}"),))


@given(count=st.integers(1, 300), needed=st.integers(1, 320), lower=st.integers(0, 3))
def test_fewest_pods_are_found_in_few_tries(count: int, needed: int, lower: int) -> None:
    pods = Leaving(
        [Pod(name="l", uid=f"l{i}") for i in range(lower)],
        [Pod(name="p", uid=f"p{i}") for i in range(count)],
        [float(i) for i in range(count)],
    )
    cluster = Cluster(needed)
    found = asyncio.run(first_fit(cluster, pods))
    assert len(cluster.asked) <= 2 * max(needed, 1).bit_length() + 2
    if needed > count + lower:
        assert isinstance(found, Status)
        assert found.is_rejected
        return
    assert isinstance(found, Fit)
    left = max(0, needed - lower)
    assert found.waits_for == {f"p{i}": float(i) for i in range(left)}
    assert found.nodes == {"m": f"n{lower + left}"}


@pytest.mark.parametrize("at", [1, 2, 4, 3])
def test_error_of_a_plugin_ends_the_search(at: int) -> None:
    pods = Leaving([], [Pod(name="p", uid=f"p{i}") for i in range(8)], [None] * 8)
    cluster = Cluster(4)
    cluster.broken_at = at
    found = asyncio.run(first_fit(cluster, pods))
    assert isinstance(found, Status)
    assert not found.is_rejected
    assert cluster.asked[-1] == at


def test_nothing_that_leaves_is_no_reason_to_try() -> None:
    cluster = Cluster(0)
    found = asyncio.run(first_fit(cluster, Leaving([], [], [])))
    assert isinstance(found, Status)
    assert found.is_rejected
    assert cluster.asked == []


def test_hold_goes_on_without_the_pods_that_it_waits_for_and_those_that_were_let_in() -> None:
    pods = Leaving([], [Pod(name="p", uid=uid) for uid in "abcd"], [10.0, 20.0, 30.0, None])
    chosen = pods.chosen({"d", "gone"}, 20.0)
    assert [pod.uid for pod in chosen.in_order] == ["a", "b", "d"]
    cluster = Cluster(3)
    found = asyncio.run(still_fits(cluster, chosen))
    assert isinstance(found, Fit)
    assert found.waits_for == {"a": 10.0, "b": 20.0, "d": None}
    assert [pod.uid for pod in pods.chosen({"d"}, None).in_order] == ["d"]
