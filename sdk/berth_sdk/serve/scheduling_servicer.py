"""SchedulingService: the calls of one attempt to schedule one pod -> the methods of a plugin."""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

import logging
from typing import Final, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import ScoreRefusedError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.results import (
    BindResult,
    FilterResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    ReserveResult,
)
from berth_sdk.runtime.early import PreScored
from berth_sdk.scenarios import Scenarios
from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.cycle_call import CycleCall, cycle_call
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.reservations import Reservations
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.wire.records import encode_ref
from berth_sdk.wire.requests import (
    decode_patched,
    decode_rejections,
    decode_scenario,
    decode_scores,
)
from berth_sdk.wire.results import (
    encode_duration,
    encode_eligible,
    encode_patch,
    encode_verdicts,
)
from berth_sdk.wire.scores import Scored, encode_aligned
from berth_sdk.wire.status import encode_status

M = TypeVar("M")
_LOG: Final = logging.getLogger("berth_sdk.plugin")


class SchedulingServicer:
    """Each call: decode, ask, encode; the envelope around it is `cycle_call`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._reservations = Reservations(instance)

    # --- the scheduling cycle ------------------------------------------------------------------

    @cycle_call("pre_filter", spb.PreFilterResponse)
    def PreFilter(self, request: spb.PreFilterRequest, call: CycleCall) -> Scored[spb.PreFilterResponse]:
        """Over all nodes of the snapshot, with early answers."""
        nodes = call.candidates(request.candidates)
        result: PreFilterResult = call.ask(lambda: call.served.early.pre_filter(call.state, call.pod, nodes))
        reply = spb.PreFilterResponse(ctx=call.reply(result.status), skip_score=result.skip_score)
        # Set and empty says something here: no node, all nodes.
        if result.eligible is not None:
            reply.eligible.SetInParent()
            reply.eligible.MergeFrom(encode_eligible(result.eligible, nodes, call.mode))
        if result.early_filter is not None:
            reply.early_filter.SetInParent()
            reply.early_filter.MergeFrom(encode_verdicts(result.early_filter, nodes, call.mode))
        scores = None if result.skip_score else result.early_scores
        return _with_scores(reply, spb.PreFilterResponse.EARLY_SCORES_FIELD_NUMBER, scores)

    @cycle_call("filter", spb.FilterResponse)
    def Filter(self, request: spb.FilterRequest, call: CycleCall) -> Scored[spb.FilterResponse]:
        """Over the nodes that no earlier plugin rejected, with scores where they save a call."""
        nodes = call.candidates(request.candidates)
        result: FilterResult = call.ask(lambda: call.served.early.filter(call.state, call.pod, nodes))
        reply = spb.FilterResponse(skip_score=result.skip_score)
        reply.ctx.SetInParent()  # there, and nothing to say in it
        if not result.verdicts.all_passed:
            reply.verdicts.CopyFrom(encode_verdicts(result.verdicts, nodes, call.mode))
        scores = None if result.skip_score else result.early_scores
        return _with_scores(reply, spb.FilterResponse.EARLY_SCORES_FIELD_NUMBER, scores)

    @cycle_call("filter_scenarios", spb.SimulateFilterResponse)
    def SimulateFilter(
        self, request: spb.SimulateFilterRequest, call: CycleCall
    ) -> spb.SimulateFilterResponse:
        """Filter under assumptions."""
        nodes = call.snapshot([node.node_name for scenario in request.scenarios for node in scenario.nodes])
        try:
            items = [decode_scenario(scenario, nodes) for scenario in request.scenarios]
            scenarios = Scenarios(nodes, items)
        except KeyError as err:
            raise _unknown_node(err) from err
        except ValueError as err:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err
        verdicts: Verdicts = call.ask(lambda: call.runtime.filter_scenarios(call.state, call.pod, scenarios))
        statuses = [encode_status(status) for status in verdicts.to_list()]
        return spb.SimulateFilterResponse(ctx=call.reply(), statuses=statuses)

    @cycle_call("post_filter", spb.PostFilterResponse)
    def PostFilter(self, request: spb.PostFilterRequest, call: CycleCall) -> spb.PostFilterResponse:
        """No node is left."""
        nodes = call.snapshot([])
        try:
            rejections = decode_rejections(request.rejected, request.rejected_by, nodes)
        except ValueError as err:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err
        result: PostFilterResult = call.ask(
            lambda: call.runtime.post_filter(call.state, call.pod, rejections)
        )
        return spb.PostFilterResponse(
            ctx=call.reply(result.status),
            nominated_node=result.nominated_node,
            clear_nomination=result.clear_nomination,
            victims=[encode_ref(victim) for victim in result.victims],
            patches=[encode_patch(patch) for patch in result.patches],
        )

    @cycle_call("pre_score", spb.PreScoreResponse)
    def PreScore(self, request: spb.PreScoreRequest, call: CycleCall) -> Scored[spb.PreScoreResponse]:
        """Over the feasible nodes, with their scores."""
        nodes = call.candidates(request.candidates)
        number = spb.PreScoreResponse.EARLY_SCORES_FIELD_NUMBER
        result: PreScored = call.ask(lambda: call.served.early.pre_score(call.state, call.pod, nodes))
        return _with_scores(spb.PreScoreResponse(ctx=call.reply(result.status)), number, result.scores)

    @cycle_call("score", spb.ScoreResponse)
    def Score(self, request: spb.ScoreRequest, call: CycleCall) -> Scored[spb.ScoreResponse]:
        """Over the feasible nodes."""
        nodes = call.candidates(request.candidates)
        number = spb.ScoreResponse.SCORES_FIELD_NUMBER
        try:
            scores = call.ask(lambda: call.runtime.score(call.state, call.pod, nodes))
        except ScoreRefusedError as err:
            return Scored(spb.ScoreResponse(ctx=call.reply(Status(Code.ERROR, err.reasons))), number, None)
        return Scored(spb.ScoreResponse(ctx=call.reply()), number, encode_aligned(scores))

    @cycle_call("normalize", spb.NormalizeScoreResponse)
    def NormalizeScore(
        self, request: spb.NormalizeScoreRequest, call: CycleCall
    ) -> Scored[spb.NormalizeScoreResponse]:
        """The plugin's second step."""
        nodes = call.candidates(request.candidates)
        try:
            raw = decode_scores(request.scores, nodes)
        except (KeyError, ValueError) as err:
            text = f"the scores to normalise do not fit the candidates: {err}"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err
        number = spb.NormalizeScoreResponse.SCORES_FIELD_NUMBER
        try:
            scores = call.ask(lambda: call.runtime.normalize(call.state, call.pod, raw, nodes))
        except ScoreRefusedError as err:
            refused = spb.NormalizeScoreResponse(ctx=call.reply(Status(Code.ERROR, err.reasons)))
            return Scored(refused, number, None)
        return Scored(spb.NormalizeScoreResponse(ctx=call.reply()), number, encode_aligned(scores))

    @cycle_call("reserve", spb.ReserveResponse)
    def Reserve(self, request: spb.ReserveRequest, call: CycleCall) -> spb.ReserveResponse:
        """Once per cycle: a duplicate gets the first answer, one after Unreserve is refused."""
        if self._reservations.is_undone(call):
            return spb.ReserveResponse(ctx=call.reply(Status.error("the cycle has been unreserved already")))
        first = call.part.first_replies.get(ExtensionPoint.RESERVE)
        if first is None:
            call.part.reserved = True
            call.part.node_name = request.node_name
            result: ReserveResult | None = call.ask(
                lambda: call.runtime.reserve(call.state, call.pod, request.node_name)
            )
            first = spb.ReserveResponse(ctx=call.reply(None if result is None else result.status))
            if result is not None and result.status.is_success:
                _answer_early(first, call, result)
            call.part.first_replies[ExtensionPoint.RESERVE] = first
        reply = spb.ReserveResponse()
        reply.CopyFrom(first)
        return reply

    @cycle_call("permit", spb.PermitResponse)
    def Permit(self, request: spb.PermitRequest, call: CycleCall) -> spb.PermitResponse:
        """Once per cycle: a duplicate gets the first answer."""
        first = call.part.first_replies.get(ExtensionPoint.PERMIT)
        if first is None:
            call.part.node_name = request.node_name
            result: PermitResult | None = call.ask(
                lambda: call.runtime.permit(call.state, call.pod, request.node_name)
            )
            first = spb.PermitResponse(ctx=call.reply(None if result is None else result.status))
            if result is not None and result.status.code is Code.WAIT:
                call.part.reserved = True
                if result.wait_timeout_s is not None:
                    first.wait_timeout.CopyFrom(encode_duration(result.wait_timeout_s))
            call.part.first_replies[ExtensionPoint.PERMIT] = first
        reply = spb.PermitResponse()
        reply.CopyFrom(first)
        return reply

    # --- the binding cycle ---------------------------------------------------------------------

    @cycle_call("pre_bind_pre_flight", spb.PreBindPreFlightResponse)
    def PreBindPreFlight(
        self, request: spb.PreBindPreFlightRequest, call: CycleCall
    ) -> spb.PreBindPreFlightResponse:
        """Will PreBind do anything?"""
        result: PreFlightResult = call.ask(
            lambda: call.runtime.pre_bind_pre_flight(call.state, call.pod, request.node_name)
        )
        return _encode_pre_flight(call, result)

    @cycle_call("pre_bind", spb.PreBindResponse)
    def PreBind(self, request: spb.PreBindRequest, call: CycleCall) -> spb.PreBindResponse:
        """One round."""
        patched = decode_patched(request.patched)
        call.state.pod_deleted = request.pod_deleted
        result: PreBindResult | None = call.ask(
            lambda: call.runtime.pre_bind(call.state, call.pod, request.node_name, patched)
        )
        if result is None:
            return spb.PreBindResponse(ctx=call.reply())
        try:
            return _encode_pre_bind(call, result)
        except (TypeError, ValueError) as err:
            text = f"{call.served.name}.pre_bind answered a patch that is no JSON: {err}"
            raise CallRefusedError(grpc.StatusCode.INTERNAL, text) from err

    @cycle_call("bind", spb.BindResponse)
    def Bind(self, request: spb.BindRequest, call: CycleCall) -> spb.BindResponse:
        """Bind the pod, or let the host do it."""
        result: BindResult | None = call.ask(
            lambda: call.runtime.bind(call.state, call.pod, request.node_name)
        )
        if result is None:
            return spb.BindResponse(ctx=call.reply())
        return spb.BindResponse(ctx=call.reply(result.status), host_binds=result.host_binds)

    # --- batches: ended cycles -----------------------------------------------------------------

    def Unreserve(
        self, request: spb.UnreserveRequest, context: grpc.ServicerContext
    ) -> spb.UnreserveResponse:
        """Give back; reservations that could not be given back are not listed, and come again. INTERNAL if
        all failed."""
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        done = [
            item.cycle_id for item in request.items if self._reservations.undo(request.plugin, item, context)
        ]
        if request.items and not done:
            text = f"{request.plugin}.unreserve failed for each of {len(request.items)} reservations"
            context.abort(grpc.StatusCode.INTERNAL, text)
        return spb.UnreserveResponse(done_cycle_ids=done)

    def PostBind(self, request: spb.PostBindRequest, context: grpc.ServicerContext) -> spb.PostBindResponse:
        """For information: a fault is logged."""
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        for item in request.items:
            self._reservations.bound(request.plugin, item, context)
        return spb.PostBindResponse()

    def EndCycles(
        self, request: spb.EndCyclesRequest, context: grpc.ServicerContext
    ) -> spb.EndCyclesResponse:
        """Drop the state of these cycles."""
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        for ended in request.ended:
            bound = ended.outcome == pb.CycleEnd.OUTCOME_BOUND
            self.instance.cycles.end(request.plugin, ended.cycle_id, bound=bound)
        return spb.EndCyclesResponse()


def _with_scores(reply: M, number: int, scores: NDArray[np.int64] | None) -> Scored[M]:
    """`reply` with scores in the field `number`, if there are any."""
    return Scored(reply, number, None if scores is None else encode_aligned(scores))


def _encode_pre_flight(call: CycleCall, result: PreFlightResult) -> spb.PreBindPreFlightResponse:
    return spb.PreBindPreFlightResponse(ctx=call.reply(result.status), allow_parallel=result.allow_parallel)


def _encode_pre_bind(call: CycleCall, result: PreBindResult) -> spb.PreBindResponse:
    """Raises TypeError or ValueError for a patch that is no JSON."""
    reply = spb.PreBindResponse(
        ctx=call.reply(result.status),
        patches=[encode_patch(patch) for patch in result.patches],
        done_when_applied=result.done_when_applied,
    )
    if result.ask_again_after_s is not None:
        reply.ask_again_after.CopyFrom(encode_duration(result.ask_again_after_s))
    return reply


def _answer_early(reply: spb.ReserveResponse, call: CycleCall, result: ReserveResult) -> None:
    """Write Reserve's answers for the binding cycle."""
    if result.pre_flight is not None:
        reply.early_pre_flight.CopyFrom(_encode_pre_flight(call, result.pre_flight))
    if result.pre_bind is None:
        return
    try:
        reply.early_pre_bind.CopyFrom(_encode_pre_bind(call, result.pre_bind))
    except (TypeError, ValueError):
        # A fault in PreBind must not fail Reserve: the host calls PreBind and meets it there.
        _LOG.debug("%s: no early answer to PreBind", call.served.name, exc_info=True)


def _unknown_node(err: KeyError) -> CallRefusedError:
    return CallRefusedError(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"a scenario is about node {err.args[0]!r}, which is not in the snapshot",
    )
