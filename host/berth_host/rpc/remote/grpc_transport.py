"""`GrpcTransport`: one plugin of one profile behind an `InstanceLink`, over the contract.

Builds each request (`codec`, `contexts`), has repaired what the plugin says it lacks, once and inside
the same budget, and reads the reply (`replies`). Called by `PluginClient`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, overload

import numpy as np
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.early import PreScored
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.scores import RepeatedScores, Scored
from numpy.typing import NDArray

from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginStaleError,
    PluginTimeoutError,
)
from berth_host.errors.state import InvariantError
from berth_host.rpc import calls
from berth_host.rpc.calls import Call
from berth_host.rpc.cycle import CycleContext, CycleEnd, Reserved
from berth_host.rpc.remote import codec, methods
from berth_host.rpc.remote.contexts import ContextWriter
from berth_host.rpc.remote.link import InstanceLink
from berth_host.rpc.remote.methods import Method
from berth_host.rpc.remote.outbox import Outbox, Parcel
from berth_host.rpc.remote.replies import ReplyReader

R = TypeVar("R")
DEFAULT_CONCURRENCY: Final = 64
"""Binding-cycle calls of one plugin at once, where the plugin does not say."""


class GrpcTransport:
    """One plugin of one profile at one instance."""

    def __init__(
        self,
        link: InstanceLink,
        descriptor: Descriptor,
        profile: str,
        outbox: Outbox,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        """`slots`: for binding-cycle calls, shared by the profiles of a plugin."""
        self.link = link
        self.descriptor = descriptor
        self._plugin = descriptor.name
        self._mode = descriptor.node_mode
        self._whole_pod = descriptor.wants_whole_pod
        self._contexts = ContextWriter(link, descriptor, profile)
        self._outbox = outbox
        self._last_scores = RepeatedScores()
        self._slots = slots or asyncio.Semaphore(descriptor.max_concurrency or DEFAULT_CONCURRENCY)

    @property
    def is_open(self) -> bool:
        """Whether its instance is still attached."""
        return self.link.is_open

    # --- the queue ---------------------------------------------------------------------------------

    async def pre_enqueue(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[Status]:
        """One status per pod."""
        request = queue_pb2.PreEnqueueRequest(
            plugin=self._plugin,
            pods=codec.encode_queued_pods(pods, self._whole_pod),
            attachment_id=self.link.identity.attachment_id,
        )
        reply = await self._queue_call(calls.PRE_ENQUEUE, methods.PRE_ENQUEUE, request, deadline_s)
        return self._reader(calls.PRE_ENQUEUE).statuses(reply.statuses)

    async def sort_keys(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[bytes]:
        """One key per pod."""
        request = queue_pb2.SortKeysRequest(
            plugin=self._plugin,
            pods=codec.encode_queued_pods(pods, self._whole_pod),
            attachment_id=self.link.identity.attachment_id,
        )
        asked = (self._plugin, calls.SORT_KEYS.rpc)
        reply = await self.link.ask(methods.SORT_KEYS, request, asked, deadline_s)
        return list(reply.keys)

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod], deadline_s: float) -> list[bool]:
        """One hint per pod."""
        request = queue_pb2.QueueingHintsRequest(
            plugin=self._plugin,
            event=codec.encode_event(event),
            pods=codec.encode_pods(pods, self._whole_pod),
            attachment_id=self.link.identity.attachment_id,
        )
        reply = await self._queue_call(calls.QUEUEING_HINTS, methods.QUEUEING_HINTS, request, deadline_s)
        return list(reply.queue)

    # --- the scheduling cycle ------------------------------------------------------------------------

    async def pre_filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> PreFilterResult:
        """Over all nodes of the snapshot, with what the plugin answers ahead."""
        ascending, back = _ascending(nodes)
        candidates = codec.encode_candidates(ascending, self._mode)
        reply = await self._ask(
            calls.PRE_FILTER,
            cycle,
            methods.PRE_FILTER,
            scheduling_pb2.PreFilterRequest(candidates=candidates),
            deadline_s,
        )
        result = self._reader(calls.PRE_FILTER, ascending).pre_filter(reply)
        if back is None:
            return result
        verdicts, scores = result.eager_filter, result.eager_scores
        return replace(
            result,
            eager_filter=None if verdicts is None else verdicts.take(back),
            eager_scores=_in_order(scores, back),
        )

    async def filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> FilterResult:
        """Verdicts, and scores where they come along."""
        ascending, back = _ascending(nodes)
        candidates = codec.encode_candidates(ascending, self._mode)
        reply = await self._ask(
            calls.FILTER,
            cycle,
            methods.FILTER,
            scheduling_pb2.FilterRequest(candidates=candidates),
            deadline_s,
        )
        result = self._reader(calls.FILTER, ascending).filter(reply)
        if back is None:
            return result
        scores = _in_order(result.eager_scores, back)
        return FilterResult(result.verdicts.take(back), scores, result.skip_score)

    async def simulate_filter(self, cycle: CycleContext, scenarios: Scenarios, deadline_s: float) -> Verdicts:
        """One verdict per scenario. Batches over the agreed size are split; they count as one call."""
        messages = codec.encode_scenarios(scenarios, self._mode, self._whole_pod)
        ends_s = time.monotonic() + deadline_s
        limit = self.link.identity.max_message_bytes // 2
        parts: list[Verdicts] = []
        for batch in _batches(messages, limit):
            reply = await self._ask(
                calls.SIMULATE_FILTER,
                cycle,
                methods.SIMULATE_FILTER,
                scheduling_pb2.SimulateFilterRequest(scenarios=batch),
                max(ends_s - time.monotonic(), 0.0),
            )
            parts.append(self._reader(calls.SIMULATE_FILTER).simulate_filter(reply, len(batch)))
        if len(parts) == 1:
            return parts[0]
        return Verdicts.of([status for part in parts for status in part.to_list()])

    async def post_filter(
        self, cycle: CycleContext, rejections: NodeRejections, deadline_s: float
    ) -> PostFilterResult:
        """No node is left."""
        feed = self.link.feed
        groups, plugins = codec.encode_rejections(
            rejections,
            feed.node_names() if feed is not None else list(rejections.by_node),
            self._mode,
            feed.index_of if feed is not None else _no_index,
        )
        reply = await self._ask(
            calls.POST_FILTER,
            cycle,
            methods.POST_FILTER,
            scheduling_pb2.PostFilterRequest(rejected=groups, rejected_by=plugins),
            deadline_s,
        )
        return self._reader(calls.POST_FILTER).post_filter(reply)

    async def pre_score(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> PreScored:
        """Over the feasible nodes, with their scores where they come along."""
        ascending, back = _ascending(nodes)
        candidates = codec.encode_candidates(ascending, self._mode)
        reply = await self._ask(
            calls.PRE_SCORE,
            cycle,
            methods.PRE_SCORE,
            scheduling_pb2.PreScoreRequest(candidates=candidates),
            deadline_s,
        )
        result = self._reader(calls.PRE_SCORE, ascending).pre_score(reply)
        return result if back is None else PreScored(result.status, _in_order(result.scores, back))

    async def score(
        self, cycle: CycleContext, nodes: NodeTable, deadline_s: float
    ) -> NDArray[np.int64] | Status:
        """Raw scores; a Status is an error that the plugin itself reports."""
        ascending, back = _ascending(nodes)
        candidates = codec.encode_candidates(ascending, self._mode)
        reply = await self._ask(
            calls.SCORE,
            cycle,
            methods.SCORE,
            scheduling_pb2.ScoreRequest(candidates=candidates),
            deadline_s,
        )
        return self._scores(calls.SCORE, ascending, back, reply)

    async def normalize_score(
        self, cycle: CycleContext, scores: NDArray[np.int64], nodes: NodeTable, deadline_s: float
    ) -> NDArray[np.int64] | Status:
        """The plugin's own second step."""
        ascending, back = _ascending(nodes)
        if back is not None:
            forth = np.argsort(back)
            scores = scores[forth]
        candidates = codec.encode_candidates(ascending, self._mode)
        dense = codec.encode_scores(scores)
        reply = await self._ask(
            calls.NORMALIZE_SCORE,
            cycle,
            methods.NORMALIZE_SCORE,
            scheduling_pb2.NormalizeScoreRequest(candidates=candidates, scores=dense),
            deadline_s,
        )
        return self._scores(calls.NORMALIZE_SCORE, ascending, back, reply)

    def _scores(
        self,
        call: Call,
        ascending: NodeTable,
        back: NDArray[np.intp] | None,
        reply: Scored[scheduling_pb2.ScoreResponse] | Scored[scheduling_pb2.NormalizeScoreResponse],
    ) -> NDArray[np.int64] | Status:
        reader = self._reader(call, ascending)
        status = reader.status(reply.ctx)
        if not status.is_success:
            return status
        scores = reader.scores(reply.scores or b"")
        return scores if back is None else _in_order(scores, back)

    # --- the chosen node -----------------------------------------------------------------------------

    async def reserve(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Reserved:
        """Waits until earlier reservations of the pod are given back."""
        ends_s = time.monotonic() + deadline_s
        await self._outbox.settled(cycle.pod.uid, deadline_s)
        index = self._index_of(node_name)
        reply = await self._ask(
            calls.RESERVE,
            cycle,
            methods.RESERVE,
            scheduling_pb2.ReserveRequest(node_name=node_name, node_index=index),
            ends_s - time.monotonic(),
        )
        return self._reader(calls.RESERVE).reserve(reply)

    async def unreserve(self, cycle: CycleContext, node_name: str, reason: str, deadline_s: float) -> None:
        """Into the outbox, and out of it again within the deadline if all is well."""
        parcel = self._parcel(cycle, node_name, reason)
        await self._outbox.unreserve(parcel, deadline_s)

    async def permit(self, cycle: CycleContext, node_name: str, deadline_s: float) -> PermitResult | None:
        """None: no code."""
        index = self._index_of(node_name)
        reply = await self._ask(
            calls.PERMIT,
            cycle,
            methods.PERMIT,
            scheduling_pb2.PermitRequest(node_name=node_name, node_index=index),
            deadline_s,
        )
        return self._reader(calls.PERMIT).permit(reply)

    # --- the binding cycle ---------------------------------------------------------------------------

    async def pre_bind_pre_flight(
        self, cycle: CycleContext, node_name: str, deadline_s: float
    ) -> PreFlightResult:
        """Will PreBind do anything?"""
        reply = await self._ask_bind(
            calls.PRE_BIND_PRE_FLIGHT,
            cycle,
            methods.PRE_BIND_PRE_FLIGHT,
            scheduling_pb2.PreBindPreFlightRequest(node_name=node_name),
            deadline_s,
        )
        return self._reader(calls.PRE_BIND_PRE_FLIGHT).pre_flight(reply)

    async def pre_bind(
        self, cycle: CycleContext, node_name: str, patched: Sequence[PatchResult], deadline_s: float
    ) -> PreBindResult | None:
        """One round; None: no code. Who is asked again sees the objects as they are now."""
        rounds, ends_s = cycle.rounds.get(self._plugin, (1, 0.0))
        if rounds > 1:
            await self._freshen(ends_s)
            deadline_s = min(deadline_s, ends_s - time.monotonic())
        results = codec.encode_patched(patched)
        self.link.pre_binds_open += 1
        try:
            reply = await self._ask_bind(
                calls.PRE_BIND,
                cycle,
                methods.PRE_BIND,
                scheduling_pb2.PreBindRequest(node_name=node_name, round=rounds - 1, patched=results),
                deadline_s,
            )
        finally:
            self.link.pre_binds_open -= 1
        return self._reader(calls.PRE_BIND).pre_bind(reply)

    async def bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> BindResult | None:
        """None: no code."""
        reply = await self._ask_bind(
            calls.BIND,
            cycle,
            methods.BIND,
            scheduling_pb2.BindRequest(node_name=node_name),
            deadline_s,
        )
        return self._reader(calls.BIND).bind(reply)

    async def post_bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> None:
        """Into the outbox: it is sent in the background."""
        self._outbox.post_bind(self._parcel(cycle, node_name, ""))

    def end_cycle(self, cycle: CycleContext, outcome: CycleEnd) -> None:
        """Into the outbox: the next call carries it."""
        node_name = cycle.reservations.get(self._plugin) if outcome is CycleEnd.BOUND else None
        bound = None if node_name is None else self._parcel(cycle, node_name, "")
        self._outbox.end_cycle(cycle.cycle_id, outcome, bound)

    # --- how it is done ------------------------------------------------------------------------------

    async def _ask(
        self,
        call: Call,
        cycle: CycleContext,
        method: Method[R],
        request: Any,
        deadline_s: float,
    ) -> R:
        """One call of a cycle: sent, repaired and sent again if need be, its envelope taken in.

        `request` lacks its context alone.
        """
        ends_s = time.monotonic() + deadline_s
        ended = self._outbox.take_ended()
        delivered = False
        try:
            for repaired in (False, True):
                envelope = await self._contexts.write(
                    request.ctx, cycle, call, ends_s, ended, repaired=repaired
                )
                left_s = ends_s - time.monotonic()
                if left_s <= 0:
                    raise PluginTimeoutError(self._plugin, call.rpc, deadline_s)
                reply = await self.link.ask(method, request, (self._plugin, call.rpc), left_s)
                context: pb.ReplyContext = reply.ctx  # type: ignore[attr-defined]  # every reply has one
                if context.cycle_id != cycle.cycle_id:
                    raise PluginProtocolError(self._plugin, call.rpc, _not_of(context.cycle_id))
                if not context.needs:
                    self._contexts.received(envelope)
                    delivered = True
                    self._contexts.read(cycle, call, context)
                    return reply
                if not repaired:
                    self._contexts.repair(cycle, call, context)
                    request.ClearField("ctx")
            self.link.wants_full = True
            raise PluginProtocolError(self._plugin, call.rpc, "asked again for what it was just given")
        finally:
            if delivered:
                self._outbox.ended_told(ended)
            else:
                self._outbox.return_ended(ended)

    async def _freshen(self, ends_s: float) -> None:
        """Bring the instance's copy up to date: what a plugin waits for happens outside of cycles."""
        feed = self.link.feed
        if feed is None or not self._reads_objects:
            return
        await feed.refresh()
        # With a copy that could not be brought on the plugin just waits on.
        with contextlib.suppress(PluginError):
            await self.link.sync((self._plugin, calls.PRE_BIND.rpc), ends_s)

    async def _ask_bind(
        self,
        call: Call,
        cycle: CycleContext,
        method: Method[R],
        request: Any,
        deadline_s: float,
    ) -> R:
        """The same in the binding cycle, where only so many calls are open at once."""
        ends_s = time.monotonic() + deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                await self._slots.acquire()
        except TimeoutError as err:
            raise PluginTimeoutError(self._plugin, call.rpc, deadline_s) from err
        try:
            return await self._ask(call, cycle, method, request, ends_s - time.monotonic())
        finally:
            self._slots.release()

    async def _queue_call(self, call: Call, method: Method[R], request: Any, deadline_s: float) -> R:
        """A batch of the queue, with the state that a plugin with declared objects answers against."""
        ends_s = time.monotonic() + deadline_s
        asked = (self._plugin, call.rpc)
        feed = self.link.feed
        if feed is None or not self._reads_objects:
            return await self.link.ask(method, request, asked, deadline_s)
        for repaired in (False, True):
            delta = await self.link.delta_for_call(asked, ends_s)
            request.ClearField("delta")
            if delta is not None:
                request.delta.CopyFrom(delta)
            version = feed.version
            request.version.CopyFrom(wire.encode_version(version))
            try:
                reply = await self.link.ask(method, request, asked, max(ends_s - time.monotonic(), 0.0))
            except PluginStaleError:
                if repaired:
                    raise
                self.link.told(None)
                continue
            self.link.confirm(version)
            return reply
        raise InvariantError("a queue call is asked twice at most")

    @property
    def _reads_objects(self) -> bool:
        return any(need.resource for need in self.descriptor.needs)

    def _reader(self, call: Call, nodes: NodeTable | None = None) -> ReplyReader:
        return ReplyReader(self._plugin, call, self._mode, nodes, self._last_scores)

    def _index_of(self, node_name: str) -> int:
        """The node's slot in SNAPSHOT mode; 0, which is to leave it unset, in NAMES mode."""
        feed = self.link.feed
        index = None if self._mode is NodeMode.NAMES or feed is None else feed.index_of(node_name)
        return index or 0

    def _parcel(self, cycle: CycleContext, node_name: str, reason: str) -> Parcel:
        token = cycle.state(self._plugin).token
        return Parcel(cycle.cycle_id, cycle.pod.ref, node_name, token or b"", reason)


def _ascending(nodes: NodeTable) -> tuple[NodeTable, NDArray[np.intp] | None]:
    """(the rows by ascending slot, as the wire has them; the way back to the order given, if they differ)."""
    if nodes.is_ascending:
        return nodes, None
    order = np.argsort(nodes.slots, kind="stable")
    return nodes.take(order), np.argsort(order, kind="stable")


@overload
def _in_order(scores: NDArray[np.int64], back: NDArray[np.intp]) -> NDArray[np.int64]: ...
@overload
def _in_order(scores: NDArray[np.int64] | None, back: NDArray[np.intp]) -> NDArray[np.int64] | None: ...
def _in_order(scores: NDArray[np.int64] | None, back: NDArray[np.intp]) -> NDArray[np.int64] | None:
    """As the candidates were given; what has the wrong length is left for `validate` to refuse."""
    return scores if scores is None or len(scores) != len(back) else scores[back]


def _batches(
    messages: list[scheduling_pb2.Scenario], limit_bytes: int
) -> list[list[scheduling_pb2.Scenario]]:
    """The scenarios in runs below the limit; one that is larger stands alone."""
    batches: list[list[scheduling_pb2.Scenario]] = [[]]
    size = 0
    for message in messages:
        more = message.ByteSize() + 8
        if batches[-1] and size + more > limit_bytes:
            batches.append([])
            size = 0
        batches[-1].append(message)
        size += more
    return batches


def _not_of(cycle_id: str) -> str:
    if not cycle_id:
        return "did not name the cycle that it answers (ReplyContext.cycle_id)"
    return f"answered for the cycle {cycle_id[:64]!r}, which was not asked about"


def _no_index(_name: str) -> int | None:
    return None
