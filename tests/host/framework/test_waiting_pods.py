"""Pods held at Permit: votes, early decisions, timeouts."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.model.clock import ManualClock
from berth_sdk.permit_wait import MAX_WAIT_S
from berth_sdk.pod import Pod
from berth_sdk.results import Decision
from berth_sdk.status import Code

POD = Pod(name="web", uid="uid-web")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_s=1000.0)


@pytest.fixture
def waiting(clock: ManualClock) -> WaitingPods:
    pods = WaitingPods(clock)
    pods.register(POD, "c1", "n1")
    return pods


async def test_pod_goes_on_when_every_plugin_that_waits_has_allowed_it(waiting: WaitingPods) -> None:
    waiting.hold(POD.uid, {"A": 10.0, "B": 10.0})
    wait = asyncio.ensure_future(waiting.wait(POD.uid))
    assert waiting.allow("A", POD.uid, "c1") is Decision.APPLIED
    await asyncio.sleep(0)
    assert not wait.done()
    assert waiting.allow("B", POD.uid, "c1") is Decision.APPLIED
    assert (await wait).is_success
    assert not waiting.is_waiting(POD.uid)


async def test_allow_before_the_reply_of_permit_is_kept_and_applied(waiting: WaitingPods) -> None:
    assert waiting.allow("A", POD.uid, "c1") is Decision.STORED_EARLY
    waiting.hold(POD.uid, {"A": 10.0})
    assert (await waiting.wait(POD.uid)).is_success


async def test_reject_before_the_reply_of_permit_is_kept_and_applied(waiting: WaitingPods) -> None:
    assert waiting.reject("B", POD.uid, "c1", "no") is Decision.STORED_EARLY
    waiting.hold(POD.uid, {"A": 10.0})
    status = await waiting.wait(POD.uid)
    assert (status.code, status.message, status.plugin) == (Code.UNSCHEDULABLE, "no", "B")


async def test_early_decision_is_discarded_when_permit_does_not_wait(waiting: WaitingPods) -> None:
    waiting.reject("B", POD.uid, "c1", "no")
    waiting.discard(POD.uid)
    assert (await waiting.wait(POD.uid)).is_success
    assert waiting.allow("A", POD.uid, "c1") is Decision.NOT_WAITING


async def test_allow_without_a_name_ends_the_plugins_own_wait_alone(waiting: WaitingPods) -> None:
    waiting.hold(POD.uid, {"A": 10.0})
    assert waiting.allow("B", POD.uid, "c1") is Decision.NOT_PERMITTED
    assert waiting.list("A")[0].pending_plugins == ("A",)


async def test_plugin_ends_the_wait_of_another_plugin_that_it_names(waiting: WaitingPods) -> None:
    waiting.hold(POD.uid, {"A": 10.0, "B": 10.0})
    assert waiting.allow("C", POD.uid, "c1", "A") is Decision.APPLIED
    assert waiting.list()[0].pending_plugins == ("B",)
    assert waiting.allow("C", POD.uid, "c1", "A") is Decision.ALREADY_DECIDED
    assert waiting.allow("C", POD.uid, "c1", "D") is Decision.NOT_PERMITTED
    assert waiting.allow("A", POD.uid, "c1", "B") is Decision.APPLIED
    assert (await waiting.wait(POD.uid)).is_success


async def test_allow_in_another_name_before_permit_is_over_is_kept_and_applied(waiting: WaitingPods) -> None:
    assert waiting.allow("C", POD.uid, "c1", "A") is Decision.STORED_EARLY
    waiting.hold(POD.uid, {"A": 10.0})
    assert (await waiting.wait(POD.uid)).is_success


async def test_restricted_plugin_ends_its_own_waits_and_those_that_were_named(clock: ManualClock) -> None:
    waiting = WaitingPods(clock, {"C": frozenset({"A"})})
    waiting.register(POD, "c1", "n1")
    waiting.hold(POD.uid, {"A": 10.0, "B": 10.0, "C": 10.0})
    assert waiting.allow("C", POD.uid, "c1", "B") is Decision.NOT_PERMITTED
    assert waiting.allow("C", POD.uid, "c1", "A") is Decision.APPLIED
    assert waiting.allow("C", POD.uid, "c1") is Decision.APPLIED
    # C no longer holds the pod, so that a rejection would end only the wait of B.
    assert waiting.reject("C", POD.uid, "c1", "no") is Decision.NOT_PERMITTED
    assert waiting.reject("B", POD.uid, "c1", "no") is Decision.APPLIED


async def test_restricted_plugin_rejects_a_pod_that_it_holds_itself(clock: ManualClock) -> None:
    waiting = WaitingPods(clock, {"C": frozenset()})
    waiting.register(POD, "c1", "n1")
    waiting.hold(POD.uid, {"A": 10.0, "C": 10.0})
    assert waiting.reject("C", POD.uid, "c1", "no") is Decision.APPLIED
    assert (await waiting.wait(POD.uid)).plugin == "C"


@pytest.mark.parametrize(("holder", "rejected"), [("A", True), ("B", False)])
async def test_early_reject_of_a_restricted_plugin_counts_by_who_holds_the_pod(
    clock: ManualClock, holder: str, rejected: bool
) -> None:
    waiting = WaitingPods(clock, {"C": frozenset({"A"})})
    waiting.register(POD, "c1", "n1")
    assert waiting.reject("C", POD.uid, "c1", "no") is Decision.STORED_EARLY
    waiting.hold(POD.uid, {holder: 10.0})
    assert (not waiting.list()) == rejected
    assert (waiting.allow(holder, POD.uid, "c1") is Decision.APPLIED) != rejected
    assert (await waiting.wait(POD.uid)).is_success != rejected


async def test_cycles_that_a_plugin_holds_are_known_from_its_wait_to_its_decision(
    waiting: WaitingPods,
) -> None:
    assert waiting.deadlines_of("A") == {}
    waiting.will_hold(POD.uid, "A", 10.0)
    assert waiting.deadlines_of("A") == {"c1": 1010.0}
    assert waiting.deadlines_of("B") == {}
    waiting.hold(POD.uid, {"A": 10.0, "B": 5.0})
    assert (waiting.deadlines_of("A"), waiting.deadlines_of("B")) == ({"c1": 1010.0}, {"c1": 1005.0})
    waiting.allow("A", POD.uid, "c1")
    assert (waiting.deadlines_of("A"), waiting.deadlines_of("B")) == ({}, {"c1": 1005.0})
    waiting.reject("B", POD.uid, "c1", "no")
    assert waiting.deadlines_of("B") == {}


async def test_decisions_for_another_cycle_or_twice_have_no_effect(waiting: WaitingPods) -> None:
    waiting.hold(POD.uid, {"A": 10.0})
    assert waiting.allow("A", POD.uid, "c0") is Decision.STALE_CYCLE
    assert waiting.allow("A", POD.uid, "c1") is Decision.APPLIED
    assert waiting.allow("A", POD.uid, "c1") is Decision.ALREADY_DECIDED
    assert waiting.reject("A", POD.uid, "c1", "late") is Decision.ALREADY_DECIDED
    assert (await waiting.wait(POD.uid)).is_success


async def test_first_timeout_rejects_with_the_plugins_name(waiting: WaitingPods, clock: ManualClock) -> None:
    waiting.hold(POD.uid, {"A": 90.0, "B": 200.0})
    assert waiting.list()[0].deadline_s == 1090.0
    clock.advance(90)
    status = await waiting.wait(POD.uid)
    assert status.message == "rejected due to timeout after waiting 1m30s at plugin A"
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE, "A")


async def test_waits_are_clamped_to_fifteen_minutes(waiting: WaitingPods, clock: ManualClock) -> None:
    waiting.hold(POD.uid, {"A": 10 * MAX_WAIT_S})
    clock.advance(MAX_WAIT_S)
    assert "after waiting 15m0s" in (await waiting.wait(POD.uid)).message


@pytest.mark.parametrize("wait_s", [0.0, -5.0])
async def test_wait_of_no_time_ends_at_once_unless_the_plugin_has_allowed_the_pod(
    waiting: WaitingPods, clock: ManualClock, wait_s: float
) -> None:
    waiting.hold(POD.uid, {"A": wait_s})
    clock.advance(0)
    assert "after waiting 0s at plugin A" in (await waiting.wait(POD.uid)).message
    waiting.register(POD, "c2", "n0")
    assert waiting.allow("A", POD.uid, "c2") is Decision.STORED_EARLY
    waiting.hold(POD.uid, {"A": wait_s})
    assert (await waiting.wait(POD.uid)).is_success


async def test_preemption_ends_a_wait_with_an_error(waiting: WaitingPods) -> None:
    assert not waiting.preempt(POD.uid, "P", "preempted")  # Permit is not over
    waiting.hold(POD.uid, {"A": 10.0})
    assert waiting.preempt(POD.uid, "P", "preempted")
    assert (await waiting.wait(POD.uid)).code is Code.ERROR
    assert not waiting.preempt(POD.uid, "P", "again")


async def test_removed_pod_is_rejected_and_leaves_no_timer(waiting: WaitingPods, clock: ManualClock) -> None:
    waiting.hold(POD.uid, {"A": 10.0})
    assert waiting.reject_pod(POD.uid)
    assert (await waiting.wait(POD.uid)).message == "removed"
    assert clock.next_timer_s() is None
    assert not waiting.reject_pod(POD.uid)
