"""The queue's interface: adds, pops, failed attempts, updates, deletions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from berth_host.queue.events import QueueEvent, assigned_pod_deleted
from berth_host.queue.queued_pod import pods_of
from berth_host.queue.registrations import Registration
from berth_sdk.events import TARGET_POD, ActionType
from berth_sdk.pod import Pod
from support.queue_parts import START_S, Plugins, QueueBench, a_pod, node_added

LABEL = ActionType.UPDATE_POD_LABEL


@pytest.fixture
def bench() -> QueueBench:
    on_label = Registration(resource="Pod", action=int(LABEL))
    node = Registration(resource="Node", action=int(ActionType.ADD))
    gone = Registration(resource="Pod", action=int(ActionType.DELETE))
    return QueueBench(Plugins(registrations={"Fit": [node, gone], "Label": [on_label]}))


def updated(bench: QueueBench, name: str, action: ActionType = LABEL, **changes: object) -> Pod:
    old = bench.pods.by_key[f"default/{name}"]
    fields = {"resource_version": f"{old.resource_version}0", **changes}
    new = bench.pods.put(replace(old, **fields))  # type: ignore[arg-type]  # fields of Pod
    bench.queue.update(old, new, [QueueEvent(TARGET_POD, action, old, new)])
    return new


# --- arrivals and pops ------------------------------------------------------------------------------


def test_pods_are_popped_by_priority_then_by_arrival(bench: QueueBench) -> None:
    bench.add("a", "b")
    bench.add("high", priority=10)
    assert [bench.pop_name() for _ in range(4)] == ["high", "a", "b", ""]


def test_popped_pod_is_in_flight_and_counted(bench: QueueBench) -> None:
    bench.clock.advance(2.5)
    bench.add("a")
    info = bench.pop()
    assert (info.attempts, bench.queue.scheduling_cycle, bench.in_flight) == (1, 1, ["a"])
    assert info.timestamp_us == info.initial_attempt_timestamp_us == round((START_S + 2.5) * 1e6)
    bench.queue.done(info.uid)
    assert bench.in_flight == []


def test_pod_that_is_in_flight_is_not_popped_a_second_time(bench: QueueBench) -> None:
    bench.add("a")
    bench.pop()
    bench.add("a")
    assert bench.pop_name() == ""
    assert (bench.in_flight, bench.active, bench.queue.scheduling_cycle) == (["a"], [], 1)


def test_rejected_pod_is_popped_from_its_backoff_when_nothing_else_is_there(bench: QueueBench) -> None:
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    bench.add("b")
    assert bench.pop_name() == "b"
    assert bench.pop_name() == "a"
    assert bench.notes.entered[-1] == ("active", "PopFromBackoffQ")


def test_failed_pod_waits_out_its_backoff(bench: QueueBench) -> None:
    bench.add("a")
    bench.fail(bench.pop())
    assert not bench.queue.has_ready
    assert bench.pop_name() == ""
    assert bench.backing_off == ["a"]


async def test_waiting_pop_is_woken_by_the_arrival_of_a_pod(bench: QueueBench) -> None:
    waiting = asyncio.ensure_future(bench.queue.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.add("a")
    await waiting
    await bench.queue.ready()
    assert bench.pop_name() == "a"


async def test_waiting_pop_is_woken_when_a_backoff_ends(bench: QueueBench) -> None:
    bench.queue.start()
    bench.add("a")
    bench.fail(bench.pop())
    waiting = asyncio.ensure_future(bench.queue.ready())
    await asyncio.sleep(0)
    bench.clock.advance(3)
    await waiting
    assert bench.pop_name() == "a"


# --- coming back ------------------------------------------------------------------------------------


def test_rejected_pod_waits_in_the_pool(bench: QueueBench) -> None:
    info = bench.parked("a", "Fit")
    assert (bench.pool, bench.in_flight) == (["a"], [])
    assert (info.unschedulable_count, info.consecutive_errors_count) == (1, 0)
    assert bench.notes.rejected == [("Fit", "default-scheduler")]
    assert bench.notes.entered[-1] == ("unschedulable", "ScheduleAttemptFailure")


def test_rejection_ends_a_row_of_errors(bench: QueueBench) -> None:
    bench.add("a")
    for _ in range(2):
        bench.fail(bench.pop())
        bench.clock.advance(20)
        bench.queue.flush_backoff()
    info = bench.pop()
    assert info.consecutive_errors_count == 2
    bench.reject(info, "Fit")
    assert (info.unschedulable_count, info.consecutive_errors_count) == (1, 0)


def test_time_of_return_puts_a_pod_behind_its_equals(bench: QueueBench) -> None:
    bench.add("a", "b")
    info = bench.pop()
    bench.clock.advance(1)
    bench.reject(info, "Fit")
    bench.queue.activate([info.pod])
    assert bench.active == ["b", "a"]


def test_pod_that_is_queued_already_is_not_put_back_twice(bench: QueueBench) -> None:
    bench.add("a")
    info = bench.pop()
    bench.add("a")
    info.unschedulable_plugins = {"Fit"}
    assert not bench.queue.add_unschedulable(info)
    assert (bench.active, bench.pool, bench.in_flight) == (["a"], [], [])


@pytest.mark.parametrize(
    ("pending", "queue"), [((), "backoff"), (("Fit",), "active")], ids=["from backoffQ", "from activeQ"]
)
def test_pod_that_is_popped_the_moment_it_comes_back_is_not_lost(
    bench: QueueBench, monkeypatch: pytest.MonkeyPatch, pending: tuple[str, ...], queue: str
) -> None:
    """kube-scheduler lost the pod if Pop came before the end of the attempt (kubernetes#139450)."""
    bench.add("a")
    info = bench.pop()
    bench.queue.move_all(node_added())
    popped: list[tuple[str, str]] = []

    def entered(queue: str, label: str, count: int = 1) -> None:
        if label == "ScheduleAttemptFailure":
            popped.append((queue, bench.pop_name()))

    monkeypatch.setattr(bench.notes, "pod_entered", entered)
    bench.reject(info, *(() if pending else ("Fit",)), pending=pending)
    assert popped == [(queue, "a")]
    assert (bench.in_flight, bench.active, bench.backing_off, bench.pool) == (["a"], [], [], [])
    bench.fail(info)
    assert (bench.in_flight, bench.backing_off) == ([], ["a"])


def test_rejecting_plugins_are_kept_until_the_next_failure(bench: QueueBench) -> None:
    bench.parked("a", "Fit")
    bench.queue.activate([a_pod("a")])
    assert bench.pop().unschedulable_plugins == {"Fit"}


# --- updates and deletions ----------------------------------------------------------------------------


def test_update_of_an_unknown_pod_is_an_arrival(bench: QueueBench) -> None:
    bench.pods.put(a_pod("a"))
    updated(bench, "a")
    assert bench.active == ["a"]
    assert bench.notes.entered == [("active", "UnscheduledPodAdd")]


def test_queued_pod_is_replaced_where_it_is(bench: QueueBench) -> None:
    bench.add("a")
    bench.fail(bench.pop())
    bench.add("b")
    for name in "ab":
        updated(bench, name, labels={"x": "1"})
    failed, active = pods_of((*bench.queue.places.backoff.failed(), *bench.queue.places.active))
    assert failed.pod.labels == active.pod.labels == {"x": "1"}


def test_update_that_answers_the_rejection_brings_the_pod_back(bench: QueueBench) -> None:
    bench.parked("a", "Label")
    updated(bench, "a", ActionType.UPDATE_POD_TOLERATION)
    assert bench.pool == ["a"]
    updated(bench, "a")
    assert bench.backing_off == ["a"]


def test_update_reaches_no_other_pod_in_the_pool(bench: QueueBench) -> None:
    bench.parked("a", "Label")
    bench.parked("b", "Label")
    updated(bench, "b")
    assert (bench.pool, bench.backing_off) == (["a"], ["b"])


def test_update_of_a_pod_in_flight_counts_when_it_comes_back_and_for_others_too(bench: QueueBench) -> None:
    bench.add("a", "b")
    a, b = bench.pop(), bench.pop()
    updated(bench, "a", labels={"x": "1"})
    assert a.pod.labels == {}
    bench.reject(a, "Label")
    bench.reject(b, "Label")
    assert bench.backing_off == ["a", "b"]


def test_deleted_pod_leaves_every_place(bench: QueueBench) -> None:
    bench.parked("pool", "Fit")
    bench.add("failed")
    bench.fail(bench.pop())
    bench.add("active")
    for name in ("pool", "failed", "active"):
        bench.queue.delete(a_pod(name))
    assert (bench.active, bench.backing_off, bench.pool) == ([], [], [])


def test_deletion_of_an_older_pod_leaves_the_younger_of_its_name(bench: QueueBench) -> None:
    bench.add("a", uid="uid-2")
    bench.queue.delete(a_pod("a"))
    assert bench.active == ["a"]


# --- moves -----------------------------------------------------------------------------------------------


def test_pre_check_limits_the_pods_that_are_looked_at_but_not_those_in_flight(bench: QueueBench) -> None:
    bench.parked("low", "Fit", priority=1)
    bench.parked("high", "Fit", priority=9)
    bench.add("flying", priority=9)
    flying = bench.pop()
    bench.queue.move_all(assigned_pod_deleted(a_pod("gone")), lambda pod: pod.priority <= 5)
    assert (bench.pool, bench.backing_off) == (["high"], ["low"])
    bench.reject(flying, "Fit")
    assert "flying" in bench.backing_off


def test_event_that_no_plugin_registered_is_not_kept(bench: QueueBench) -> None:
    bench.add("a")
    bench.pop()
    condition = QueueEvent("Node", ActionType.UPDATE_NODE_CONDITION)
    assert not bench.queue.wants(condition)
    bench.queue.move_all(condition)
    assert bench.queue.in_flight.event_count == 0
    assert bench.notes.events == ["NodeUpdateNodeCondition"]


def test_activation_takes_pods_out_of_pool_and_backoff(bench: QueueBench) -> None:
    bench.parked("a", "Fit")
    bench.add("b")
    bench.fail(bench.pop())
    bench.queue.activate([a_pod("a"), a_pod("b"), a_pod("unknown")])
    assert sorted(bench.active) == ["a", "b"]


def test_activation_during_the_attempt_counts_for_that_pod_alone(bench: QueueBench) -> None:
    bench.add("a", "b")
    a, b = bench.pop(), bench.pop()
    bench.queue.activate([a.pod])
    bench.reject(a, "Fit")
    bench.reject(b, "Fit")
    assert (bench.backing_off, bench.pool) == (["a"], ["b"])


# --- nominations -------------------------------------------------------------------------------------------


def test_arriving_pod_is_registered_with_the_nomination_of_its_status(bench: QueueBench) -> None:
    bench.add("a", nominated_node="n1")
    assert [pod.name for pod in bench.queue.nominated_pods()["n1"]] == ["a"]
    bench.queue.delete(bench.pods.by_key["default/a"])
    assert bench.queue.nominated_pods() == {}


def test_update_of_a_pod_in_the_pool_keeps_its_nomination_in_memory(bench: QueueBench) -> None:
    info = bench.parked("a", "Fit")
    bench.queue.nominate(info.pod, "n1")
    updated(bench, "a")
    assert list(bench.queue.nominated_pods()) == ["n1"]
    bench.queue.delete_nomination(info.pod)
    assert bench.queue.nominated_pods() == {}
