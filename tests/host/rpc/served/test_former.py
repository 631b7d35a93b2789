"""Instances that are not asked any more hear what becomes of their own cycles, and hold up nobody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from berth_host.errors.plugins import PluginError, PluginTimeoutError
from berth_host.model.clock import ManualClock
from berth_host.rpc.cycle import CycleEnd
from berth_host.rpc.served.outbox import Ended, Outbox, Parcel
from berth_sdk.kube_object import ObjectRef


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

    async def send_end_cycles(self, ended: Sequence[Ended]) -> None:
        await self._hear("EndCycles", [cycle_id for cycle_id, _ in ended])

    async def _hear(self, call: str, cycle_ids: list[str]) -> None:
        await self.answers.wait()
        self.heard.append((call, cycle_ids))
        if self.failure is not None:
            raise self.failure


def parcel(cycle_id: str, own: Instance) -> Parcel:
    return Parcel(cycle_id, ObjectRef(name=cycle_id, uid=f"uid-{cycle_id}"), "n1", b"", own=own)


def outbox() -> Outbox:
    return Outbox("Demo", ManualClock(), rng=random.Random(1))


async def test_both_hear_of_a_cycle_of_the_one_that_is_not_asked_any_more() -> None:
    """The one that is asked was told of the reservation by Reconcile."""
    own, asked, box = Instance(), Instance(), outbox()
    box.attach(asked)
    await box.unreserve(parcel("a", own), 60.0)
    box.post_bind(parcel("b", own))
    box.end_cycle("b", CycleEnd.BOUND, own=own)
    assert await box.drained(60.0)
    assert {call for call, _ in own.heard} == {"Unreserve", "PostBind", "EndCycles"}
    assert asked.heard == [("Unreserve", ["a"]), ("PostBind", ["b"]), ("EndCycles", ["b"])]
    await box.close()


async def test_what_waits_when_it_is_replaced_is_told_to_it_as_well() -> None:
    own, asked, box = Instance(), Instance(), outbox()
    own.answers.clear()
    box.attach(own)
    box.end_cycle("a", CycleEnd.ABORTED, own=own)
    giving_back = asyncio.create_task(box.unreserve(parcel("b", own), 60.0))
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


async def test_one_that_hangs_or_is_gone_holds_up_nobody() -> None:
    hung, gone, asked, box = Instance(), Instance(), Instance(), outbox()
    hung.answers.clear()
    gone.is_there = False
    box.attach(asked)
    await box.unreserve(parcel("a", hung), 60.0)
    await box.unreserve(parcel("b", gone), 60.0)
    assert asked.heard == [("Unreserve", ["a"]), ("Unreserve", ["b"])]
    assert box.pending_unreserves == 0
    assert (hung.heard, gone.heard) == ([], [])
    await box.close()


async def test_what_it_does_not_answer_is_not_sent_again() -> None:
    own, asked, box = Instance(), Instance(), outbox()
    own.failure = PluginTimeoutError("Demo", "Unreserve", 1.0)
    box.attach(asked)
    await box.unreserve(parcel("a", own), 60.0)
    assert await box.drained(60.0)
    assert own.heard == [("Unreserve", ["a"])]
    await box.close()


async def test_where_none_is_asked_its_own_instance_hears_and_the_next_one_as_well() -> None:
    own, later, box = Instance(), Instance(), outbox()
    box.end_cycle("a", CycleEnd.ABORTED, own=own)
    await box.drained(60.0)
    assert own.heard == [("EndCycles", ["a"])]
    box.attach(later)
    assert box.take_ended(later) == [("a", CycleEnd.ABORTED)]
    await box.close()
