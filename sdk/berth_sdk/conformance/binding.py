"""Cases of the level binding about Permit, PreBind, Bind, PostBind, and calls of HandleService."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance import checks
from berth_sdk.conformance.attaching import offers_trial
from berth_sdk.conformance.case import BrokenError, SkippedError, Subject, case, declares
from berth_sdk.conformance.handle_double import HandleDouble
from berth_sdk.conformance.host import Cycle, Host, skipped
from berth_sdk.conformance.reserving import AT_ONCE, TIMES, give_back, same_at_once, takes, unreserve
from berth_sdk.conformance.timing import answers_in_time
from berth_sdk.conformance.way import Way, chosen, lacking
from berth_sdk.conformance.world import WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

Code = pb.PluginStatus
_ROUNDS = 20
_HANDLE_S = 2.0
"""The time for calls of HandleService that a plugin makes in the background."""


def binds(subject: Subject) -> bool:
    """Return True if the plugin has calls of the binding cycle."""
    return subject.has("PRE_BIND", "BIND", "POST_BIND")


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


@case(
    "permit.at-once",
    "binding",
    "Permit of one cycle, four times at once: equal answers.",
    declares("PERMIT"),
)
def _permit_at_once(host: Host) -> None:
    way = Way(host)
    node = _before_permit(way)
    request = way.cycle.request("Permit", way.cycle.context(complete=True), **chosen(host, node))
    _asked_at_once(way.cycle, "Permit", request)


@case(
    "permit.in-time",
    "binding",
    "Permit answers within its deadline, also with WAIT: the best of five, after some to warm up.",
    declares("PERMIT"),
)
def _permit_in_time(host: Host) -> None:
    def ask(patience_s: float) -> None:
        way = Way(host)
        node = _before_permit(way)
        try:
            way.permit(node, patience_s)
        finally:
            if host.subject.has("RESERVE"):
                give_back(host, way.cycle)

    answers_in_time(host, "Permit", ask)


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
        raise lacking(host, "PreBindPreFlight answers SKIP: PreBind has no work for this pod")
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
            raise lacking(host, "PreBindPreFlight answers SKIP: PreBind has no work for this pod")
        if not _rounds(way.cycle, node, outcome):
            raise lacking(host, "PreBind answers no patches for this pod")


@case(
    "preBind.at-once",
    "binding",
    "Round 0 of PreBind, four times at once: equal answers, with patches of the same objects.",
    declares("PRE_BIND"),
)
def _pre_bind_at_once(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    if _pre_flight(way.cycle, node) == Code.CODE_SKIP:
        raise lacking(host, "PreBindPreFlight answers SKIP: PreBind has no work for this pod")
    answers = _asked_at_once(way.cycle, "PreBind", way.cycle.request("PreBind", node_name=node.name))
    patched = [[(patch.resource, patch.ref.name, patch.action) for patch in one.patches] for one in answers]
    if any(one != patched[0] for one in patched):
        raise BrokenError("the same PreBind at once is answered with patches of different objects")


@case(
    "preBind.pod-deleted",
    "binding",
    "A last round after the pod was deleted is answered, with a code that has a meaning there.",
    declares("PRE_BIND"),
)
def _pod_deleted(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    if _pre_flight(way.cycle, node) == Code.CODE_SKIP:
        raise lacking(host, "PreBindPreFlight answers SKIP: PreBind has no work for this pod")
    first = way.cycle.ask("PreBind", node_name=node.name, patience_s=10.0)
    patched = [_result(patch, scheduling.PatchResult.OUTCOME_NOT_FOUND) for patch in first.patches]
    for result in patched:
        result.ClearField("object")
    last = way.cycle.ask(
        "PreBind", node_name=node.name, round=1, patched=patched, pod_deleted=True, patience_s=10.0
    )
    checks.decision("PreBind", last.ctx)
    if host.subject.has("RESERVE"):
        unreserve(host, way.cycle)


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
    code = checks.decision("Bind", answer.ctx)
    if code == Code.CODE_SUCCESS and not answer.host_binds:
        raise BrokenError(
            "Bind claims that the pod is bound (SUCCESS without host_binds), and the pod exists in no cluster"
        )


@case(
    "bind.at-once",
    "binding",
    "Bind of one cycle, four times at once: equal answers.",
    declares("BIND"),
)
def _bind_at_once(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    answers = _asked_at_once(way.cycle, "Bind", way.cycle.request("Bind", node_name=node.name))
    if len({answer.host_binds for answer in answers}) > 1:
        raise BrokenError("the same Bind at once is answered with and without host_binds")


@case("bind.duplicate", "binding", "A duplicate of Bind gets the first code.", declares("BIND"))
def _bind_duplicate(host: Host) -> None:
    way = Way(host)
    node = way.to_binding()
    codes = set()
    for _ in range(TIMES):
        answer = way.cycle.ask("Bind", node_name=node.name, patience_s=10.0)
        codes.add(checks.decision("Bind", answer.ctx))
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
        request.items.add(
            cycle_id=cycle.id,
            pod=cycle.pod.ref,
            node_name=node.name,
            plugin_token=cycle.token,
            profile=cycle.profile,
        )
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
    if faults := _calls_of_handle(host).faults:
        raise BrokenError(faults[0])


@case(
    "handle.metadata",
    "binding",
    "Calls of HandleService carry `berth-plugin`, and their metadata agrees with the message.",
    takes,
)
def _handle_metadata(host: Host) -> None:
    if faults := _calls_of_handle(host).metadata_faults:
        raise BrokenError(faults[0])


def _calls_of_handle(host: Host) -> HandleDouble:
    """Bring the plugin to call HandleService. Ends the case where it does not."""
    double = host.target.double
    if double is None or not host.subject.plugin.handle_client:
        raise skipped("the plugin does not call HandleService")
    until = monotonic_s() + _HANDLE_S * host.target.time_factor
    since = len(double.calls)
    first = Way(host)
    first.to_binding()
    while True:
        # The Reserve of another pod may end the wait of the first one.
        second = Way(host)
        second.to_binding()
        for way in (first, second):
            if host.subject.has("RESERVE"):
                unreserve(host, way.cycle)
        if len(double.calls) > since:
            return double
        if monotonic_s() > until:
            raise lacking(host, "the plugin made no call to HandleService for this pod")
        time.sleep(0.05)


def _waits_for_calls(subject: Subject) -> bool:
    return takes(subject) and subject.plugin.handle_client


@case(
    "handle.new-token",
    "binding",
    "After a new Configure the plugin calls the new endpoint with its token, and no earlier one.",
    _waits_for_calls,
)
def _new_token(host: Host) -> None:
    double = _calls_of_handle(host)
    for _ in range(2):
        host.attach()
        since = len(double.calls)
        _calls_of_handle(host)
        stale = [call for call in double.calls[since:] if double.is_over(call.token)]
        if stale and len(stale) == len(double.calls[since:]):  # one may have been on its way before
            raise BrokenError(
                f"{stale[0].name} comes with the token of an earlier Configure; each endpoint has its own"
            )
        wrong = [
            call
            for call in double.calls[since:]
            if call.token in double.endpoints and double.endpoints[call.token].target != call.target
        ]
        if wrong:
            raise BrokenError(
                f"{wrong[0].name} comes to the address of an earlier endpoint, with the token of the new one"
            )


@case(
    "handle.none",
    "binding",
    "After a Configure without HandleEndpoint the plugin goes on, and calls no earlier endpoint.",
    lambda subject: _waits_for_calls(subject) and not subject.plugin.handle_required,
)
def _no_endpoint(host: Host) -> None:
    double = _calls_of_handle(host)
    host.offers_handle = False
    host.attach()
    time.sleep(0.2 * host.target.time_factor)  # for calls that were on their way
    since = len(double.calls)
    for _ in range(3):
        ways = [Way(host), Way(host)]
        for way in ways:
            way.to_binding()
        for way in ways:
            if host.subject.has("RESERVE"):
                unreserve(host, way.cycle)
    time.sleep(0.2 * host.target.time_factor)
    if later := double.calls[since:]:
        raise BrokenError(
            f"{later[0].name} comes to an earlier endpoint, after a Configure without HandleEndpoint"
        )


@case(
    "handle.decisions",
    "binding",
    "Decisions are about cycles that the host began, with the uid of their pods and a known verdict.",
    _waits_for_calls,
)
def _decisions(host: Host) -> None:
    double = _calls_of_handle(host)
    for decision in double.decisions:
        if decision.cycle_id not in double.pods:
            cycle_id = decision.cycle_id
            raise BrokenError(f"a decision names the cycle {cycle_id!r}, which the host never began")
        if decision.pod_uid != double.pods[decision.cycle_id]:
            raise BrokenError(
                f"a decision about the cycle {decision.cycle_id!r} names the pod uid {decision.pod_uid!r};"
                f" the pod of that cycle has {double.pods[decision.cycle_id]!r}"
            )
        if decision.verdict not in (decision.VERDICT_ALLOW, decision.VERDICT_REJECT):
            raise BrokenError(f"a decision has the verdict {decision.verdict}, which no host applies")
    if not double.decisions:
        raise lacking(host, "the plugin decided about no waiting pod")


@case(
    "handle.trial",
    "binding",
    "A trial of arguments, which names no HandleEndpoint, leaves the endpoint that the plugin has.",
    lambda subject: _waits_for_calls(subject) and offers_trial(subject),
)
def _after_trial(host: Host) -> None:
    double = _calls_of_handle(host)
    host.call("Configure", host.configuration(host.attachment_id, trial=True))
    since = len(double.calls)
    with suppress(SkippedError):
        _calls_of_handle(host)
    if len(double.calls) == since:
        raise BrokenError("after a trial of arguments the plugin makes no call to HandleService any more")


def _before_permit(way: Way) -> WorldNode:
    if way.host.subject.has("RESERVE"):
        answer = way.try_reserve()
        if answer.ctx.status.code not in (Code.CODE_SUCCESS, Code.CODE_SKIP):
            raise lacking(way.host, f"Reserve rejects the pod: {checks.reasons(answer.ctx.status)}")
        assert way.cycle.reserved_on is not None
        return way.cycle.reserved_on
    way.cycle.reserved_on = way.to_reserve()
    return way.cycle.reserved_on


def _asked_at_once(cycle: Cycle, rpc: str, request: Any) -> list[Any]:
    """Make a call with effects several times at once; return the answers, which have one code."""
    answers = cycle.host.begin_all(rpc, request, AT_ONCE, 10.0)
    for answer in answers:
        cycle.take(rpc, answer)
        checks.decision(rpc, answer.ctx)
    same_at_once(rpc, answers)
    return answers


def _pre_flight(cycle: Cycle, node: WorldNode) -> int:
    answer = cycle.ask("PreBindPreFlight", node_name=node.name)
    return checks.decision("PreBindPreFlight", answer.ctx)


def _rounds(cycle: Cycle, node: WorldNode, outcome: Any) -> int:
    """Make rounds of PreBind until the plugin is done; return how many patches it answered."""
    patched: list[scheduling.PatchResult] = []
    total = 0
    for number in range(_ROUNDS):
        answer = cycle.ask("PreBind", node_name=node.name, round=number, patched=patched, patience_s=10.0)
        code = checks.decision("PreBind", answer.ctx)
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
