"""Cases of the level binding about reservations: Reserve, Unreserve, Reconcile, and trials of groups."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc

from berth_sdk.conformance import checks
from berth_sdk.conformance.answers import must_agree
from berth_sdk.conformance.case import BrokenError, SkippedError, case, declares
from berth_sdk.conformance.host import PATIENCE_S, CallError, Cycle, Host, skipped
from berth_sdk.conformance.same import fresh
from berth_sdk.conformance.timing import answers_in_time
from berth_sdk.conformance.way import Way, chosen, lacking
from berth_sdk.conformance.world import World, WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2

Code = pb.PluginStatus
TIMES = 10
_GIVE_BACK_S = 1.0
"""The time for an Unreserve that may fail."""
AT_ONCE = 4
_ELSEWHERE = 40
"""An index that no node of the kit has."""
reserves = declares("RESERVE")
takes = declares("RESERVE", "PERMIT")


# --- Reserve and Unreserve ------------------------------------------------------------------------------


@case("reserve.answer", "binding", "Reserve decides: it answers a code that has a meaning there.", reserves)
def _reserve(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    unreserve(host, way.cycle)


@case("reserve.duplicate", "binding", "A duplicate of Reserve gets the first answer.", reserves)
def _reserve_duplicate(host: Host) -> None:
    way = Way(host)
    first = way.try_reserve()
    for _ in range(TIMES - 1):
        again = reserve_again(host, way.cycle)
        if again.ctx.status.code != first.ctx.status.code:
            raise BrokenError(
                f"a duplicate of Reserve gets {checks.reasons(again.ctx.status)};"
                f" the first answer was {checks.reasons(first.ctx.status)}"
            )


@case(
    "reserve.late",
    "binding",
    "A Reserve that arrives after the Unreserve of its cycle gets CODE_ERROR.",
    reserves,
)
def _reserve_late(host: Host) -> None:
    way = Way(host)
    way.cycle.reserved_on = way.to_reserve()
    unreserve(host, way.cycle)
    answer = reserve_again(host, way.cycle)
    if answer.ctx.status.code != Code.CODE_ERROR:
        raise BrokenError(
            f"a Reserve after the Unreserve of its cycle gets {checks.reasons(answer.ctx.status)};"
            " the contract asks for CODE_ERROR"
        )


@case(
    "reserve.index-0",
    "binding",
    "Reserve on the node with the index 0 gets the answer that the node gets under another index.",
    lambda subject: reserves(subject) and subject.is_snapshot,
)
def _reserve_index_0(host: Host) -> None:
    def asked(index: int) -> str:
        fresh(host)
        world = host.world
        world.generation += 1
        node = world.nodes[index] = replace(world.nodes.pop(0), index=index)
        world.epoch += 1
        host.sync([world.full()])
        way = Way(host)
        way.to_reserve()
        if index not in {one.index for one in way.left}:
            raise lacking(host, f"the plugin rejects the kit's pod on {node.name}")
        way.cycle.reserved_on = node
        answer = reserve_again(host, way.cycle)
        unreserve(host, way.cycle)
        return checks.reasons(answer.ctx.status)

    must_agree(
        lambda: ({"Reserve": asked(_ELSEWHERE)}, {"Reserve": asked(0)}),
        "a node gets another answer under the index 0, which is an index as every other one",
    )


@case(
    "reserve.again", "binding", "What Unreserve gave back can be reserved again, in another cycle.", reserves
)
def _reserve_again_later(host: Host) -> None:
    for number in range(3 * TIMES):
        way = Way(host)
        way.reserve(again="what Unreserve gave back cannot be reserved again" if number else "")
        unreserve(host, way.cycle)


@case(
    "reserve.in-time",
    "binding",
    "Reserve answers within its deadline: the best of five, after some to warm up.",
    reserves,
)
def _reserve_in_time(host: Host) -> None:
    def ask(patience_s: float) -> None:
        way = Way(host)
        way.cycle.reserved_on = way.to_reserve()
        try:
            reserve_again(host, way.cycle, patience_s)
        finally:
            give_back(host, way.cycle)

    answers_in_time(host, "Reserve", ask)


@case("unreserve.repeat", "binding", "Ten times the same Unreserve: each answer names the cycle.", reserves)
def _unreserve_repeat(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    for _ in range(TIMES):
        unreserve(host, way.cycle)


@case(
    "unreserve.at-once",
    "binding",
    "Ten times Unreserve at once: each names the cycle.",
    reserves,
)
def _unreserve_at_once(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    request = unreserve_request(host, way.cycle)
    for answer in host.begin_all("Unreserve", request, TIMES):
        check_done(answer, way.cycle.id)


@case("unreserve.unknown", "binding", "Cycles that the plugin never saw count as given back.", reserves)
def _unreserve_unknown(host: Host) -> None:
    cycles = [host.cycle() for _ in range(TIMES)]
    for cycle in cycles:
        cycle.reserved_on = host.world.candidates[0]
    answer = host.call("Unreserve", unreserve_request(host, *cycles))
    check_done(answer, *(cycle.id for cycle in cycles))


# --- Reconcile ------------------------------------------------------------------------------------------


@case(
    "reconcile.repeat",
    "binding",
    "Reconcile may be repeated ten times, with and without reservations.",
    takes,
)
def _reconcile_repeat(host: Host) -> None:
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    for _ in range(TIMES - 1):
        host.reconcile()
    if not host.subject.has("RESERVE"):
        return
    way = Way(host)
    way.reserve()
    listed = live(way.cycle)
    for _ in range(TIMES):
        answer = host.reconcile(listed)
        if answer is not None and way.cycle.id in answer.unknown_cycle_ids:
            raise BrokenError("Reconcile says that a reservation is unknown which the instance made")


@case("reconcile.strangers", "binding", "unknown_cycle_ids holds cycles of the list alone.", takes)
def _reconcile_strangers(host: Host) -> None:
    cycle = host.cycle()
    cycle.reserved_on = host.world.candidates[0]
    answer = host.reconcile(live(cycle))
    if answer is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    if strange := set(answer.unknown_cycle_ids) - {cycle.id}:
        raise BrokenError(f"Reconcile names the cycle {min(strange)!r}, which was not listed")
    host.reconcile()


@case("reconcile.releases", "binding", "What is not listed is released.", reserves)
def _reconcile_releases(host: Host) -> None:
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    for number in range(3 * TIMES):
        Way(host).reserve(again="what Reconcile did not list is not released" if number else "")
        host.reconcile()


@case(
    "reconcile.new-host",
    "binding",
    "The list of a new host, of another epoch, releases what the host before it reserved.",
    reserves,
)
def _reconcile_new_host(host: Host) -> None:
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    for number in range(TIMES):
        Way(host).reserve(again="what the host before reserved is not released" if number else "")
        host.world = World(host.subject, host.target.pod)
        host.attach()


@case("reconcile.gap", "binding", "A gap in the numbers of the pages gets INVALID_ARGUMENT.", takes)
def _reconcile_gap(host: Host) -> None:
    page = state_pb2.ReconcileRequest(
        plugin=host.subject.plugin.name,
        host_epoch=host.world.epoch,
        sequence=1,
        last=True,
        attachment_id=host.attachment_id,
    )
    try:
        host.call("Reconcile", [page])
    except CallError as err:
        if err.code is grpc.StatusCode.UNIMPLEMENTED:
            raise skipped("the plugin does not offer Reconcile, which is allowed") from None
        if err.code is not grpc.StatusCode.INVALID_ARGUMENT:
            raise
        return
    raise BrokenError("Reconcile takes a list whose first page is missing")


# --- several times at once ------------------------------------------------------------------------------


@case(
    "reserve.at-once",
    "binding",
    "Reserve of one cycle, four times at once: equal answers, and one reservation.",
    reserves,
)
def _reserve_at_once(host: Host) -> None:
    for number in range(TIMES):
        way = Way(host)
        cycle = way.cycle
        cycle.reserved_on = way.to_reserve()
        request = cycle.request("Reserve", cycle.context(complete=True), **chosen(host, cycle.reserved_on))
        answers = host.begin_all("Reserve", request, AT_ONCE)
        for answer in answers:
            cycle.take("Reserve", answer)
            checks.decision("Reserve", answer.ctx)
        first = answers[0].ctx
        if number and first.status.code not in (Code.CODE_SUCCESS, Code.CODE_SKIP):
            raise BrokenError(
                f"Reserve answers {checks.reasons(first.status)}: one Unreserve does not give back what"
                f" {AT_ONCE} times the same Reserve at once have taken"
            )
        same_at_once("Reserve", answers)
        unreserve(host, cycle)
        if first.status.code != Code.CODE_SUCCESS:
            raise lacking(host, f"Reserve answers {checks.reasons(first.status)}")


def same_at_once(rpc: str, answers: list[Any]) -> None:
    """Check that the answers to the same call have one code, and one token where they have any."""
    first = answers[0].ctx
    tokens = {answer.ctx.plugin_token for answer in answers if answer.ctx.HasField("plugin_token")}
    for answer in answers:
        if answer.ctx.status.code != first.status.code:
            raise BrokenError(
                f"the same {rpc} at once gets {checks.reasons(first.status)} and"
                f" {checks.reasons(answer.ctx.status)}"
            )
    if len(tokens) > 1:
        raise BrokenError(f"the same {rpc} at once gets {len(tokens)} different tokens")


# --- SKIP -----------------------------------------------------------------------------------------------


@case(
    "reserve.skip",
    "binding",
    "After SKIP: duplicates get SKIP, a WAIT of Permit is a reservation, and Unreserve is answered.",
    reserves,
)
def _reserve_skip(host: Host) -> None:
    cycle = _cycle_with_skip(host)
    node = cycle.reserved_on
    assert node is not None
    for _ in range(TIMES - 1):
        again = reserve_again(host, cycle)
        if again.ctx.status.code != Code.CODE_SKIP:
            raise BrokenError(
                f"a duplicate of Reserve gets {checks.reasons(again.ctx.status)}; the first answer was SKIP"
            )
    host.reconcile()  # the host does not list a cycle in which nothing is held
    if host.subject.has("PERMIT"):
        answer = cycle.ask("Permit", **chosen(host, node))
        if checks.decision("Permit", answer.ctx) == Code.CODE_WAIT:
            _wait_is_live(host, cycle)
    if host.subject.has("BIND"):
        answer = cycle.ask("Bind", node_name=node.name, patience_s=10.0)
        checks.decision("Bind", answer.ctx)
    for _ in range(2):
        unreserve(host, cycle)
    late = reserve_again(host, cycle)
    if late.ctx.status.code != Code.CODE_ERROR:
        raise BrokenError(
            f"a Reserve after the Unreserve of its cycle gets {checks.reasons(late.ctx.status)};"
            " the contract asks for CODE_ERROR, also if the cycle held nothing"
        )
    host.reconcile()


def _cycle_with_skip(host: Host) -> Cycle:
    """Return a cycle whose Reserve was answered with SKIP: of the kit's pod, or else of a plain one."""
    for is_plain in (False, True) if host.target.pod is not None else (False,):
        way = Way(host)
        way.cycle.is_plain = is_plain
        try:
            answer = way.try_reserve()
        except SkippedError:
            continue
        if answer.ctx.status.code == Code.CODE_SKIP:
            return way.cycle
        unreserve(host, way.cycle)
    raise skipped("Reserve does not answer SKIP to the kit's pods, which is allowed")


def _wait_is_live(host: Host, cycle: Cycle) -> None:
    waiting = live(cycle)
    waiting.waiting_on_permit = True
    waiting.permit_deadline.GetCurrentTime()
    waiting.permit_deadline.seconds += 60
    for _ in range(2):
        answer = host.reconcile(waiting)
        if answer is not None and cycle.id in answer.unknown_cycle_ids:
            raise BrokenError(
                "Reconcile says that a wait is unknown which Permit began after the SKIP of Reserve"
            )


# --- trials of a group ----------------------------------------------------------------------------------


@case(
    "reserve.trial",
    "binding",
    "What a trial of a group reserves is given back, and reserved for good in a cycle that continues it.",
    reserves,
)
def _reserve_trial(host: Host) -> None:
    for number in range(TIMES):
        group = f"{host.cycle().id}-group"
        tried = [_tried(host, group, trial, is_first=not number and trial == 1) for trial in (1, 2)]
        node = tried[0].reserved_on
        assert node is not None
        cycle = _continued(host, tried[0], group)
        answer = reserve_again(host, cycle)
        if answer.ctx.status.code == Code.CODE_SKIP:
            continue  # the Reserve for good decides anew
        if answer.ctx.status.code != Code.CODE_SUCCESS:
            raise BrokenError(
                f"the Reserve that continues a trial gets {checks.reasons(answer.ctx.status)}; the trial got"
                " SUCCESS, and Unreserve has given it back"
            )
        duplicate = reserve_again(host, cycle)
        if duplicate.ctx.status.code != Code.CODE_SUCCESS:
            raise BrokenError(
                "a duplicate of the Reserve that continues a trial gets"
                f" {checks.reasons(duplicate.ctx.status)}; the first answer was SUCCESS"
            )
        for late in tried:
            unreserve(host, late)
            again = reserve_again(host, late)
            if again.ctx.status.code != Code.CODE_ERROR:
                raise BrokenError(
                    f"a Reserve of a trial that arrives after its Unreserve gets"
                    f" {checks.reasons(again.ctx.status)}; the contract asks for CODE_ERROR"
                )
        # In the last round alone: the plugin also releases what the trials may have left behind.
        answered = host.reconcile(live(cycle)) if number == TIMES - 1 else None
        if answered is not None and cycle.id in answered.unknown_cycle_ids:
            raise BrokenError(
                "Reconcile does not know the reservation that continues a trial, after a late Unreserve of"
                " the trial: the new cycle_id is a reservation of its own"
            )
        if host.subject.has("PERMIT"):
            checks.decision("Permit", cycle.ask("Permit", **chosen(host, node)).ctx)
        unreserve(host, cycle)


def _tried(host: Host, group: str, number: int, *, is_first: bool) -> Cycle:
    """Reserve in a trial of a group, and give it back; return the cycle.

    `is_first`: no trial came before, so the plugin may reject the pod.
    """
    way = Way(host)
    way.cycle.extra = {"parents": _parents(group, number)}
    way.cycle.trial = _trial(number, tentative=True)
    way.reserve(again="" if is_first else "what the trial before reserved is not given back")
    unreserve(host, way.cycle)
    return way.cycle


def _continued(host: Host, tried: Cycle, group: str) -> Cycle:
    """Return the cycle in which the host reserves for good what it tried first."""
    cycle = host.cycle(tried.pod_name)
    cycle.extra = {"parents": _parents(group, 1), "continues": tried.id}
    cycle.trial = _trial(1, tentative=False)
    cycle.token, cycle.reserved_on = tried.token, tried.reserved_on
    return cycle


def _parents(group: str, trial: int) -> list[pb.CycleParent]:
    return [pb.CycleParent(cycle_id=f"{group}.{trial}", placement=True), pb.CycleParent(cycle_id=group)]


def _trial(number: int, *, tentative: bool) -> scheduling.ReservationTrial:
    group = pb.ObjectRef(namespace="default", name="kit-group", uid="uid-kit-group")
    return scheduling.ReservationTrial(group=group, number=number, tentative=tentative)


# --- restarts -------------------------------------------------------------------------------------------


@case(
    "reconcile.restart",
    "binding",
    "A cycle that this process never saw is taken up from its token, and goes on, or is named as unknown.",
    reserves,
)
def _restart(host: Host) -> None:
    for number in range(3 * TIMES):
        lost = Way(host)
        lost.reserve(again="what Reconcile took up and Unreserve gave back is still held" if number else "")
        node = lost.cycle.reserved_on
        assert node is not None
        unreserve(host, lost.cycle)
        # A new id stands for a process that has lost its memory: it knows the token alone.
        cycle = host.cycle(lost.cycle.pod_name)
        cycle.token, cycle.reserved_on = lost.cycle.token, node
        if number == 0:
            host.attach()
        answer = host.reconcile(live(cycle))
        if answer is None:
            raise skipped("the plugin does not offer Reconcile, which is allowed")
        if cycle.id not in answer.unknown_cycle_ids and number == 0:
            goes_on(cycle, node)
        unreserve(host, cycle)


def goes_on(cycle: Cycle, node: WorldNode) -> None:
    """Make the calls of the binding cycle, which the plugin has taken up."""
    for rpc, is_there in (
        ("PreBindPreFlight", cycle.host.subject.has("PRE_BIND")),
        ("PreBind", cycle.host.subject.has("PRE_BIND")),
        ("Bind", cycle.host.subject.has("BIND")),
    ):
        if is_there:
            try:
                checks.decision(rpc, cycle.ask(rpc, node_name=node.name, patience_s=10.0).ctx)
            except BrokenError as err:
                raise BrokenError(
                    f"Reconcile took up a reservation of which only the token is left, and then {err}"
                ) from err


# --- pieces ---------------------------------------------------------------------------------------------


def reserve_again(host: Host, cycle: Cycle, patience_s: float = PATIENCE_S) -> Any:
    """Make the Reserve of a cycle with the complete pod; return the answer."""
    assert cycle.reserved_on is not None
    fields = chosen(host, cycle.reserved_on)
    context = cycle.context(complete=True)
    answer = cycle.ask("Reserve", context, patience_s=patience_s, **fields, trial=cycle.trial)
    checks.decision("Reserve", answer.ctx)
    return answer


def unreserve_request(host: Host, *cycles: Cycle) -> scheduling.UnreserveRequest:
    """Return the request that gives back cycles."""
    request = scheduling.UnreserveRequest(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for cycle in cycles:
        assert cycle.reserved_on is not None
        request.items.add(
            cycle_id=cycle.id,
            pod=cycle.pod.ref,
            node_name=cycle.reserved_on.name,
            plugin_token=cycle.token,
            reason="the kit undoes the reservation",
            trial=cycle.trial,
            profile=cycle.profile,
        )
    return request


def unreserve(host: Host, cycle: Cycle) -> None:
    """Give back a cycle. Raises BrokenError if the answer does not name it."""
    check_done(host.call("Unreserve", unreserve_request(host, cycle)), cycle.id)


def give_back(host: Host, cycle: Cycle) -> None:
    """Give back a cycle whose Reserve or Permit may have got no answer. The Unreserve may fail too."""
    with suppress(CallError):
        host.call("Unreserve", unreserve_request(host, cycle), _GIVE_BACK_S)


def check_done(answer: Any, *cycle_ids: str) -> None:
    """Check that an answer to Unreserve names these cycles. Raises BrokenError."""
    if lacking := [one for one in cycle_ids if one not in answer.done_cycle_ids]:
        raise BrokenError(
            f"the answer to Unreserve does not name the cycle {lacking[0]!r}; the host would send it for ever"
        )


def live(cycle: Cycle) -> state_pb2.LiveReservation:
    """Return the reservation of a cycle as Reconcile lists it."""
    assert cycle.reserved_on is not None
    return state_pb2.LiveReservation(
        cycle_id=cycle.id,
        pod=cycle.pod.ref,
        node_name=cycle.reserved_on.name,
        plugin_token=cycle.token,
        trial=cycle.trial,
        profile=cycle.profile,
    )
