"""SchedulingService: the calls of one attempt to schedule one pod -> the methods of a plugin.

Each call of a cycle is a row of `ROWS`: the method, its arguments, and the class of its answer. The request
is read by the names of the arguments (`_ARGUMENTS`), the reply is written by the fields of its message
(`wire.codec`). A new call of the contract whose arguments are known is a row here.
"""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import ScoreRefusedError
from berth_sdk.extension_points import ExtensionPoint, NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.pod_group import GroupView, Placement
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PodGroupPostFilterResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    ReserveResult,
)
from berth_sdk.runtime.early import PreScored
from berth_sdk.runtime.group_runtime import (
    FeasibleSteps,
    PlacementScored,
    PlacementsGenerated,
    PlacementsNormalized,
    StepsJudged,
)
from berth_sdk.scenarios import Scenarios
from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.cycle_call import CycleCall, Method, cycle_call
from berth_sdk.serve.handle_client import HandleClient, PodGroupTries
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.reservations import ReservationCalls
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire.codec import RPCS, SCORES, Convert, Layout
from berth_sdk.wire.groups import decode_assignments, decode_trial, members_of
from berth_sdk.wire.requests import (
    decode_patched,
    decode_rejections,
    decode_scores,
)
from berth_sdk.wire.results import WRITERS
from berth_sdk.wire.scenarios import decode_scenario, decode_scenario_usages
from berth_sdk.wire.scores import Scored, encode_aligned
from berth_sdk.wire.status import encode_status

_LOG: Final = logging.getLogger("berth_sdk.plugin")
_DONE: Final = frozenset({Code.SUCCESS})


class SchedulingServicer:
    """The servicer. The calls of cycles are methods made from `ROWS`, each wrapped by `cycle_call`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.reservations = ReservationCalls(instance)

    # --- batches: ended cycles -----------------------------------------------------------------

    def Unreserve(
        self, request: spb.UnreserveRequest, context: grpc.ServicerContext
    ) -> spb.UnreserveResponse:
        """Undo reservations. The reply lists those that are undone; the host repeats the others.

        Aborts with INTERNAL if all failed.
        """
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        done = [
            item.cycle_id for item in request.items if self.reservations.undo(request.plugin, item, context)
        ]
        if request.items and not done:
            text = f"{request.plugin}.unreserve failed for each of {len(request.items)} reservations"
            context.abort(grpc.StatusCode.INTERNAL, text)
        return spb.UnreserveResponse(done_cycle_ids=done)

    def PostBind(self, request: spb.PostBindRequest, context: grpc.ServicerContext) -> spb.PostBindResponse:
        """Call PostBind, and release the cycles. A failure is only logged."""
        self.instance.admit(request.attachment_id)
        self.instance.profiles_of(request.plugin)
        for item in request.items:
            self.reservations.bound(request.plugin, item, context)
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


@dataclass(slots=True, eq=False)
class Asked:
    """One call and its request. The writers use it as `Answering`."""

    call: CycleCall
    request: Any
    candidates: NodeTable | None = None
    """The nodes of the request, after they were read."""

    @property
    def nodes(self) -> NodeTable:
        """The nodes of the request. Raises LookupError if the request has no nodes."""
        if self.candidates is None:
            raise LookupError("the answer is about nodes, and the request names none")
        return self.candidates

    @property
    def mode(self) -> NodeMode:
        """The plugin's way to name nodes."""
        return self.call.mode

    @property
    def group(self) -> GroupView:
        """The group of the cycle. Raises CallRefusedError in a call about a pod."""
        subject = self.call.subject
        if not isinstance(subject, GroupView):
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the call names no group")
        return subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of call of a cycle."""

    rpc: str
    method: str
    """The method of a plugin's class."""
    takes: tuple[str, ...]
    """The arguments of the method after state and pod, by their names in `_ARGUMENTS`."""
    answer: Any
    """The class of the answer: a record, Verdicts (one per scenario), or ndarray (one score per node)."""
    early: bool = False
    """True if the answer may have early answers to later calls (`runtime.early`)."""
    once: ExtensionPoint | None = None
    """A duplicate of the call in the same cycle gets the first reply again."""
    full: frozenset[Code] | None = None
    """The codes with which the reply has more than the status; None: all codes."""


# --- the request -------------------------------------------------------------------------------


def _nodes(asked: Asked) -> NodeTable:
    asked.candidates = asked.call.candidates(asked.request.candidates)
    return asked.candidates


def _raw_scores(asked: Asked) -> NDArray[np.int64]:
    try:
        return decode_scores(asked.request.scores, _nodes(asked))
    except (KeyError, ValueError) as err:
        text = f"the scores to normalise do not fit the candidates: {err}"
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err


def _scenarios(asked: Asked) -> Scenarios:
    messages = asked.request.scenarios
    mode = asked.call.runtime.descriptor.node_mode
    nodes = asked.call.snapshot([scenario.node.node_name for scenario in messages])
    try:
        items = [decode_scenario(scenario, nodes, mode) for scenario in messages]
        # With the pods at hand, the usage follows from them.
        usages = decode_scenario_usages(messages) if nodes.known_pods is None else None
        return Scenarios(nodes, items, usages)
    except KeyError as err:
        text = f"a scenario is about node {err.args[0]!r}, which is not in the snapshot"
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err
    except ValueError as err:
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err


def _rejections(asked: Asked) -> NodeRejections:
    request = asked.request
    try:
        return decode_rejections(request.rejected, request.rejected_by, asked.call.snapshot([]))
    except ValueError as err:
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err


def _patched(asked: Asked) -> tuple[PatchResult, ...]:
    asked.call.state.pod_deleted = asked.request.pod_deleted
    return decode_patched(asked.request.patched)


def _reserved_node(asked: Asked) -> str:
    """Return the node of a Reserve; its trial goes into the state."""
    request = asked.request
    if request.HasField("trial"):
        asked.call.state.trial = decode_trial(request.trial)
    return str(request.node_name)


def _parent(asked: Asked) -> Placement:
    parent = _placement(asked, asked.request.parent)
    asked.candidates = parent.nodes
    return parent


def _placement(asked: Asked, message: spb.PlacementNodes) -> Placement:
    return Placement(message.name, asked.call.candidates(message.nodes))


def _tries(asked: Asked) -> PodGroupTries:
    call = asked.call
    handle = HandleClient(call.runtime.descriptor, call.instance.connection, call.instance.copy)
    return handle.tries(
        call.state.cycle_id,
        members_of(asked.group),
        reached_pre_filter=asked.request.reached_pre_filter,
    )


_ARGUMENTS: Final[Mapping[str, Callable[[Asked], Any]]] = {
    "nodes": _nodes,
    "scores": _raw_scores,
    "scenarios": _scenarios,
    "rejections": _rejections,
    "node_name": lambda asked: asked.request.node_name,
    "patched": _patched,
    "reserved_node": _reserved_node,
    "parent": _parent,
    "placement": lambda asked: _placement(asked, asked.request.placement),
    "assignments": lambda asked: decode_assignments(asked.request.assignments, members_of(asked.group)),
    "raw_scores": lambda asked: np.array(asked.request.raw_scores, dtype=np.int64),
    "placements": lambda asked: [_placement(asked, one) for one in asked.request.placements],
    "steps": lambda asked: FeasibleSteps(
        asked.request.scheduled,
        asked.request.remaining,
        asked.request.max_failures,
        asked.request.unschedulable,
    ),
    "tries": _tries,
}


# --- the reply -----------------------------------------------------------------------------------


def _record_reply(row: Row) -> Callable[[Asked, Any], Any]:
    layout: Layout[Any] = Layout(row.answer, RPCS[row.rpc].reply)

    def reply(asked: Asked, answer: Any) -> Any:
        call = asked.call
        if answer is None:  # no decision
            return layout.message(ctx=call.reply())
        status = answer.status if layout.has_own_status else None
        if row.full is not None and status is not None and status.code not in row.full:
            return layout.message(ctx=call.reply(status))
        try:
            message = layout.encode(_KINDS, asked, answer)
        except (TypeError, ValueError) as err:
            text = f"{call.served.name}.{row.method} answered a patch that is no JSON: {err}"
            raise CallRefusedError(grpc.StatusCode.INTERNAL, text) from err
        message.ctx.CopyFrom(call.reply(status))
        if layout.scores is None:
            return message
        scores = getattr(answer, layout.scores.attribute)
        if scores is None or getattr(answer, "skip_score", False):
            return Scored(message, layout.scores.number, None)
        return Scored(message, layout.scores.number, encode_aligned(scores))

    return reply


def _statuses_reply(row: Row) -> Callable[[Asked, Verdicts], Any]:
    message = RPCS[row.rpc].reply

    def reply(asked: Asked, verdicts: Verdicts) -> Any:
        statuses = [encode_status(status) for status in verdicts.to_list()]
        return message(ctx=asked.call.reply(), statuses=statuses)

    return reply


def _scores_reply(row: Row) -> Callable[[Asked, Any], Any]:
    message = RPCS[row.rpc].reply
    fields = (field for field in message.DESCRIPTOR.fields if field.message_type is not None)
    (number,) = (field.number for field in fields if field.message_type.name == SCORES)

    def reply(asked: Asked, scores: NDArray[np.int64] | ScoreRefusedError) -> Any:
        if isinstance(scores, ScoreRefusedError):
            status = Status(Code.ERROR, scores.reasons)
            return Scored(message(ctx=asked.call.reply(status)), number, None)
        return Scored(message(ctx=asked.call.reply()), number, encode_aligned(scores))

    return reply


def _pre_flight(asked: Asked, answer: PreFlightResult) -> Any:
    return _REPLIES["PreBindPreFlight"](asked, answer)


def _pre_bind(asked: Asked, answer: PreBindResult) -> Any:
    """Return the message; None, which leaves the field unset, if the answer cannot be encoded."""
    try:
        return _REPLIES["PreBind"](asked, answer)
    except CallRefusedError:
        # An error in PreBind must not fail Reserve: the host calls PreBind and gets the error there.
        _LOG.debug("%s: no early answer to PreBind", asked.call.served.name, exc_info=True)
        return None


# --- one call ------------------------------------------------------------------------------------


def _answer_of(row: Row) -> Callable[[SchedulingServicer, Any, CycleCall], Any]:
    readers = [_ARGUMENTS[name] for name in row.takes]
    write = _REPLIES[row.rpc]

    def answer(_self: SchedulingServicer, request: Any, call: CycleCall) -> Any:
        asked = Asked(call, request)
        args = [read(asked) for read in readers]
        method = getattr(call.served.early if row.early else call.runtime, row.method)
        try:
            found = call.ask(lambda: method(call.state, call.subject, *args))
        except ScoreRefusedError as err:
            if row.answer is not np.ndarray:
                raise
            found = err
        return write(asked, found)

    return answer if row.once is None else _once(row.once, answer)


def _once(
    point: ExtensionPoint, answer: Callable[[SchedulingServicer, Any, CycleCall], Any]
) -> Callable[[SchedulingServicer, Any, CycleCall], Any]:
    """Answer a duplicate with the first reply; refuse a Reserve that comes after its Unreserve."""

    def answer_once(self: SchedulingServicer, request: Any, call: CycleCall) -> Any:
        is_reserve, part = point is ExtensionPoint.RESERVE, call.part
        if is_reserve and self.reservations.is_undone(call):
            undone = Status.error("the cycle has been unreserved already")
            return spb.ReserveResponse(ctx=call.reply(undone))
        first = part.first_replies.get(point)
        if first is None:
            part.reserved = part.reserved or is_reserve
            part.node_name = request.node_name
            first = answer(self, request, call)
            code = first.ctx.status.code
            if code == pb.PluginStatus.CODE_WAIT:
                part.reserved = True
            elif is_reserve and code == pb.PluginStatus.CODE_SKIP:
                part.reserved = False
            part.first_replies[point] = first
        reply = type(first)()
        reply.CopyFrom(first)
        return reply

    return answer_once


ROWS: Final = (
    Row(rpc="PreFilter", method="pre_filter", takes=("nodes",), answer=PreFilterResult, early=True),
    Row(rpc="Filter", method="filter", takes=("nodes",), answer=FilterResult, early=True),
    Row(rpc="SimulateFilter", method="filter_scenarios", takes=("scenarios",), answer=Verdicts),
    Row(rpc="PostFilter", method="post_filter", takes=("rejections",), answer=PostFilterResult),
    Row(rpc="PreScore", method="pre_score", takes=("nodes",), answer=PreScored, early=True),
    Row(rpc="Score", method="score", takes=("nodes",), answer=np.ndarray),
    Row(rpc="NormalizeScore", method="normalize", takes=("scores", "nodes"), answer=np.ndarray),
    Row(
        rpc="Reserve",
        method="reserve",
        takes=("reserved_node",),
        answer=ReserveResult,
        once=ExtensionPoint.RESERVE,
        full=_DONE,
    ),
    Row(
        rpc="Permit",
        method="permit",
        takes=("node_name",),
        answer=PermitResult,
        once=ExtensionPoint.PERMIT,
    ),
    Row(rpc="PreBindPreFlight", method="pre_bind_pre_flight", takes=("node_name",), answer=PreFlightResult),
    Row(rpc="PreBind", method="pre_bind", takes=("node_name", "patched"), answer=PreBindResult),
    Row(rpc="Bind", method="bind", takes=("node_name",), answer=BindResult),
    Row(
        rpc="PlacementGenerate",
        method="placement_generate",
        takes=("parent",),
        answer=PlacementsGenerated,
        full=_DONE,
    ),
    Row(
        rpc="PlacementScore",
        method="placement_score",
        takes=("placement", "assignments"),
        answer=PlacementScored,
        full=_DONE,
    ),
    Row(
        rpc="NormalizePlacementScore",
        method="normalize_placements",
        takes=("raw_scores", "placements"),
        answer=PlacementsNormalized,
        full=_DONE,
    ),
    Row(
        rpc="PlacementFeasible",
        method="placement_feasible",
        takes=("steps",),
        answer=StepsJudged,
        full=_DONE,
    ),
    Row(
        rpc="PodGroupPostFilter",
        method="pod_group_post_filter",
        takes=("tries",),
        answer=PodGroupPostFilterResult,
    ),
)
_KINDS: Final[Mapping[str, Convert]] = {
    **WRITERS,
    # Reserve's answers for the binding cycle.
    "PreBindPreFlightResponse": _pre_flight,
    "PreBindResponse": _pre_bind,
}


def _reply_of(row: Row) -> Callable[[Asked, Any], Any]:
    if row.answer is Verdicts:
        return _statuses_reply(row)
    return _scores_reply(row) if row.answer is np.ndarray else _record_reply(row)


_REPLIES: Final = {row.rpc: _reply_of(row) for row in ROWS}


def _method_of(row: Row) -> Method[Any]:
    answer = _answer_of(row)
    answer.__name__ = row.rpc
    return cycle_call(row.method, RPCS[row.rpc].reply)(answer)


for _row in ROWS:
    setattr(SchedulingServicer, _row.rpc, _method_of(_row))
