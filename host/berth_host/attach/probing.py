"""`Prober`: probes an active instance and updates its copy of the state until it is lost.

Run by `Attachment` while an instance is attached. An instance that does not answer its probes gets no calls,
but is not lost while its connection exists. A call that finds the instance unavailable wakes the keeper at
once, as does the end of a launched process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from berth_sdk.clocks import monotonic_s
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.wire.call_names import metadata_of

from berth_host.attach.interfaces import LostError
from berth_host.errors.plugins import PluginError
from berth_host.log import get_logger
from berth_host.rpc.served.grpc_errors import in_time, plugin_error, readable
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.statuses import cut, plain

PROBE_PERIOD_S: Final = 5.0
PROBE_S: Final = 2.0
PROBE_MISSES: Final = 3
TICK_S: Final = 1.0
"""Seconds between updates of the copy of an idle instance, or of one with a running PreBind. An instance is
idle after half of this time without calls, because two ticks may follow each other at once.
"""
SYNC_S: Final = 10.0
CHILD_END_S: Final = 1.0
_LOG = get_logger()


async def probe(link: InstanceLink, plugin: str) -> identity_pb2.ProbeResponse:
    """Send one probe and return the answer.

    Raises LostError if no instance or another one answers, and PluginError for a missed probe.
    """
    request = identity_pb2.ProbeRequest(attachment_id=link.identity.attachment_id)
    try:
        metadata = metadata_of(link.identity.attachment_id)
        answer = await in_time(link.identity_stub.Probe(request, timeout=PROBE_S, metadata=metadata), PROBE_S)
        reply = readable(answer, plugin, "Probe")
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.UNAVAILABLE:
            raise LostError(f"is gone ({err.details()})") from err
        if err.code() is grpc.StatusCode.PERMISSION_DENIED:
            raise LostError("was taken over: another host has attached to it since") from err
        raise plugin_error(err, plugin, "Probe", PROBE_S) from err
    if reply.instance_id != link.identity.instance_id:
        raise LostError(f"instance {reply.instance_id} answers in its place")
    return reply


async def watch_connection(channel: grpc.aio.Channel, trouble: asyncio.Event) -> None:
    """Set `trouble` whenever the connection is not ready; a process that ends closes it at once."""
    while (state := channel.get_state()) is not grpc.ChannelConnectivity.SHUTDOWN:
        if state is not grpc.ChannelConnectivity.READY:
            trouble.set()
        await channel.wait_for_state_change(state)


@dataclass(frozen=True, slots=True)
class Signals:
    """The events that wake a keeper.

    `trouble`: a call could not reach the instance. `stopping`: the host stops. `ended`: returns how the
    launched process ended, None without one. `renewal`: returns why the connection must end, empty if not.
    """

    trouble: asyncio.Event
    stopping: asyncio.Event
    ended: asyncio.Task[str] | None = None
    renewal: Callable[[], str] = lambda: ""


class Watched(Protocol):
    """The receiver of probe results. Implemented by `Standing`."""

    @property
    def next_trial_s(self) -> float | None:
        """When an extra probe is due (monotonic seconds); None for none."""
        ...

    def ready_changed(self, ready: bool, message: str) -> None:
        """Take the answer to a probe. `message`: the instance's text about its readiness."""
        ...

    def missed(self, why: str) -> None:
        """Take that `PROBE_MISSES` or more probes in a row were not answered."""
        ...


class Prober:
    """Probes one instance. `plugin`: a name for errors."""

    def __init__(
        self,
        link: InstanceLink,
        plugin: str,
        signals: Signals,
        watched: Watched,
    ) -> None:
        self._link = link
        self._plugin = plugin
        self._trouble = signals.trouble
        self._stopping = signals.stopping
        self._ended = signals.ended
        self._renewal = signals.renewal
        self._watched = watched
        self._misses = 0
        self._next_probe_s = monotonic_s() + PROBE_PERIOD_S
        self._calls_before = -1
        self._idle_since_s = 0.0

    async def run(self) -> str:
        """Watch the instance. Returns why the connection must end; empty when the host stops.

        Raises LostError when the instance is lost.
        """
        try:
            return await self._watch()
        except LostError as err:
            # The connection breaks shortly before the end of the process is known, which explains more.
            if self._ended is not None:
                await asyncio.wait({self._ended}, timeout=CHILD_END_S)
                if self._ended.done():
                    raise LostError(f"its process {self._ended.result()}") from err
            raise

    async def _watch(self) -> str:
        while not self._stopping.is_set():
            await self._something(min(max(self._due_s - monotonic_s(), 0.0), TICK_S))
            if self._ended is not None and self._ended.done():
                raise LostError(f"its process {self._ended.result()}")
            if self._trouble.is_set() or monotonic_s() >= self._due_s:
                self._trouble.clear()
                await self._check_up()
                if not self._trouble.is_set():
                    self._link.looked_at()
                if why := self._renewal():
                    return why
            await self.keep_in_step()
        return ""

    @property
    def _due_s(self) -> float:
        """When the next probe is due (monotonic seconds)."""
        trial_s = self._watched.next_trial_s
        return self._next_probe_s if trial_s is None else min(self._next_probe_s, trial_s)

    async def _something(self, timeout_s: float) -> None:
        """Wait for trouble, for the host's stop, for the end of the launched process, or for the timeout."""
        own = [asyncio.ensure_future(event.wait()) for event in (self._trouble, self._stopping)]
        waiting: set[asyncio.Future[Any]] = {*own}
        if self._ended is not None:
            waiting.add(self._ended)
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in own:
                future.cancel()

    async def _check_up(self) -> None:
        try:
            reply = await probe(self._link, self._plugin)
        except PluginError as err:
            self._misses += 1
            if self._misses >= PROBE_MISSES:
                self._watched.missed(f"did not answer {self._misses} probes: {err.detail}")
            self._next_probe_s = monotonic_s() + TICK_S
            return
        self._misses = 0
        self._next_probe_s = monotonic_s() + PROBE_PERIOD_S
        self._watched.ready_changed(reply.ready, plain(cut(reply.message)))

    async def keep_in_step(self) -> None:
        """Send state changes without a call, when the instance is idle or a PreBind is running."""
        link, feed = self._link, self._link.feed
        now_s = monotonic_s()
        if link.calls_made != self._calls_before:
            self._calls_before, self._idle_since_s = link.calls_made, now_s
        idle = now_s - self._idle_since_s >= TICK_S / 2
        if feed is None or self._misses or (link.held == feed.version and not link.wants_full):
            return
        if link.wants_full or link.pre_binds_open or idle:
            try:
                await link.sync((self._plugin, "SyncState"), monotonic_s() + SYNC_S)
            except PluginError as err:
                _LOG.warning("attachment.sync_failed", plugin=self._plugin, error=err.text)
