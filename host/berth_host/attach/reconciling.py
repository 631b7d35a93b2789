"""Reconcile: sends the live reservations and waits to an instance before its first cycle.

Called by `Attachment` while SYNCING, and by `Standing` when an instance replaces another one. Cycles that the
instance knows continue with it; all others are aborted. While another instance is attached, cycles stay with
that one. The list replaces the Unreserve calls that an outbox still had to deliver.
Source: the contract's state.proto; failures 9, 10, 11 and 15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire import records as wire
from berth_sdk.wire.groups import encode_trial

from berth_host.attach.interfaces import LiveCycle, LiveCycles, LostError
from berth_host.attach.routes import AttachedPlugin
from berth_host.errors.plugins import PluginError, PluginProtocolError, PluginUnavailableError
from berth_host.log import get_logger
from berth_host.rpc.served.grpc_errors import is_unimplemented
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.outbox import Parcel

RECONCILE_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 2.0
_CALL: Final = "Reconcile"
_METHOD: Final = f"berth.plugin.v1.StateService/{_CALL}"
_POINTS: Final = frozenset({ExtensionPoint.RESERVE, ExtensionPoint.PERMIT})
_LOG = get_logger()


class TakenUp:
    """An instance's answers to Reconcile, by plugin. `adopt` applies them when the instance is active."""

    def __init__(self, cycles: LiveCycles, host_epoch: int) -> None:
        self._cycles = cycles
        self._epoch = host_epoch
        self._taken: dict[str, list[LiveCycle]] = {}

    async def reconcile(
        self, link: InstanceLink, plugin: AttachedPlugin, descriptor: Descriptor, ends_s: float
    ) -> None:
        """Call Reconcile until it succeeds. Raises LostError after `ends_s` (monotonic seconds)."""
        if not _POINTS & set(descriptor.points):
            self._taken[plugin.name] = []
            return
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._once(link, plugin)
                return
            except PluginUnavailableError as err:
                raise LostError(err.detail) from err
            except PluginError as err:
                if is_unimplemented(err):
                    self._taken[plugin.name] = []
                    return  # Without Reconcile the old instance's cycles fail at their next call.
                if monotonic_s() + pause_s > ends_s:
                    raise LostError(f"did not reconcile its live reservations: {err.text}") from err
                _LOG.warning("attachment.not_reconciled", plugin=plugin.name, error=err.text)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _once(self, link: InstanceLink, plugin: AttachedPlugin) -> None:
        live = {item.cycle.cycle_id: item for item in self._cycles.live(plugin.name)}
        held = {item.cycle.cycle_id: item for item in self._cycles.bound(plugin.name)}
        live_or_held = {**held, **live}
        bound = [parcel for parcel in plugin.outbox.bound_untold() if parcel.cycle_id not in live_or_held]
        given_back = plugin.outbox.given_back()
        # An attempt lasts longer than its PostBind. A new instance gets no second PostBind, and would keep
        # the reservation.
        lasting = [item for key, item in live_or_held.items() if not plugin.outbox.was_post_bound(key)]
        listed = [*(_encode(plugin.name, item) for item in lasting), *map(_encode_bound, bound)]
        pages = [
            state_pb2.ReconcileRequest(
                plugin=plugin.name,
                host_epoch=self._epoch,
                attachment_id=link.identity.attachment_id,
                sequence=number,
                live=run,
            )
            for number, run in enumerate(link.in_runs(listed))
        ]
        pages[-1].last = True
        asked = (plugin.name, _CALL)
        anchors = [parcel.anchor for parcel in bound if parcel.anchor is not None]
        anchors += [item.cycle.trace.anchor for item in lasting if item.cycle.trace is not None]
        if anchors:
            with anchors[0].request(plugin.name, _METHOD, anchors[1:]) as traceparent:
                reply = await link.reconcile(pages, asked, RECONCILE_S, traceparent)
        else:
            reply = await link.reconcile(pages, asked, RECONCILE_S)
        unknown = set(reply.unknown_cycle_ids)
        if not unknown <= {item.cycle_id for item in listed}:
            raise PluginProtocolError(*asked, "named cycles that it was not asked about")
        plugin.outbox.supersede(given_back)
        if any(offer.instance_id != link.identity.instance_id for offer in plugin.offers):
            return
        self._cycles.lost(plugin.name, [item for key, item in live.items() if key in unknown])
        # The end of a held cycle goes to the new instance, also one that it does not know.
        taken = [item for key, item in live.items() if key not in unknown]
        self._taken[plugin.name] = [*taken, *(item for key, item in held.items() if key not in live)]
        _LOG.info(
            "plugin.reconciled",
            plugin=plugin.name,
            live=len(listed),
            unknown=len(reply.unknown_cycle_ids),
        )

    def adopt(self, plugin: str, transports: Mapping[str, GrpcTransport]) -> bool:
        """Route the calls of the taken cycles to the new instance.

        Returns False if there is no answer to apply, because the cycles belonged to another instance when
        Reconcile was called.
        """
        taken = self._taken.pop(plugin, None)
        for item in taken or ():
            transport = transports.get(item.cycle.profile)
            if transport is not None:
                item.cycle.part(plugin).instance = transport
        return taken is not None


def _encode(plugin: str, item: LiveCycle) -> state_pb2.LiveReservation:
    cycle = item.cycle
    # A trial has no chosen node yet.
    node_name = cycle.node_name or cycle.part(plugin).reserved_node or ""
    message = state_pb2.LiveReservation(
        cycle_id=cycle.cycle_id,
        pod=wire.encode_ref(cycle.pod.ref),
        node_name=node_name,
        plugin_token=cycle.state(plugin).token or b"",
        profile=cycle.profile,
    )
    if cycle.trial is not None:
        message.trial.CopyFrom(encode_trial(cycle.trial))
    if item.permit_deadline_s is not None:
        message.waiting_on_permit = True
        message.permit_deadline.CopyFrom(wire.encode_time(item.permit_deadline_s))
    return message


def _encode_bound(parcel: Parcel) -> state_pb2.LiveReservation:
    return state_pb2.LiveReservation(
        cycle_id=parcel.cycle_id,
        pod=wire.encode_ref(parcel.pod),
        node_name=parcel.node_name,
        plugin_token=parcel.token,
        profile=parcel.profile,
    )
