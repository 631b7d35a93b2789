"""`LinkSender`: the outbox's calls for one plugin at one instance."""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.wire import records as wire

from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc import calls
from berth_host.rpc.cycle import CycleEnd
from berth_host.rpc.remote.contexts import encode_ended
from berth_host.rpc.remote.link import InstanceLink
from berth_host.rpc.remote.outbox import Parcel


class LinkSender:
    """Sends the messages of the outbox. Raises PluginError, as the outbox expects."""

    def __init__(self, link: InstanceLink, plugin: str) -> None:
        self._link = link
        self._plugin = plugin
        self._offers_end_cycles = True

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        """The cycles that are done."""
        request = scheduling_pb2.UnreserveRequest(
            plugin=self._plugin,
            items=[
                scheduling_pb2.UnreserveItem(
                    cycle_id=item.cycle_id,
                    pod=wire.encode_ref(item.pod),
                    node_name=item.node_name,
                    plugin_token=item.token,
                    reason=item.reason,
                )
                for item in items
            ],
            attachment_id=self._link.identity.attachment_id,
        )
        reply = await self._link.ask(
            calls.UNRESERVE.method,
            request,
            (self._plugin, calls.UNRESERVE.rpc),
            calls.UNRESERVE.default_deadline_s,
        )
        return set(reply.done_cycle_ids)

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        """The pods are bound."""
        request = scheduling_pb2.PostBindRequest(
            plugin=self._plugin,
            items=[
                scheduling_pb2.PostBindItem(
                    cycle_id=item.cycle_id,
                    pod=wire.encode_ref(item.pod),
                    node_name=item.node_name,
                    plugin_token=item.token,
                )
                for item in items
            ],
            attachment_id=self._link.identity.attachment_id,
        )
        await self._link.ask(
            calls.POST_BIND.method,
            request,
            (self._plugin, calls.POST_BIND.rpc),
            calls.POST_BIND.default_deadline_s,
        )

    async def send_end_cycles(self, ended: Sequence[tuple[str, CycleEnd]]) -> None:
        """The cycles are over; an instance that does not offer the call is not asked again."""
        if not self._offers_end_cycles or not ended:
            return
        request = scheduling_pb2.EndCyclesRequest(
            plugin=self._plugin,
            ended=encode_ended(ended),
            attachment_id=self._link.identity.attachment_id,
        )
        try:
            await self._link.ask(
                calls.END_CYCLES.method,
                request,
                (self._plugin, calls.END_CYCLES.rpc),
                calls.END_CYCLES.default_deadline_s,
            )
        except PluginProtocolError:
            self._offers_end_cycles = False
