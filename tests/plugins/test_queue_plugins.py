"""SchedulingGates and PrioritySort: which pods enter the queue, and in which order."""

from __future__ import annotations

import pytest
from berth_plugins.priority_sort import PrioritySort
from berth_plugins.scheduling_gates import SchedulingGates
from berth_sdk.events import ClusterEvent
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status
from berth_sdk.testing import make_pod
from hypothesis import given
from hypothesis import strategies as st
from support.asking import Ask, Plug

GATES = Plug(SchedulingGates)
SORT = Plug(PrioritySort)


async def test_pod_without_gates_enters_the_queue(ask: Ask) -> None:
    assert await ask.pre_enqueue(GATES, QueuedPod(pod=make_pod("web"))) == Status.success()


async def test_gated_pod_stays_out_and_all_gates_are_named_in_order(ask: Ask) -> None:
    pod = make_pod("web", gates=["b.example.com/quota", "a"])
    want = Status.unresolvable("waiting for scheduling gates: [b.example.com/quota a]")
    assert await ask.pre_enqueue(GATES, QueuedPod(pod=pod)) == want


@pytest.mark.parametrize(("uid", "want"), [("u1", True), ("u2", False)])
async def test_gate_hint_is_true_only_for_the_pod_itself(ask: Ask, uid: str, want: bool) -> None:
    event = ClusterEvent(
        resource="Pod",
        action="update.schedulingGates",
        old=make_pod("web", uid=uid, gates=["a"]),
        new=make_pod("web", uid=uid),
    )
    assert await ask.hint(GATES, event, make_pod("web", uid="u1", gates=["a"])) is want


queued = st.builds(
    lambda priority, at: QueuedPod(pod=make_pod("web", priority=priority), added_at_s=at),
    st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0.0, 1.0, 1763596800.0, 1763596800.001]) | st.floats(0, 4e9),
)


@given(queued, queued)
def test_keys_order_by_priority_and_then_by_time(first: QueuedPod, second: QueuedPod) -> None:
    runtime = SORT.runtime()
    first_key, second_key = runtime.sort_key(first), runtime.sort_key(second)
    assert isinstance(first_key, bytes)
    assert isinstance(second_key, bytes)
    got = first_key < second_key
    want = (-first.pod.priority, first.added_at_s) < (-second.pod.priority, second.added_at_s)
    assert got is want


async def test_retried_pod_is_ordered_behind_its_equals(ask: Ask) -> None:
    pod = make_pod("web", priority=7)
    waiting = await ask.sort_key(SORT, QueuedPod(pod=pod, added_at_s=1763596800.25))
    retried = await ask.sort_key(SORT, QueuedPod(pod=pod, added_at_s=1763596800.5, attempts=3))
    assert waiting < retried
