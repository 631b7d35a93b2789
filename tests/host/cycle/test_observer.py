"""The moments of attempts that the cycles tell an observer of, with whole hosts."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from berth_host.app import Fit
from berth_host.attempt.cycle import Cycle
from berth_host.cycle.observer import UNOBSERVED, AttemptStep
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Code, Status
from support.groups import grouped, members, pod_group
from support.hosts import World, node, pod
from support.moments import Moments
from support.waiting import until

SEARCH = ["begun", "PreFilter", "Filter"]
BINDING = ["binds", "PreBindPreFlight", "Bind", "write Binding", "settled: bound", "PostBind", "ended"]


class Waits(Plugin):
    """Lets every pod wait at Permit."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), wait_timeout_s=60.0)


class Prepares(Plugin):
    """Prepares every pod without an end."""

    began: ClassVar[bool] = False

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: object) -> Status:
        type(self).began = True
        await asyncio.Event().wait()
        return Status.success()


class Refuses(Plugin):
    """Rejects every pod at Reserve."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.unschedulable("no room in the store")


async def test_bound_pod_is_seen_from_its_start_to_the_end_of_post_bind() -> None:
    moments = Moments()
    async with World([node("a"), pod("web")], observers=[moments]) as world:
        await world.settle()
    assert moments.of("web") == [*SEARCH, "chosen: a", "Reserve", "Permit", *BINDING]


async def test_two_feasible_nodes_are_scored_before_one_is_chosen() -> None:
    moments = Moments()
    async with World([node("a"), node("b"), pod("web")], observers=[moments]) as world:
        await world.settle()
    seen = moments.of("web")
    assert seen[:4] == [*SEARCH, "Score"]
    assert seen[4].startswith("chosen: ")


async def test_pod_without_a_node_ends_after_post_filter() -> None:
    moments = Moments()
    async with World([node("a", cpu="1"), pod("big", cpu="9")], observers=[moments]) as world:
        await world.settle()
    assert moments.of("big") == [*SEARCH, "PostFilter", "settled: unschedulable", "ended"]


async def test_rejection_at_reserve_is_undone_before_the_attempt_ends() -> None:
    moments = Moments()
    async with World([node("a"), pod("web")], [Refuses], observers=[moments]) as world:
        await world.settle()
    seen = moments.of("web")
    first = seen[: seen.index("ended") + 1]
    assert first[3:] == ["chosen: a", "Reserve", "Unreserve", "settled: unschedulable", "ended"]


async def test_pod_that_is_deleted_at_permit_is_rejected_there() -> None:
    moments = Moments()
    async with World([node("a"), pod("web")], [Waits], observers=[moments]) as world:
        await world.until_waiting(1)
        world.server.delete("pods", ObjectRef(namespace="default", name="web"))
        await world.settle()
    seen = moments.of("web")
    assert seen[-5:] == [
        "PreBindPreFlight",
        "WaitOnPermit",
        "Unreserve",
        "settled: unschedulable",
        "ended",
    ]


async def test_step_of_a_deleted_pod_is_seen_as_cut_off() -> None:
    moments = Moments()
    async with World([node("a"), pod("web")], [Prepares], observers=[moments]) as world:
        await until(lambda: Prepares.began)
        world.server.delete("pods", ObjectRef(namespace="default", name="web"))
        await world.settle()
    seen = moments.of("web")
    assert seen[-4:] == ["PreBind cut off", "Unreserve", "settled: error", "ended"]


async def test_attempts_of_members_lie_within_that_of_their_group() -> None:
    moments = Moments()
    objects = [node("a", cpu="4"), pod_group("ring", least=2), *members("ring", 2)]
    async with grouped(objects, observers=[moments]) as world:
        await world.settle()
    assert moments.of("ring")[0] == "begun"
    assert moments.of("ring")[-1] == "ended: SUCCESS"
    inside = moments.seen[: moments.seen.index(("ring", "ended: SUCCESS"))]
    for name in ("ring-0", "ring-1"):
        assert inside.index(("ring", "begun")) < inside.index((name, "begun"))
        assert (name, "binds") in inside
        assert moments.of(name)[-2:] == ["PostBind", "ended"]


async def test_group_without_room_ends_as_rejected() -> None:
    moments = Moments()
    objects = [node("a", cpu="1"), pod_group("ring", least=2), *members("ring", 2)]
    async with grouped(objects, observers=[moments]) as world:
        await world.settle()
    assert moments.of("ring")[-1] == "ended: REJECTED"
    # The member that had a node in the trial did not get it for good.
    assert "binds" not in moments.of("ring-0")


async def test_question_about_a_pod_is_no_attempt() -> None:
    moments = Moments()
    async with World([node("a")], observers=[moments]) as world:
        fit = await world.host.ask(Fit(pod("web")))
        assert fit.node == "a"
    assert moments.seen == []


@pytest.mark.parametrize("step", list(AttemptStep))
async def test_nobody_costs_one_call_and_no_frame(step: AttemptStep) -> None:
    async def ran() -> str:
        return "found"

    made = ran()
    given = UNOBSERVED.step(Cycle("c", Pod(name="web"), "p"), step, made)
    assert given is made
    assert await given == "found"
