"""`LinkSender`: the outbox's calls for one plugin at one instance, with this instance's deadlines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.wire import records as wire
from berth_sdk.wire.groups import encode_trial
from google.protobuf.message import Message

from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc import calls
from berth_host.rpc.call import AnyCall
from berth_host.rpc.call_rules import CallRule
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.contexts import encode_ended
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.outbox import Parcel
from berth_host.tracing.attempt_trace import Anchor


class LinkSender:
    """The sender of the outbox's messages to one instance. Its methods raise PluginError."""

    def __init__(
        self,
        link: InstanceLink,
        plugin: str,
        conduct: FailureRecord | None = None,
        rules: Mapping[str, CallRule] | None = None,
        points: Collection[ExtensionPoint] | None = None,
    ) -> None:
        """`rules`: by RPC; None: the defaults. `conduct` None: messages are always sent. `points`: the
        points that the instance serves; None: all.
        """
        self._link = link
        self._plugin = plugin
        self._conduct = conduct
        self._rules = rules or {}
        self._points = frozenset(ExtensionPoint) if points is None else frozenset(points)
        self._offers_end_cycles = True

    @property
    def is_there(self) -> bool:
        """True while the instance is attached, answers its probes and is not in quarantine."""
        conduct = self._conduct
        return self._link.is_open and (conduct is None or not (conduct.quarantine or conduct.silent))

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        """Send Unreserve; return the cycles that are done: all, if the instance is not at Reserve."""
        if calls.UNRESERVE.point not in self._points:
            return {item.cycle_id for item in items}
        done: set[str] = set()
        for run in self._link.in_runs(map(_unreserve_item, items)):
            request = scheduling_pb2.UnreserveRequest(
                plugin=self._plugin, items=run, attachment_id=self._link.identity.attachment_id
            )
            reply = await self._ask(calls.UNRESERVE, request, _anchors(items))
            done.update(reply.done_cycle_ids)
        return done

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        """Send PostBind, if the instance is at that point."""
        if calls.POST_BIND.point not in self._points:
            return
        for run in self._link.in_runs(map(_post_bind_item, items)):
            request = scheduling_pb2.PostBindRequest(
                plugin=self._plugin, items=run, attachment_id=self._link.identity.attachment_id
            )
            await self._ask(calls.POST_BIND, request, _anchors(items))

    async def send_end_cycles(
        self, ended: Sequence[tuple[str, CycleEnd]], anchors: Sequence[Anchor] = ()
    ) -> None:
        """Send the ends of cycles; an instance that does not have the call is not called again."""
        if not self._offers_end_cycles or not ended:
            return
        try:
            for run in self._link.in_runs(encode_ended(ended)):
                request = scheduling_pb2.EndCyclesRequest(
                    plugin=self._plugin, ended=run, attachment_id=self._link.identity.attachment_id
                )
                await self._ask(calls.END_CYCLES, request, anchors)
        except PluginProtocolError:
            self._offers_end_cycles = False

    async def _ask(self, call: AnyCall, request: Message, anchors: Sequence[Anchor]) -> Any:
        """Make the call, with a span if it is about traced attempts (`anchors`)."""
        rule = self._rules.get(call.rpc)
        deadline_s = call.default_deadline_s if rule is None else rule.deadline_s
        method, asked = CODECS[call.rpc].method, (self._plugin, call.rpc)
        if not anchors:
            return await self._link.ask(method, request, asked, deadline_s)
        first, *others = anchors
        with first.request(self._plugin, method.name, others) as traceparent:
            return await self._link.ask(method, request, asked, deadline_s, traceparent)


def _anchors(items: Sequence[Parcel]) -> list[Anchor]:
    return [item.anchor for item in items if item.anchor is not None]


def _unreserve_item(item: Parcel) -> scheduling_pb2.UnreserveItem:
    return scheduling_pb2.UnreserveItem(
        cycle_id=item.cycle_id,
        pod=wire.encode_ref(item.pod),
        node_name=item.node_name,
        plugin_token=item.token,
        reason=item.reason,
        trial=None if item.trial is None else encode_trial(item.trial),
        profile=item.profile,
    )


def _post_bind_item(item: Parcel) -> scheduling_pb2.PostBindItem:
    return scheduling_pb2.PostBindItem(
        cycle_id=item.cycle_id,
        pod=wire.encode_ref(item.pod),
        node_name=item.node_name,
        plugin_token=item.token,
        profile=item.profile,
    )
