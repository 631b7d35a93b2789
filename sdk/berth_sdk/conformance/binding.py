"""Cases of the level binding: Reserve, Unreserve, Reconcile, Permit, PreBind, Bind and PostBind."""

from __future__ import annotations

from typing import Any

import grpc

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, Subject, case, declares
from berth_sdk.conformance.host import CallError, Cycle, Host, result_of, skipped
from berth_sdk.conformance.way import Way, chosen
from berth_sdk.conformance.world import WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2

Code = pb.PluginStatus
TIMES = 10
_ROUNDS = 20
reserves = declares("RESERVE")
takes = declares("RESERVE", "PERMIT")


def binds(subject: Subject) -> bool:
    """Return True if the plugin has calls of the binding cycle."""
    return subject.has("PRE_BIND", "BIND", "POST_BIND")


# --- Reserve and Unreserve -------------------------------------------------------------------------------


@case("reserve.answer", "binding", "Reserve decides: it answers a code that has a meaning there.", reserves)
def _reserve(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    _unreserve(host, way.cycle)


@case("reserve.duplicate", "binding", "A duplicate of Reserve gets the first answer.", reserves)
def _reserve_duplicate(host: Host) -> None:
    way = Way(host)
    first = way.try_reserve()
    for _ in range(TIMES - 1):
        again = _reserve_again(host, way.cycle)
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
    _unreserve(host, way.cycle)
    answer = _reserve_again(host, way.cycle)
    if answer.ctx.status.code != Code.CODE_ERROR:
        raise BrokenError(
            f"a Reserve after the Unreserve of its cycle gets {checks.reasons(answer.ctx.status)};"
            " the contract asks for CODE_ERROR"
        )


@case(
    "reserve.again", "binding", "What Unreserve gave back can be reserved again, in another cycle.", reserves
)
def _reserve_again_later(host: Host) -> None:
    for _ in range(TIMES):
        way = Way(host)
        way.reserve()
        _unreserve(host, way.cycle)


@case("unreserve.repeat", "binding", "Ten times the same Unreserve: each answer names the cycle.", reserves)
def _unreserve_repeat(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    for _ in range(TIMES):
        _unreserve(host, way.cycle)


@case(
    "unreserve.at-once",
    "binding",
    "Ten times Unreserve at once: each names the cycle.",
    reserves,
)
def _unreserve_at_once(host: Host) -> None:
    way = Way(host)
    way.try_reserve()
    request = _unreserve_request(host, way.cycle)
    for future in [host.begin("Unreserve", request) for _ in range(TIMES)]:
        _check_done(result_of("Unreserve", future), way.cycle.id)


@case("unreserve.unknown", "binding", "Cycles that the plugin never saw count as given back.", reserves)
def _unreserve_unknown(host: Host) -> None:
    cycles = [host.cycle() for _ in range(TIMES)]
    for cycle in cycles:
        cycle.reserved_on = host.world.candidates[0]
    answer = host.call("Unreserve", _unreserve_request(host, *cycles))
    _check_done(answer, *(cycle.id for cycle in cycles))


# --- Reconcile ---------------------------------------------------------------------------------------------


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
    live = _live(way.cycle)
    for _ in range(TIMES):
        answer = host.reconcile(live)
        if answer is not None and way.cycle.id in answer.unknown_cycle_ids:
            raise BrokenError("Reconcile says that a reservation is unknown which the instance made")


@case("reconcile.strangers", "binding", "unknown_cycle_ids holds cycles of the list alone.", takes)
def _reconcile_strangers(host: Host) -> None:
    cycle = host.cycle()
    cycle.reserved_on = host.world.candidates[0]
    answer = host.reconcile(_live(cycle))
    if answer is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    if strange := set(answer.unknown_cycle_ids) - {cycle.id}:
        raise BrokenError(f"Reconcile names the cycle {min(strange)!r}, which was not listed")
    host.reconcile()


@case("reconcile.releases", "binding", "What is not listed is released.", reserves)
def _reconcile_releases(host: Host) -> None:
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    for _ in range(3 * TIMES):
        Way(host).reserve()
        host.reconcile()


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


# --- Permit ------------------------------------------------------------------------------------------------


@case("permit.answer", "binding", "Permit decides, and a wait is at most 15 minutes.", declares("PERMIT"))
def _permit(host: Host) -> None:
    way = Way(host)
    node = _before_permit(way)
    way.permit(node)


@case("permit.duplicate", "binding", "A duplicate of Permit gets the first answer.", declares("PERMIT"))
def _permit_duplicate(host: Host) -> None:
    way = Way(host)
    node = _before_permit(way)
    first = way.permit(node)
    for _ in range(TIMES - 1):
        again = way.permit(node)
        if again.ctx.status.code != first.ctx.status.code:
            raise BrokenError(
                f"a duplicate of Permit gets {checks.reasons(again.ctx.status)};"
                f" the first answer was {checks.reasons(first.ctx.status)}"
            )


# --- PreBind, Bind, PostBind -----------------------------------------------------------------------------


@case(
    "preBind.rounds",
    "binding",
    "PreBind decides in each round, patches what it may, and is satisfied when the patches are applied.",
    declares("PRE_BIND"),
)
def _pre_bind(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    if _pre_flight(way.cycle, node) == Code.CODE_SKIP:
        raise skipped("PreBindPreFlight answers SKIP: PreBind has no work for this pod")
    _rounds(way.cycle, node, scheduling.PatchResult.OUTCOME_APPLIED)


@case(
    "preBind.refused",
    "binding",
    "PreBind decides when a patch was refused, and when the outcome is one that it does not know.",
    declares("PRE_BIND"),
)
def _pre_bind_refused(host: Host) -> None:
    for outcome in (scheduling.PatchResult.OUTCOME_REFUSED, 99):
        way = Way(host)
        node = way.to_binding()
        if _pre_flight(way.cycle, node) == Code.CODE_SKIP:
            raise skipped("PreBindPreFlight answers SKIP: PreBind has no work for this pod")
        if not _rounds(way.cycle, node, outcome):
            raise skipped("PreBind answers no patches for this pod")


@case(
    "preBind.pre-flight",
    "binding",
    "Ten times PreBindPreFlight get one answer.",
    declares("PRE_BIND"),
)
def _pre_flight_repeat(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    codes = {_pre_flight(way.cycle, node) for _ in range(TIMES)}
    if len(codes) > 1:
        raise BrokenError(f"PreBindPreFlight of one cycle answers the codes {sorted(codes)}")


@case(
    "bind.answer",
    "binding",
    "Bind decides. The kit's pod exists in no cluster, so a plugin cannot have bound it by itself.",
    declares("BIND"),
)
def _bind(host: Host) -> None:
    way = Way(host)
    answer = way.cycle.ask("Bind", node_name=way.to_binding().name, patience_s=10.0)
    code = checks.status("Bind", answer.ctx.status)
    if code == Code.CODE_SUCCESS and not answer.host_binds:
        raise BrokenError(
            "Bind claims that the pod is bound (SUCCESS without host_binds), and the pod exists in no cluster"
        )


@case("bind.duplicate", "binding", "A duplicate of Bind gets the first code.", declares("BIND"))
def _bind_duplicate(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    codes = set()
    for _ in range(TIMES):
        answer = way.cycle.ask("Bind", node_name=node.name, patience_s=10.0)
        codes.add(checks.status("Bind", answer.ctx.status))
    if len(codes) > 1:
        raise BrokenError(f"Bind of one cycle answers the codes {sorted(codes)}")


@case(
    "postBind.repeat",
    "binding",
    "PostBind may come ten times, also of unknown cycles.",
    declares("POST_BIND"),
)
def _post_bind(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    stranger = host.cycle()
    request = scheduling.PostBindRequest(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for cycle in (way.cycle, stranger):
        request.items.add(cycle_id=cycle.id, pod=cycle.pod.ref, node_name=node.name, plugin_token=cycle.token)
    for _ in range(TIMES):
        host.call("PostBind", request)
    Way(host).to_binding()


@case("binding.at-once", "binding", "Calls of a binding cycle come between those of later cycles.", binds)
def _between(host: Host) -> None:
    first = Way(host)
    node = first.to_binding()
    second = Way(host)
    second.to_reserve()
    if host.subject.has("PRE_BIND") and _pre_flight(first.cycle, node) != Code.CODE_SKIP:
        second.to_filter()
        _rounds(first.cycle, node, scheduling.PatchResult.OUTCOME_APPLIED)
    if host.subject.has("BIND"):
        first.cycle.ask("Bind", node_name=node.name, patience_s=10.0)


@case("handle.calls", "binding", "Calls of HandleService carry the token, and name the plugin.", takes)
def _handle(host: Host) -> None:
    double = host.target.double
    if double is None or not host.subject.plugin.handle_client:
        raise skipped("the plugin does not call HandleService")
    way = Way(host)
    way.to_binding()
    if not double.asked:
        raise skipped("the plugin made no call to HandleService for this pod")
    if double.faults:
        raise BrokenError(double.faults[0])


def _before_permit(way: Way) -> WorldNode:
    if way.host.subject.has("RESERVE"):
        answer = way.try_reserve()
        if answer.ctx.status.code not in (Code.CODE_SUCCESS, Code.CODE_SKIP):
            raise skipped(f"Reserve rejects the pod: {checks.reasons(answer.ctx.status)}")
        assert way.cycle.reserved_on is not None
        return way.cycle.reserved_on
    way.cycle.reserved_on = way.to_reserve()
    return way.cycle.reserved_on


def _reserve_again(host: Host, cycle: Cycle) -> Any:
    assert cycle.reserved_on is not None
    answer = cycle.ask("Reserve", cycle.context(complete=True), **chosen(host, cycle.reserved_on))
    checks.status("Reserve", answer.ctx.status)
    return answer


def _unreserve_request(host: Host, *cycles: Cycle) -> scheduling.UnreserveRequest:
    request = scheduling.UnreserveRequest(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    for cycle in cycles:
        assert cycle.reserved_on is not None
        request.items.add(
            cycle_id=cycle.id,
            pod=cycle.pod.ref,
            node_name=cycle.reserved_on.name,
            plugin_token=cycle.token,
            reason="the kit undoes the reservation",
        )
    return request


def _unreserve(host: Host, cycle: Cycle) -> None:
    _check_done(host.call("Unreserve", _unreserve_request(host, cycle)), cycle.id)


def _check_done(answer: Any, *cycle_ids: str) -> None:
    if lacking := [one for one in cycle_ids if one not in answer.done_cycle_ids]:
        raise BrokenError(
            f"the answer to Unreserve does not name the cycle {lacking[0]!r}; the host would send it for ever"
        )


def _live(cycle: Cycle) -> state_pb2.LiveReservation:
    assert cycle.reserved_on is not None
    return state_pb2.LiveReservation(
        cycle_id=cycle.id, pod=cycle.pod.ref, node_name=cycle.reserved_on.name, plugin_token=cycle.token
    )


def _pre_flight(cycle: Cycle, node: WorldNode) -> int:
    answer = cycle.ask("PreBindPreFlight", node_name=node.name)
    return checks.status("PreBindPreFlight", answer.ctx.status)


def _rounds(cycle: Cycle, node: WorldNode, outcome: Any) -> int:
    """Make rounds of PreBind until the plugin is done; return how many patches it answered."""
    patched: list[scheduling.PatchResult] = []
    total = 0
    for number in range(_ROUNDS):
        answer = cycle.ask("PreBind", node_name=node.name, round=number, patched=patched, patience_s=10.0)
        code = checks.status("PreBind", answer.ctx.status)
        checks.patches("PreBind", cycle.host, answer.patches, cycle)
        total += len(answer.patches)
        waits = answer.HasField("ask_again_after")
        if code != Code.CODE_SUCCESS or not (answer.patches or waits):
            return total
        if answer.done_when_applied and outcome == scheduling.PatchResult.OUTCOME_APPLIED and not waits:
            return total
        patched = [_result(patch, outcome) for patch in answer.patches]
        if waits and not answer.patches:
            raise skipped("PreBind waits for something outside the kit (ask_again_after)")
    raise BrokenError(f"PreBind is not done after {_ROUNDS} rounds, although every patch was answered")


def _result(patch: scheduling.ObjectPatch, outcome: Any) -> scheduling.PatchResult:
    made = scheduling.PatchResult(ref=patch.ref, message="answered by the kit")
    made.MergeFromString(b"\x08" + bytes([outcome]))
    if (
        outcome == scheduling.PatchResult.OUTCOME_APPLIED
        and patch.action != scheduling.ObjectPatch.ACTION_DELETE
    ):
        made.object.CopyFrom(pb.KubeObject(api_version="v1", kind="Pod", raw=patch.merge_patch_json))
    return made
