"""HandleService: the calls of plugins in other processes to the host. Served by `HandleServer`.

Every call names its plugin and carries the token of its attachment; then it is the same question that an
`InProcessHandle` puts to the same `HandleBackend`. Source: the contract's handle.proto.
"""

# ruff: noqa: N802  (the methods have the contract's names)

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import grpc
from berth_sdk.errors import UndeclaredError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.wire import records as wire
from berth_sdk.wire.pushback import PUSHBACK
from berth_sdk.wire.status import encode_status
from grpc import StatusCode

from berth_host.attach.feed import HostState
from berth_host.errors.state import InvariantError
from berth_host.handle.backend import (
    HandleBackend,
    NoOpenCallError,
    QuestionUnderWayError,
    UnknownNodesError,
)
from berth_host.handle.event_bounds import MAX_EVENTS, MAX_NOTE_BYTES, is_writable
from berth_host.handle.grants import Grants
from berth_host.handle.nominated import nominate, nominated_chunks
from berth_host.handle.rates import CALLS_PER_S, CallRates, RefusedRates
from berth_host.handle.reading import StateReader, readable
from berth_host.handle.refusals import Refusals
from berth_host.handle.scenarios import ScenarioError, ScenarioReader
from berth_host.rpc.pace import each
from berth_host.rpc.served.statuses import cut

MAX_READS: Final = 4
"""Concurrent reads of the state and the nominations by one plugin: each keeps its data alive, however slowly
it is read.
"""
Context = grpc.aio.ServicerContext[Any, Any]


class FilterRunner(Protocol):
    """The Filter plugins of a cycle, for the plugin that runs PostFilter. Implemented by `app`."""

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Per scenario SUCCESS or the first rejection of the other plugins, in configured order.

        Raises NoOpenCallError.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleSeams:
    """The service's questions to the host. `descriptor_of`: an attached plugin's, None for others. `clock`:
    monotonic seconds, for the rates of calls.
    """

    backend: HandleBackend
    state: HostState
    filters: FilterRunner
    descriptor_of: Callable[[str], Descriptor | None]
    clock: Callable[[], float] = time.monotonic


class HandleService(handle_pb2_grpc.HandleServiceServicer):
    """All calls run on the host's loop."""

    def __init__(self, seams: HandleSeams, grants: Grants) -> None:
        self._seams = seams
        self._backend = seams.backend
        self._grants = grants
        self._reads: Counter[str] = Counter()
        self._rates = CallRates(seams.clock)
        self._refusals = Refusals(seams.clock)
        self._refused_rates = RefusedRates(seams.clock)

    # --- waiting pods ------------------------------------------------------------------------------

    async def ListWaitingPods(
        self, request: handle_pb2.ListWaitingPodsRequest, context: Context
    ) -> handle_pb2.ListWaitingPodsResponse:
        """The pods that wait on Permit."""
        await self._admit(request, context)
        waiting = self._backend.waiting_pods(request.plugin, request.only_mine)
        return handle_pb2.ListWaitingPodsResponse(
            pods=[_waiting_pod(item, request.with_objects) for item in waiting]
        )

    async def DecideWaitingPods(
        self, request: handle_pb2.DecideWaitingPodsRequest, context: Context
    ) -> handle_pb2.DecideWaitingPodsResponse:
        """Each decision by itself, in order."""
        await self._admit(request, context)
        results = await each(request.decisions, lambda one: self._decide(request.plugin, one).value)
        return handle_pb2.DecideWaitingPodsResponse(
            results=[handle_pb2.DecideWaitingPodsResponse.Result.ValueType(result) for result in results]
        )

    def _decide(self, plugin: str, decision: handle_pb2.WaitDecision) -> Decision:
        uid, cycle_id = decision.pod_uid, decision.cycle_id
        if decision.verdict == handle_pb2.WaitDecision.VERDICT_ALLOW:
            return self._backend.allow(plugin, uid, cycle_id, decision.plugin)
        if decision.verdict == handle_pb2.WaitDecision.VERDICT_REJECT:
            return self._backend.reject(plugin, uid, cycle_id, cut(decision.message))
        return Decision.NOT_PERMITTED

    # --- binding cycles ----------------------------------------------------------------------------

    async def CancelBinding(
        self, request: handle_pb2.CancelBindingRequest, context: Context
    ) -> handle_pb2.CancelBindingResponse:
        """Each pod by itself, in order."""
        await self._admit(request, context)
        cancel = self._backend.cancel_binding
        results = await each(
            request.items,
            lambda one: cancel(request.plugin, one.pod_uid, one.cycle_id, cut(one.message)).value,
        )
        return handle_pb2.CancelBindingResponse(
            results=[handle_pb2.CancelBindingResponse.Result.ValueType(result) for result in results]
        )

    # --- the snapshot ------------------------------------------------------------------------------

    async def ReadState(
        self, request: handle_pb2.ReadStateRequest, context: Context
    ) -> AsyncIterator[handle_pb2.ReadStateResponse]:
        """The snapshot as it is when the call begins, in chunks; it may move on between two of them."""
        await self._admit(request, context)
        async with self._reading(request.plugin, context):
            reader = await self._reader(request, context)
            # Closed here however the stream ends: its captured data must not outlive it.
            async with aclosing(reader.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk

    @asynccontextmanager
    async def _reading(self, plugin: str, context: Context) -> AsyncIterator[None]:
        """One more read of the plugin, unless it has too many."""
        if self._reads[plugin] >= MAX_READS:
            text = f"{plugin} has {MAX_READS} reads under way: end one first"
            await _refuse(context, StatusCode.RESOURCE_EXHAUSTED, text)
        self._reads[plugin] += 1
        try:
            yield
        finally:
            self._reads[plugin] -= 1

    async def _reader(self, request: handle_pb2.ReadStateRequest, context: Context) -> StateReader:
        """Version and content are taken in one step of the loop; only a refusal awaits."""
        state = self._seams.state
        if request.HasField("at") and wire.decode_version(request.at) != state.version:
            await _refuse(context, StatusCode.FAILED_PRECONDITION, str(state.version))
        try:
            needs = self._needs(request)
            return StateReader(state, needs, request.nodes if request.HasField("nodes") else None)
        except UndeclaredError as err:
            await self._note(request, context, str(err))
            await _refuse(context, StatusCode.PERMISSION_DENIED, str(err))
        except (ValueError, UnknownNodesError) as err:
            await _refuse(context, StatusCode.INVALID_ARGUMENT, str(err))

    def _needs(self, request: handle_pb2.ReadStateRequest) -> Iterable[Need]:
        """Raises ValueError and UndeclaredError."""
        descriptor = self._seams.descriptor_of(request.plugin)
        declared = () if descriptor is None else descriptor.needs
        return readable(request.plugin, request.needs, declared)

    # --- from an open call -------------------------------------------------------------------------

    async def RunFilters(
        self, request: handle_pb2.RunFiltersRequest, context: Context
    ) -> handle_pb2.RunFiltersResponse:
        """The other plugins' verdicts on what-ifs."""
        await self._admit(request, context)
        reader = ScenarioReader(self._backend.snapshot())
        try:
            scenarios = [reader.read(message) for message in request.scenarios]
            statuses = await self._seams.filters.run_filters(request.plugin, request.cycle_id, scenarios)
        except ScenarioError as err:
            await _refuse(context, StatusCode.INVALID_ARGUMENT, str(err))
        except NoOpenCallError:
            await _refuse_closed(request, context, "PostFilter")
        return handle_pb2.RunFiltersResponse(statuses=[encode_status(status) for status in statuses])

    async def EvaluatePreemption(
        self, request: handle_pb2.EvaluatePreemptionRequest, context: Context
    ) -> handle_pb2.EvaluatePreemptionResponse:
        """Find the node and the victims of a preemption. No pod is evicted here."""
        await self._admit(request, context)
        try:
            found = await self._backend.evaluate_preemption(
                request.plugin,
                request.cycle_id,
                request.min_candidate_nodes_percentage,
                request.min_candidate_nodes_absolute,
            )
        except NoOpenCallError:
            await _refuse_closed(request, context, "PostFilter")
        return handle_pb2.EvaluatePreemptionResponse(
            status=encode_status(found.status),
            nominated_node=found.nominated_node,
            clear_nomination=found.clear_nomination,
            victims=[wire.encode_ref(ref) for ref in found.victims],
        )

    async def RunScores(
        self, request: handle_pb2.RunScoresRequest, context: Context
    ) -> handle_pb2.RunScoresResponse:
        """The scores of the profile's Score plugins for some nodes."""
        await self._admit(request, context)
        try:
            found = await self._backend.run_scores(
                request.plugin, request.cycle_id, tuple(request.node_names)
            )
        except NoOpenCallError:
            await _refuse_closed(request, context, "PostFilter, Reserve or Permit")
        except QuestionUnderWayError as err:
            await _refuse(context, StatusCode.RESOURCE_EXHAUSTED, str(err))
        except UnknownNodesError as err:
            await _refuse(context, StatusCode.INVALID_ARGUMENT, str(err))
        return handle_pb2.RunScoresResponse(
            status=encode_status(found.status),
            totals=found.totals.tolist(),
            plugins=[
                handle_pb2.PluginNodeScores(
                    plugin=item.plugin, weight=item.weight, scores=item.scores.tolist()
                )
                for item in found.plugins
            ],
        )

    # --- the queue ---------------------------------------------------------------------------------

    async def ListNominatedPods(
        self, request: handle_pb2.ListNominatedPodsRequest, context: Context
    ) -> AsyncIterator[handle_pb2.ListNominatedPodsResponse]:
        """The nominations as they are when the call begins, in chunks."""
        await self._admit(request, context)
        async with self._reading(request.plugin, context):
            names = None if request.all_nodes else tuple(request.node_names)
            pods = self._backend.nominated_pods(request.plugin, names)
            async with aclosing(nominated_chunks(pods, with_objects=request.with_objects)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def Nominate(
        self, request: handle_pb2.NominateRequest, context: Context
    ) -> handle_pb2.NominateResponse:
        """Each pod by itself, in order."""
        await self._admit(request, context)
        results = await each(request.items, lambda one: nominate(self._backend, request.plugin, one).value)
        return handle_pb2.NominateResponse(
            results=[handle_pb2.NominateResponse.Result.ValueType(result) for result in results]
        )

    async def Requeue(
        self, request: handle_pb2.RequeueRequest, context: Context
    ) -> handle_pb2.RequeueResponse:
        """Try pods again."""
        asking = await self._admit(request, context)
        moved = 0
        wanted: list[Iterable[str] | None] = []
        if request.pod_uids:
            wanted.append(list(request.pod_uids))
        if request.all_rejected_by_me:
            wanted.append(None)
        for uids in wanted:
            reason = cut(request.reason)
            moved += self._backend.requeue(request.plugin, uids, reason, request.skip_backoff, asking)
        return handle_pb2.RequeueResponse(moved=moved)

    async def InvalidateSortKeys(
        self, request: handle_pb2.InvalidateSortKeysRequest, context: Context
    ) -> handle_pb2.InvalidateSortKeysResponse:
        """Sort keys no longer hold; for the plugin that sorts the queue."""
        await self._admit(request, context)
        descriptor = self._seams.descriptor_of(request.plugin)
        if descriptor is None or not descriptor.has(ExtensionPoint.QUEUE_SORT):
            await _refuse(context, StatusCode.PERMISSION_DENIED, f"{request.plugin} does not sort the queue")
        if request.all:
            self._backend.invalidate_sort_keys(request.plugin, None)
        elif request.pod_uids:
            self._backend.invalidate_sort_keys(request.plugin, list(request.pod_uids))
        return handle_pb2.InvalidateSortKeysResponse()

    # --- events ------------------------------------------------------------------------------------

    async def RecordEvents(
        self, request: handle_pb2.RecordEventsRequest, context: Context
    ) -> handle_pb2.RecordEventsResponse:
        """Kubernetes events about pods, best effort."""
        await self._admit(request, context)
        dropped = max(len(request.events) - MAX_EVENTS, 0)
        for event in request.events[:MAX_EVENTS]:
            written = is_writable(event) and self._backend.record_event(
                request.plugin,
                wire.decode_ref(event.regarding),
                event.type or "Normal",
                event.reason,
                event.action,
                cut(event.note, MAX_NOTE_BYTES),
            )
            dropped += not written
        return handle_pb2.RecordEventsResponse(dropped=dropped)

    # --- the caller --------------------------------------------------------------------------------

    async def _admit(self, request: Any, context: Context) -> str:
        """Let the call pass, or end it; return the attachment that it comes from."""
        token = _bearer(context)
        grant = None if token is None else self._grants.find(token)
        if grant is None:
            await self._note(request, context, "no token" if token is None else "no token of an attachment")
            await _refuse(
                context,
                StatusCode.UNAUTHENTICATED,
                "the token is missing, unknown, or of an earlier attachment: use that of the last Configure",
            )
        if why := grant.why_not_of(_properties(context)):
            await self._note(request, context, why)
            await _refuse(context, StatusCode.UNAUTHENTICATED, why)
        if request.plugin not in grant.plugins:
            held = ", ".join(sorted(grant.plugins)) or "no plugin any more: they are in quarantine"
            await self._note(request, context, f"the token is for {held}")
            await _refuse(
                context,
                StatusCode.PERMISSION_DENIED,
                f"plugin {request.plugin!r} is not one of this attachment that asked for the handle, or it is"
                " in quarantine",
            )
        wait_s = self._rates.take(request.plugin)
        if wait_s > 0:
            await _refuse_for_now(context, request.plugin, wait_s)
        return grant.attachment_id

    async def _note(self, request: Any, context: Context, why: str) -> None:
        """Write the refusal down, and wait where this peer is refused too often."""
        call = type(request).__name__.removesuffix("Request")
        self._refusals.note(request.plugin, call, context.peer(), why)
        await self._refused_rates.hold(context.peer())


async def _refuse_for_now(context: Context, plugin: str, wait_s: float) -> NoReturn:
    """The time to wait is in the text for people, and where gRPC's clients look for it."""
    wait_ms = math.ceil(wait_s * 1000)
    text = f"{plugin} asks more than {CALLS_PER_S:g} times a second: wait {wait_ms} ms"
    await context.abort(StatusCode.RESOURCE_EXHAUSTED, text, trailing_metadata=((PUSHBACK, str(wait_ms)),))
    raise InvariantError("abort has returned")  # it raises; the checker does not know


def _properties(context: Context) -> Mapping[str, Any]:
    # Lists of bytes, whatever the types of the package say.
    properties: Any = context.auth_context()
    found: Mapping[str, Any] = properties
    return found


def _bearer(context: Context) -> bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            raw = value.encode() if isinstance(value, str) else value
            return raw[7:] if raw.startswith(b"Bearer ") else None
    return None


async def _refuse_closed(request: Any, context: Context, calls: str) -> NoReturn:
    text = f"no {calls} of {request.plugin} is open in cycle {request.cycle_id}"
    await _refuse(context, StatusCode.FAILED_PRECONDITION, text)


async def _refuse(context: Context, code: StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise InvariantError(f"abort has returned after {text!r}")  # it raises; the checker does not know


def _waiting_pod(item: WaitingPod, with_object: bool) -> handle_pb2.WaitingPod:
    message = handle_pb2.WaitingPod(
        pod=wire.encode_pod(item.pod),
        cycle_id=item.cycle_id,
        node_name=item.node_name,
        pending_plugins=item.pending_plugins,
        deadline=wire.encode_time(item.deadline_s),
    )
    if with_object and item.pod.object is not None:
        message.object.CopyFrom(wire.encode_object(item.pod.object))
    return message
