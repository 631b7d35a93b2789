"""Cases about the version that a call is judged by, and about states that a plugin must not take up."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Final

from berth_sdk.conformance.answers import Answers, answers, around, must_agree
from berth_sdk.conformance.case import BrokenError, Subject, case
from berth_sdk.conformance.holding import filled, grants
from berth_sdk.conformance.host import CallError, Host, missing_name, written
from berth_sdk.conformance.reserving import reserves, unreserve
from berth_sdk.conformance.same import bring, fresh
from berth_sdk.conformance.scheduling import PURE, bare, judges, scenario_node, simulates
from berth_sdk.conformance.stateful import judges_by_state, lacks_state
from berth_sdk.conformance.way import Way, chosen
from berth_sdk.conformance.world import GI, World, WorldNode, in_chunks, stream
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

_CALLS: Final = {**PURE, "RESERVE": "Reserve", "PERMIT": "Permit"}
"""The calls that name a version, by their points."""


def _calls(subject: Subject) -> list[str]:
    found = [rpc for point, rpc in _CALLS.items() if subject.has(point)]
    return [*found, "SimulateFilter"] if simulates(subject) else found


def _names_a_version(subject: Subject) -> bool:
    return subject.keeps_state and bool(_calls(subject))


def _about(host: Host, rpc: str) -> dict[str, Any]:
    """Return what a call is about, beside its context."""
    if rpc in ("Reserve", "Permit"):
        return chosen(host, host.world.candidates[0])
    if rpc == "SimulateFilter":
        return {"scenarios": [scheduling.Scenario(node=scenario_node(host, 0))]}
    return {"candidates": host.candidates()}


# --- every call -------------------------------------------------------------------------------------------


@case(
    "state.every-call",
    "stateful",
    "Each call up to Permit at a version that the copy lacks is not executed, and is with a delta to it.",
    _names_a_version,
)
def _every_call(host: Host) -> None:
    for rpc in _calls(host.subject):
        way = Way(host)
        cycle = way.cycle
        about = _about(host, rpc)
        if rpc in ("Reserve", "Permit"):
            about = chosen(host, _before(way, rpc))
        delta = host.world.change(9)
        request = cycle.request(rpc, cycle.context(complete=True), **about)
        if not (answer := host.call(rpc, request)).ctx.missing:
            raise BrokenError(
                f"{rpc} is executed at the version {written(request.ctx.version)}, which the copy lacks;"
                " the contract asks for MISSING_STATE"
            )
        cycle.check_cycle(rpc, answer)
        request.ctx.delta.CopyFrom(delta)
        found = host.call(rpc, request).ctx.missing
        if pb.MISSING_STATE in found:
            raise BrokenError(f"{rpc} answers MISSING_STATE, although its delta brings the state")
        if found:
            host.sync([host.world.full()])
        if rpc in ("Reserve", "Permit") and host.subject.has("RESERVE"):
            unreserve(host, cycle)


def _before(way: Way, rpc: str) -> WorldNode:
    """Make the calls before Reserve or Permit, which may need what these kept; return the node."""
    if rpc == "Permit" and way.host.subject.has("RESERVE"):
        way.reserve()
    else:
        way.cycle.reserved_on = way.to_reserve()
    assert way.cycle.reserved_on is not None
    return way.cycle.reserved_on


@case(
    "cycle.pod-in-every-call",
    "stateful",
    "Each call without the pod, in a cycle that the instance never saw, is not executed, or answered right.",
    lambda subject: subject.is_snapshot and judges(subject),
)
def _pod_in_every_call(host: Host) -> None:
    for point, rpc in PURE.items():
        if not host.subject.has(point):
            continue
        cycle = host.cycle()
        about = _about(host, rpc)
        answer = host.call(rpc, cycle.request(rpc, cycle.context(complete=False), **about))
        cycle.check_cycle(rpc, answer)
        if answer.ctx.missing:
            continue
        whole = host.cycle()
        if bare(host.call(rpc, whole.request(rpc, whole.context(complete=True), **about))) != bare(answer):
            raise BrokenError(
                f"{rpc} answers without the pod, and otherwise than with it: it needs MISSING_POD"
            )


@case(
    "reserve.missing-state",
    "binding",
    "A Reserve that lacks the state reserves nothing.",
    lambda subject: reserves(subject) and subject.keeps_state,
)
def _reserve_missing(host: Host) -> None:
    holding, _ = filled(host)
    holding.give_back(holding.held[0])
    host.world.change(9)
    cycle = host.cycle()
    cycle.reserved_on = holding.node
    request = cycle.request("Reserve", cycle.context(complete=True), **_about(host, "Reserve"))
    answer = host.call("Reserve", request)
    if not answer.ctx.missing:
        raise BrokenError("Reserve is executed at a version that the copy lacks")
    host.sync([host.world.full()])
    grants(holding, 1, f"after a Reserve that answered {missing_name(answer.ctx.missing[0])}")


@case(
    "state.older",
    "stateful",
    "A call at a version before that of the copy gets MISSING_STATE, or the answer of that version.",
    judges_by_state,
)
def _older(host: Host) -> None:
    def ask() -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[3])
        before = answers(host, pods)
        old = deepcopy(host.world)
        host.sync([_busy(host.world)])
        host.world = old
        if _is_missing(host):
            return {}, {}
        return before, answers(host, pods)

    must_agree(ask, "a call at an older version than the copy's is answered by the copy")


def _busy(world: World) -> pb.StateDelta:
    """Change several nodes so that many answers are others; return the delta."""
    base = world.version
    parts = ("usage", "pods", "summary", "object")
    world.put_pod(0, 7900, 31 * GI)
    world.put_pod(9, 5950, 23 * GI)
    world.nodes[3].pods.clear()
    world.resize(3, cpu_milli=3000, memory_bytes=9 * GI)
    world.remove(17)
    return world.delta(base, [world.state(world.nodes[index], parts) for index in (0, 3, 9)], removed=[17])


def _is_missing(host: Host) -> bool:
    """Return True if a pure call at the version of the world says that it lacks the state."""
    rpc = next(rpc for rpc in _calls(host.subject) if rpc in PURE.values())
    cycle = host.cycle()
    answer = host.call(rpc, cycle.request(rpc, cycle.context(complete=True), **_about(host, rpc)))
    return pb.MISSING_STATE in answer.ctx.missing


# --- states that are not taken up ---------------------------------------------------------------------------


def _with_wrong(field: str, whole: pb.StateDelta) -> pb.StateDelta:
    setattr(whole, field, getattr(whole, field) + 1)
    return whole


def _on_another_base(whole: pb.StateDelta) -> pb.StateDelta:
    whole.base.generation += 1
    return whole


def _unfinished(host: Host, whole: pb.StateDelta, *, gap: bool) -> None:
    """Send the chunks of a delta without the last one, or with a gap before it."""
    sent = stream(in_chunks(whole, 1), host.attachment_id)
    if gap:
        sent[-1].sequence += 1
    else:
        del sent[-1]
    try:
        host.call("SyncState", sent, 10.0)
    except CallError as err:
        if err.code.name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise


_Refusal = Callable[[Host, pb.StateDelta], object]
_REFUSALS: Final[dict[str, _Refusal]] = {
    "a delta with a wrong node_count": lambda host, whole: host.try_sync([_with_wrong("node_count", whole)]),
    "a delta with a wrong sum": lambda host, whole: host.try_sync([_with_wrong("generation_sum", whole)]),
    "a delta on another version": lambda host, whole: host.try_sync([_on_another_base(whole)]),
    "chunks without the last one": partial(_unfinished, gap=False),
    "chunks with a gap": partial(_unfinished, gap=True),
    "a call whose delta has a wrong sum": lambda host, whole: lacks_state(
        host, _with_wrong("generation_sum", whole)
    ),
    "a call whose delta is on another version": lambda host, whole: lacks_state(
        host, _on_another_base(whole)
    ),
}


@case(
    "state.refused",
    "stateful",
    "A state that is refused, or never complete, changes nothing of the copy.",
    judges_by_state,
)
def _refused(host: Host) -> None:
    def ask(refusal: _Refusal) -> tuple[Answers, Answers]:
        fresh(host)
        pods = around(host, host.world.nodes[3])
        before = answers(host, pods)
        kept = deepcopy(host.world)
        refusal(host, _busy(host.world))
        host.world = kept
        if _is_missing(host):  # it has no copy any more, which is allowed
            host.sync([host.world.full()])
        return before, answers(host, pods)

    for what, refusal in _REFUSALS.items():
        must_agree(partial(ask, refusal), f"{what} changes an answer at the version before")


@case(
    "state.full-again",
    "stateful",
    "A full state replaces the copy, also at the version that the copy has.",
    judges_by_state,
)
def _full_again(host: Host) -> None:
    def ask(*, in_call: bool) -> tuple[Answers, Answers]:
        fresh(host)
        host.world.nodes[3].cpu_milli, host.world.nodes[3].memory_bytes = 7000, 30 * GI
        pods = around(host, host.world.nodes[3])
        if in_call:
            bring(host, host.world.full())
        else:
            host.sync([host.world.full()])
        again = answers(host, pods)
        host.world.epoch += 1
        host.sync([host.world.full()])
        return answers(host, pods), again

    for in_call in (False, True):
        must_agree(
            partial(ask, in_call=in_call),
            "a full state at the version of the copy is passed over, although the host sends it as the copy"
            " may be wrong",
        )
