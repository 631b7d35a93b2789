"""`GrpcTransport`: one plugin of one profile behind an `InstanceLink`, over the contract.

Makes the calls of the table. The row's codec writes the request, `contexts` adds the context, and the codec
reads the reply. If the plugin reports that it lacks pod or state, the call is repeated with them, once and
within the same deadline. Called by the relay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, TypeVarTuple

from berth_sdk.clocks import monotonic_s
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kept.follows import Follows, by_fields
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod_fields import ALL_FIELDS
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire import records as wire
from berth_sdk.wire.scores import RepeatedScores

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginStaleError,
    PluginTimeoutError,
)
from berth_host.errors.state import InvariantError
from berth_host.rpc.call import AnyCall, Call, Lane
from berth_host.rpc.calls import UNRESERVE
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.contexts import ContextWriter
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.outbox import Outbox, Sender
from berth_host.rpc.served.replies import ReplyReader
from berth_host.rpc.served.requests import RequestWriter, Written
from berth_host.rpc.served.reserve_gate import ReserveGate
from berth_host.tracing.live_spans import RUNNING

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
_LISTED: Final = frozenset({ExtensionPoint.RESERVE, ExtensionPoint.PERMIT})
DEFAULT_CONCURRENCY: Final = 64
"""The number of concurrent binding-cycle calls of a plugin that does not set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtInstance:
    """The parts that the transports of one plugin at one instance share. There is one transport per profile.

    `slots`: for binding-cycle calls. `conduct` None: every call is made. `sender`: the outbox's way to this
    instance; None: the outbox sends only to the active instance.
    """

    slots: asyncio.Semaphore | None = None
    conduct: FailureRecord | None = None
    sender: Sender | None = None
    gate: ReserveGate = field(default_factory=ReserveGate)


class GrpcTransport:
    """The transport to one plugin of one profile at one instance."""

    def __init__(
        self,
        link: InstanceLink,
        descriptor: Descriptor,
        profile: str,
        outbox: Outbox,
        shared: AtInstance | None = None,
    ) -> None:
        """`shared` None: no other transport shares anything with this one."""
        shared = shared or AtInstance()
        self.link = link
        self.conduct = shared.conduct
        self.codes = link.codes
        self.descriptor = descriptor
        sign, sign_spec = by_fields(ALL_FIELDS if descriptor.sign_fields is None else descriptor.sign_fields)
        self.follows = Follows(
            descriptor.name,
            descriptor.depends_on,
            descriptor.needs,
            link.feed,
            sign,
            sign_spec,
            reads=descriptor.reads,
        )
        self._plugin = descriptor.name
        self._mode = descriptor.node_mode
        self._writer = RequestWriter(link, descriptor)
        self._contexts = ContextWriter(link, descriptor, profile)
        self._outbox = outbox
        self._sender = shared.sender
        self._gate = shared.gate
        self._last_scores = RepeatedScores()
        self._slots = shared.slots or asyncio.Semaphore(descriptor.max_concurrency or DEFAULT_CONCURRENCY)

    @property
    def is_open(self) -> bool:
        """True while its instance is attached."""
        return self.link.is_open

    async def is_lost(self, within_s: float) -> bool:
        """Return True if its instance is gone, after a call that did not reach it."""
        return await self.link.is_lost(within_s)

    def end_cycle(self, cycle: CycleRecord, outcome: CycleEnd) -> None:
        """Put the end of a cycle into the outbox; the next call carries it.

        An instance knows nothing of a cycle for which kept answers made all calls needless.
        """
        if not cycle.part(self._plugin).is_known:
            return
        node_name = cycle.part(self._plugin).reserved_node if outcome is CycleEnd.BOUND else None
        bound = None if node_name is None else self._writer.parcel(cycle, node_name)
        anchor = None if cycle.trace is None else cycle.trace.anchor
        self._outbox.end_cycle(cycle.cycle_id, outcome, bound, self._sender, anchor)
        if cycle.continues:
            # No later call may have told the instance the new id.
            self._outbox.end_cycle(cycle.continues, CycleEnd.ABORTED, None, self._sender)

    async def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        deadline_s: float,
    ) -> Raw:
        """Make the call and return the plugin's raw answer."""
        asked_in = cycle
        while asked_in is not None:  # the instance keeps states of the cycles that this one belongs to
            asked_in.part(self._plugin).is_known = True
            asked_in = asked_in.parent
        if cycle is None:
            request = CODECS[call.rpc].write(self._writer, None, args).message
            answers: Any = await self._ask_batch(call, request, deadline_s)
            raw: Raw = answers
            return raw
        if call.lane is Lane.OUTBOX:
            told: Raw = await self._post(call, cycle, args, deadline_s)
            return told
        ends_s = monotonic_s() + deadline_s
        if call.after_outbox:
            cycle.part(self._plugin).never_asked_to_reserve = True
            await self._outbox.settled(cycle.subject.uid, deadline_s)
            cycle.part(self._plugin).never_asked_to_reserve = False
            deadline_s = ends_s - monotonic_s()
        if call.point in _LISTED:
            return await self._ask_listed(call, cycle, args, deadline_s)
        if call.join is None:
            written = CODECS[call.rpc].write(self._writer, cycle, args)
            return await self._ask_written(call, cycle, written, deadline_s)
        parts: list[Raw] = []
        for part in CODECS[call.rpc].write_parts(self._writer, cycle, args):
            left_s = max(ends_s - monotonic_s(), 0.0)
            parts.append(await self._ask_written(call, cycle, part, left_s))
        return parts[0] if len(parts) == 1 else call.join(parts)

    async def _post(self, call: AnyCall, cycle: CycleRecord, args: Sequence[Any], deadline_s: float) -> Any:
        """Put an Unreserve or PostBind into the outbox."""
        parcel = self._writer.parcel(cycle, *args)
        parcel.own = self._sender
        if call is UNRESERVE:
            # The call waits for the acknowledgement until its deadline; the outbox goes on after that.
            await self._outbox.unreserve(parcel, deadline_s)
        else:
            self._outbox.post_bind(parcel)

    # --- how it is done ------------------------------------------------------------------------------

    async def _ask_listed(
        self, call: Call[*Args, Raw, Any], cycle: CycleRecord, args: tuple[*Args], deadline_s: float
    ) -> Raw:
        """Make a Reserve or Permit, after which Reconcile lists the cycle."""
        if not self._gate.is_open:
            ends_s = monotonic_s() + deadline_s
            try:
                async with asyncio.timeout(deadline_s):
                    await self._gate.opened()
            except TimeoutError as err:
                raise PluginTimeoutError(self._plugin, call.rpc, deadline_s) from err
            deadline_s = ends_s - monotonic_s()
        with self._gate.calling():
            written = CODECS[call.rpc].write(self._writer, cycle, args)
            return await self._ask_written(call, cycle, written, deadline_s)

    async def _ask_written(
        self, call: Call[*Args, Raw, Any], cycle: CycleRecord, written: Written, deadline_s: float
    ) -> Raw:
        if call.in_rounds:
            reply = await self._ask_round(call, cycle, written.request, deadline_s)
        elif call.lane is Lane.BINDING:
            reply = await self._ask_bind(call, cycle, written.request, deadline_s)
        else:
            reply = await self._ask_cycle(call, cycle, written.request, deadline_s)
        reader = ReplyReader(
            self._plugin,
            call.rpc,
            self._mode,
            written.nodes,
            self._last_scores,
            written.back,
            written.count,
            self.codes,
        )
        raw: Raw = CODECS[call.rpc].read(reader, reply)
        return raw

    async def _ask_cycle(self, call: AnyCall, cycle: CycleRecord, request: Any, deadline_s: float) -> Any:
        """Make one call of a cycle and take in the context of its reply. If the plugin lacks pod or state,
        repair that and make the call again, once.

        `request`: complete but for its context.
        """
        ends_s = monotonic_s() + deadline_s
        asked, method = (self._plugin, call.rpc), CODECS[call.rpc].method
        ended = self._outbox.take_ended(self._sender)
        delivered = False
        try:
            for repaired in (False, True):
                envelope = await self._contexts.write(
                    request.ctx, cycle, call, ends_s, ended, repaired=repaired
                )
                if ends_s <= monotonic_s():
                    raise PluginTimeoutError(self._plugin, call.rpc, deadline_s)
                left_s = max(ends_s - monotonic_s(), 0.0)
                if cycle.trace is None:
                    reply = await self.link.ask(method, request, asked, left_s, "", request.ctx)
                else:
                    with cycle.trace.request(self._plugin, call.rpc) as traceparent:
                        request.ctx.traceparent = traceparent
                        reply = await self.link.ask(method, request, asked, left_s, traceparent, request.ctx)
                context: pb.ReplyContext = reply.ctx
                if context.cycle_id != cycle.cycle_id:
                    raise PluginProtocolError(self._plugin, call.rpc, _not_of(context.cycle_id))
                if not context.missing:
                    self._contexts.received(cycle, envelope)
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

    async def _freshen(self, call: AnyCall, ends_s: float) -> None:
        """Update the instance's copy, because a plugin may wait for changes outside of cycles."""
        feed = self.link.feed
        if feed is None or not self._reads_objects:
            return
        await feed.refresh()
        # If the copy cannot be updated, the plugin waits on.
        with contextlib.suppress(PluginError):
            await self.link.sync((self._plugin, call.rpc), ends_s)

    async def _ask_round(self, call: AnyCall, cycle: CycleRecord, request: Any, deadline_s: float) -> Any:
        """Make one round of a call in the binding cycle. In a later round the plugin reads the objects as
        they are now.
        """
        part = cycle.part(self._plugin)
        if part.rounds > 1:
            await self._freshen(call, part.rounds_end_s)
            deadline_s = min(deadline_s, part.rounds_end_s - monotonic_s())
        self.link.pre_binds_open += 1
        try:
            return await self._ask_bind(call, cycle, request, deadline_s)
        finally:
            self.link.pre_binds_open -= 1

    async def _ask_bind(self, call: AnyCall, cycle: CycleRecord, request: Any, deadline_s: float) -> Any:
        """Make a call of the binding cycle, after waiting for a free slot."""
        ends_s = monotonic_s() + deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                await self._slots.acquire()
        except TimeoutError as err:
            raise PluginTimeoutError(self._plugin, call.rpc, deadline_s) from err
        try:
            return await self._ask_cycle(call, cycle, request, ends_s - monotonic_s())
        finally:
            self._slots.release()

    async def _ask_batch(self, call: Call[*Args, Raw, Any], request: Any, deadline_s: float) -> Any:
        """Make the call about a batch of pods, in several requests if one would be too large."""
        ends_s = monotonic_s() + deadline_s
        answers: list[Any] = []
        runs = self.link.in_runs(request.pods)
        for run in runs:
            part = request
            if len(runs) > 1:
                part = type(request)()
                part.CopyFrom(request)
                del part.pods[:]
                part.pods.extend(run)
            left_s = max(ends_s - monotonic_s(), 0.0)
            running = RUNNING.get()
            if running is None:
                reply = await self._ask_queue(call, part, left_s)
            else:
                with running.request(self._plugin, CODECS[call.rpc].method.name) as traceparent:
                    reply = await self._ask_queue(call, part, left_s, traceparent)
            answers += CODECS[call.rpc].read(
                ReplyReader(self._plugin, call.rpc, self._mode, codes=self.codes), reply
            )
        return answers

    async def _ask_queue(self, call: AnyCall, request: Any, deadline_s: float, traceparent: str = "") -> Any:
        """Make a call about a batch of the queue, with the state for a plugin that declared objects.

        `traceparent`: of a traced call.
        """
        ends_s = monotonic_s() + deadline_s
        asked = (self._plugin, call.rpc)
        feed = self.link.feed
        if feed is None or not self._reads_objects or call.stateless:
            return await self.link.ask(CODECS[call.rpc].method, request, asked, deadline_s, traceparent)
        for repaired in (False, True):
            delta = await self.link.delta_for_call(asked, ends_s)
            request.ClearField("delta")
            if delta is not None:
                request.delta.CopyFrom(delta)
            version = feed.version
            request.version.CopyFrom(wire.encode_version(version))
            try:
                left_s = max(ends_s - monotonic_s(), 0.0)
                reply = await self.link.ask(
                    CODECS[call.rpc].method, request, asked, left_s, traceparent, request
                )
            except PluginStaleError:
                if repaired:
                    raise
                if self.link.held == version:
                    self.link.told(None)
                else:
                    # Calls that overlap carry deltas from one base, as the trials of a group's cycle move
                    # the snapshot. SyncState tells which version the copy has, or that it was dropped.
                    await self.link.sync(asked, ends_s)
                continue
            self.link.confirm(version)
            return reply
        raise InvariantError("a queue call is asked twice at most")

    @property
    def _reads_objects(self) -> bool:
        return any(need.resource for need in self.descriptor.needs)


def _not_of(cycle_id: str) -> str:
    if not cycle_id:
        return "did not name the cycle that it answers (ReplyContext.cycle_id)"
    return f"answered for the cycle {cycle_id[:64]!r}, which was not asked about"
