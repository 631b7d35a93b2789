"""What a plugin must still be told: at least once, in batches, before a new Reserve, with backoff."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_host.rpc.served.outbox import Outbox, Parcel
from berth_host.tracing.attempt_trace import Anchor
from berth_sdk.kube_object import ObjectRef


class Receiver:
    """Takes what it is sent, unless the test says how it fails. `done`: what it acknowledges; None: all."""

    def __init__(self) -> None:
        self.unreserved: list[list[str]] = []
        self.post_bound: list[list[str]] = []
        self.ended: list[list[str]] = []
        self.failures: list[PluginError] = []
        self.done: set[str] | None = None
        self.gate: asyncio.Event | None = None
        self.is_there = True

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        await self._pass()
        ids = [item.cycle_id for item in items]
        self.unreserved.append(ids)
        return set(ids) if self.done is None else self.done

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        await self._pass()
        self.post_bound.append([item.cycle_id for item in items])

    async def send_end_cycles(
        self, ended: Sequence[tuple[str, CycleEnd]], anchors: Sequence[Anchor] = ()
    ) -> None:
        await self._pass()
        self.ended.append([cycle_id for cycle_id, _ in ended])

    async def _pass(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)


def gone() -> PluginUnavailableError:
    return PluginUnavailableError("Demo", "Unreserve", "is gone")


def parcel(cycle_id: str, uid: str = "") -> Parcel:
    ref = ObjectRef(namespace="default", name=cycle_id, uid=uid or f"uid-{cycle_id}")
    return Parcel(cycle_id, ref, "n1", b"", "default-scheduler")


def outbox(clock: ManualClock) -> Outbox:
    return Outbox("Demo", clock, rng=random.Random(1))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_unreserve_is_over_once_it_is_acknowledged(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    await box.unreserve(parcel("a"), 60.0)
    assert receiver.unreserved == [["a"]]
    assert box.pending_unreserves == 0


async def test_messages_that_are_added_after_the_host_has_stopped_set_no_timer(clock: ManualClock) -> None:
    box = outbox(clock)
    await box.close()
    with pytest.raises(PluginUnavailableError):
        await box.unreserve(parcel("a"), 60.0)
    box.end_cycle("b", CycleEnd.ABORTED)
    assert clock.next_timer_s() is None
    assert box.pending_unreserves == 1


async def test_many_unreserves_are_sent_in_few_calls(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    tasks = [asyncio.ensure_future(box.unreserve(parcel(f"c{i}"), 60.0)) for i in range(300)]
    await turns()
    receiver.gate.set()
    await asyncio.gather(*tasks)
    assert sum(map(len, receiver.unreserved)) == 300
    assert len(receiver.unreserved) <= 3


async def test_unreserve_without_an_instance_is_sent_to_the_next_one(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    with pytest.raises(PluginUnavailableError):
        await box.unreserve(parcel("a"), 60.0)
    assert box.pending_unreserves == 1
    box.attach(receiver)
    await turns()
    assert receiver.unreserved == [["a"]]
    assert box.pending_unreserves == 0


async def test_failed_delivery_is_repeated_with_growing_waits(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.failures = [gone() for _ in range(4)]
    box.attach(receiver)
    with pytest.raises(PluginUnavailableError):
        await box.unreserve(parcel("a"), 60.0)
    waits = []
    while box.pending_unreserves:
        due_s = clock.next_timer_s()
        assert due_s is not None
        waits.append(due_s - clock.monotonic_s())
        clock.advance_to(due_s)
        await turns()
    assert receiver.unreserved == [["a"]]
    assert len(waits) == 4
    bounds = (0.2, 0.4, 0.8, 1.6)
    assert all(0 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))


async def test_parcel_that_the_answer_lacks_is_sent_again(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    receiver.done = set()
    with pytest.raises(PluginProtocolError, match=r"acknowledged none of 1 .*: done_cycle_ids has to name"):
        await box.unreserve(parcel("a"), 60.0)
    receiver.done = None
    clock.advance(1.0)
    await turns()
    assert receiver.unreserved == [["a"], ["a"]]


async def test_plugin_that_never_gives_back_does_not_delay_settling(
    clock: ManualClock,
) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    receiver.done = set()
    with pytest.raises(PluginProtocolError):
        await box.unreserve(parcel("a"), 60.0)
    assert box.is_delivering
    for _ in range(5):
        clock.advance(10.0)
        await turns()
    assert not box.is_delivering
    assert box.pending_unreserves == 1  # it is still sent, for as long as it takes


async def test_partial_answer_to_unreserve_is_no_violation(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    receiver.done = {"a", "b"}
    tasks = [asyncio.ensure_future(box.unreserve(parcel(name), 60.0)) for name in "abc"]
    await turns()
    receiver.gate.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[:2] == [None, None]
    assert isinstance(done[2], PluginError)


async def test_new_reserve_learns_at_once_that_the_answer_gave_nothing_back(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate, receiver.done = asyncio.Event(), set()
    box.attach(receiver)
    old = asyncio.ensure_future(box.unreserve(parcel("a", uid="pod-1"), 60.0))
    await turns()
    new = asyncio.ensure_future(box.settled("pod-1", 60.0))
    await turns()
    receiver.gate.set()
    for task in (old, new):
        with pytest.raises(PluginProtocolError, match="done_cycle_ids"):
            await task


async def test_slow_plugin_delays_no_caller_beyond_the_deadline(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    with pytest.raises(PluginTimeoutError):
        await box.unreserve(parcel("a"), 0.01)
    assert box.pending_unreserves == 1
    receiver.gate.set()
    await turns()
    assert box.pending_unreserves == 0


async def test_new_reserve_of_the_same_pod_waits_for_the_old_unreserve(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    task = asyncio.ensure_future(box.unreserve(parcel("a", uid="pod-1"), 60.0))
    await turns()
    await box.settled("pod-2", 0.01)  # another pod does not wait
    with pytest.raises(PluginTimeoutError):
        await box.settled("pod-1", 0.01)
    waiting = asyncio.ensure_future(box.settled("pod-1", 60.0))
    receiver.gate.set()
    await asyncio.gather(task, waiting)


async def test_post_bind_is_tried_five_times_and_then_dropped(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.failures = [gone() for _ in range(5)]
    box.attach(receiver)
    box.post_bind(parcel("a"))
    await turns()
    while box.dropped == 0:
        clock.advance(10.0)
        await turns()
    clock.advance(100.0)
    await turns()
    assert (receiver.post_bound, box.dropped) == ([], 1)


async def test_post_bind_is_reported_once_it_is_acknowledged(clock: ManualClock) -> None:
    told: list[str] = []
    box, receiver = Outbox("Demo", clock, post_bound=lambda pod: told.append(pod.name)), Receiver()
    receiver.failures = [gone()]
    box.attach(receiver)
    box.post_bind(parcel("a"))
    await turns()
    assert told == []
    clock.advance(10.0)
    await turns()
    assert told == ["a"]


@pytest.mark.parametrize("is_swapped", [True, False], ids=["swapped", "lost, and then another one"])
async def test_post_bind_under_way_to_the_replaced_instance_goes_to_the_next_one_as_well(
    clock: ManualClock, is_swapped: bool
) -> None:
    acknowledged: list[str] = []
    box = Outbox("Demo", clock, rng=random.Random(1), post_bound=lambda pod: acknowledged.append(pod.name))
    old, new = Receiver(), Receiver()
    old.gate = asyncio.Event()
    box.attach(old)
    box.post_bind(parcel("a"))
    await turns()
    box.detach(old)
    if is_swapped:
        box.attach(new)
    old.gate.set()
    await turns()
    if not is_swapped:
        # The list for the next instance still has the reservation.
        assert not box.was_post_bound("a")
        box.attach(new)
        await turns()
    assert (old.post_bound, new.post_bound) == ([["a"]], [["a"]])
    assert acknowledged == ["a"]
    assert box.was_post_bound("a")
    await box.close()


async def test_end_of_a_cycle_comes_after_its_post_bind(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    box.post_bind(parcel("a"))
    box.end_cycle("a", CycleEnd.BOUND)
    assert box.take_ended() == []
    receiver.gate.set()
    await turns()
    assert receiver.post_bound == [["a"]]
    assert box.take_ended() == [("a", CycleEnd.BOUND)]


async def test_ends_go_by_themselves_after_an_idle_second(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    box.end_cycle("a", CycleEnd.UNSCHEDULABLE)
    await turns()
    assert receiver.ended == []
    clock.advance(1.0)
    await turns()
    assert receiver.ended == [["a"]]


async def test_ends_wait_for_the_next_call_as_long_as_there_are_calls(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    for second in range(3):
        box.end_cycle(f"taken-{second}", CycleEnd.BOUND)
        box.ended_told(box.take_ended())
        box.end_cycle(f"late-{second}", CycleEnd.BOUND)
        clock.advance(1.0)
        await turns()
        assert receiver.ended == []
    clock.advance(1.0)
    await turns()
    assert receiver.ended == [["late-2"]]


async def test_ends_do_not_wait_for_calls_that_fail(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    for number in range(20):
        box.return_ended(box.take_ended())
        box.end_cycle(f"c{number}", CycleEnd.UNSCHEDULABLE)
        clock.advance(0.5)
        await turns()
    assert sum(map(len, receiver.ended)) > 15


async def test_ends_of_a_failed_call_are_carried_by_the_next_one(clock: ManualClock) -> None:
    box = outbox(clock)
    box.end_cycle("a", CycleEnd.BOUND)
    taken = box.take_ended()
    assert box.take_ended() == []
    box.return_ended(taken)
    assert box.take_ended() == taken


async def test_ends_are_bounded_while_no_instance_is_attached(clock: ManualClock) -> None:
    box = outbox(clock)
    for i in range(10_050):
        box.end_cycle(str(i), CycleEnd.BOUND)
    taken = []
    while batch := box.take_ended():
        taken += batch
    assert len(taken) == 10_000
    assert taken[-1] == ("10049", CycleEnd.BOUND)


async def test_draining_sends_everything_that_is_left(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    box.post_bind(parcel("a"))
    box.end_cycle("a", CycleEnd.BOUND)
    assert await box.drained(60.0)
    assert (receiver.post_bound, receiver.ended) == ([["a"]], [["a"]])


async def test_closed_outbox_leaves_no_task_behind(clock: ManualClock) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.gate = asyncio.Event()
    box.attach(receiver)
    box.post_bind(parcel("a"))
    await turns()
    await box.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox-Demo"]


async def test_row_15_parcel_that_a_reconcile_superseded_is_sent_a_few_times_more_and_no_longer(
    clock: ManualClock,
) -> None:
    box, receiver = outbox(clock), Receiver()
    receiver.done = set()
    box.attach(receiver)
    with pytest.raises(PluginError):
        await box.unreserve(parcel("a", uid="u"), 60.0)
    for _ in range(20):
        box.supersede(box.given_back())  # of each instance that comes; the tries are counted once
        await turns()
        clock.advance(10.0)
    await box.settled("u", 60.0)
    assert box.pending_unreserves == 0
    assert len(receiver.unreserved) == 7


async def test_parcel_that_a_lost_instance_did_not_take_is_kept_for_the_next_one(
    clock: ManualClock,
) -> None:
    box, receiver = outbox(clock), Receiver()
    with pytest.raises(PluginUnavailableError):
        await box.unreserve(parcel("a"), 60.0)
    box.supersede(box.given_back())
    receiver.failures = [gone() for _ in range(20)]
    box.attach(receiver)
    for _ in range(30):
        await turns()
        clock.advance(10.0)
    assert receiver.unreserved == [["a"]]
    assert box.pending_unreserves == 0


async def test_a_bound_pod_is_alive_to_its_plugin_until_it_was_told(clock: ManualClock) -> None:
    box = outbox(clock)
    box.end_cycle("a", CycleEnd.BOUND, parcel("a"))
    box.end_cycle("b", CycleEnd.UNSCHEDULABLE)
    assert [item.cycle_id for item in box.bound_untold()] == ["a"]
    taken = box.take_ended()
    box.return_ended(taken)
    assert [item.cycle_id for item in box.bound_untold()] == ["a"]
    box.ended_told(box.take_ended())
    assert box.bound_untold() == []


@pytest.mark.parametrize("end_comes_first", [True, False])
async def test_pod_whose_post_bind_was_received_is_not_alive_although_its_end_is_still_to_come(
    clock: ManualClock, *, end_comes_first: bool
) -> None:
    box, receiver = outbox(clock), Receiver()
    box.post_bind(parcel("a"))
    if end_comes_first:
        box.end_cycle("a", CycleEnd.BOUND, parcel("a"))
        assert [item.cycle_id for item in box.bound_untold()] == ["a"]
    box.attach(receiver)
    await turns()
    if not end_comes_first:
        box.end_cycle("a", CycleEnd.BOUND, parcel("a"))
    assert box.bound_untold() == []
    clock.advance(2.0)
    await turns()
    assert receiver.ended == [["a"]]
    box.end_cycle("b", CycleEnd.BOUND, parcel("b"))
    assert [item.cycle_id for item in box.bound_untold()] == ["b"]


async def test_the_end_of_a_bound_pods_cycle_is_sent_when_the_line_is_idle(
    clock: ManualClock,
) -> None:
    box, receiver = outbox(clock), Receiver()
    box.attach(receiver)
    box.end_cycle("a", CycleEnd.BOUND, parcel("a"))
    clock.advance(2.0)
    await turns()
    assert receiver.ended == [["a"]]
    assert box.bound_untold() == []


async def test_a_call_to_an_instance_that_is_not_asked_any_more_carries_no_ends(clock: ManualClock) -> None:
    own, asked, box = Receiver(), Receiver(), outbox(clock)
    box.attach(asked)
    box.end_cycle("a", CycleEnd.ABORTED)
    assert box.take_ended(own) == []
    assert box.take_ended(asked) == [("a", CycleEnd.ABORTED)]
    await box.close()


# --- instances that are not called any more -------------------------------------------------------------


class Instance:
    """Takes what it is sent, once `answers` is set; or fails."""

    def __init__(self) -> None:
        self.is_there = True
        self.failure: PluginError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.heard: list[tuple[str, list[str]]] = []

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        await self._hear("Unreserve", [item.cycle_id for item in items])
        return {item.cycle_id for item in items}

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        await self._hear("PostBind", [item.cycle_id for item in items])

    async def send_end_cycles(
        self, ended: Sequence[tuple[str, CycleEnd]], anchors: Sequence[Anchor] = ()
    ) -> None:
        await self._hear("EndCycles", [cycle_id for cycle_id, _ in ended])

    async def _hear(self, call: str, cycle_ids: list[str]) -> None:
        await self.answers.wait()
        self.heard.append((call, cycle_ids))
        if self.failure is not None:
            raise self.failure


def parcel_of(cycle_id: str, own: Instance) -> Parcel:
    return Parcel(
        cycle_id, ObjectRef(name=cycle_id, uid=f"uid-{cycle_id}"), "n1", b"", "default-scheduler", own=own
    )


async def test_end_of_a_cycle_goes_to_its_former_instance_as_well() -> None:
    """The one that is asked was told of the reservation by Reconcile."""
    own, asked, box = Instance(), Instance(), outbox(ManualClock())
    box.attach(asked)
    await box.unreserve(parcel_of("a", own), 60.0)
    box.post_bind(parcel_of("b", own))
    box.end_cycle("b", CycleEnd.BOUND, own=own)
    assert await box.drained(60.0)
    assert {call for call, _ in own.heard} == {"Unreserve", "PostBind", "EndCycles"}
    assert asked.heard == [("Unreserve", ["a"]), ("PostBind", ["b"]), ("EndCycles", ["b"])]
    await box.close()


async def test_messages_that_wait_go_to_the_replaced_instance_as_well() -> None:
    own, asked, box = Instance(), Instance(), outbox(ManualClock())
    own.answers.clear()
    box.attach(own)
    box.end_cycle("a", CycleEnd.ABORTED, own=own)
    giving_back = asyncio.create_task(box.unreserve(parcel_of("b", own), 60.0))
    await asyncio.sleep(0)
    box.detach(own)
    box.attach(asked)
    own.answers.set()
    await giving_back
    assert await box.drained(60.0)
    assert ("EndCycles", ["a"]) in own.heard
    assert ("Unreserve", ["b"]) in own.heard
    assert ("EndCycles", ["a"]) in asked.heard
    await box.close()


async def test_former_instance_that_hangs_or_is_gone_delays_nobody() -> None:
    hung, gone, asked, box = Instance(), Instance(), Instance(), outbox(ManualClock())
    hung.answers.clear()
    gone.is_there = False
    box.attach(asked)
    await box.unreserve(parcel_of("a", hung), 60.0)
    await box.unreserve(parcel_of("b", gone), 60.0)
    assert asked.heard == [("Unreserve", ["a"]), ("Unreserve", ["b"])]
    assert box.pending_unreserves == 0
    assert (hung.heard, gone.heard) == ([], [])
    await box.close()


async def test_message_that_a_former_instance_does_not_answer_is_not_sent_again() -> None:
    own, asked, box = Instance(), Instance(), outbox(ManualClock())
    own.failure = PluginTimeoutError("Demo", "Unreserve", 1.0)
    box.attach(asked)
    await box.unreserve(parcel_of("a", own), 60.0)
    assert await box.drained(60.0)
    assert own.heard == [("Unreserve", ["a"])]
    await box.close()


async def test_without_a_called_instance_the_former_and_the_next_one_get_the_end() -> None:
    own, later, box = Instance(), Instance(), outbox(ManualClock())
    box.end_cycle("a", CycleEnd.ABORTED, own=own)
    await box.drained(60.0)
    assert own.heard == [("EndCycles", ["a"])]
    box.attach(later)
    assert box.take_ended(later) == [("a", CycleEnd.ABORTED)]
    await box.close()
