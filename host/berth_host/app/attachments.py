"""Plugins in other processes, wired to the rest of the host. Made by `Host`.

`attach` keeps every place of BerthConfiguration attached; here it is given the snapshot to send, the way
back to hand out, and the queue to wake when a plugin comes back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Final, Protocol

from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.tables import StateVersion

from berth_host.app.clients import Clients
from berth_host.app.live_cycles import CyclesOfHost, CyclesUnderWay
from berth_host.app.queue_wiring import QueueWiring
from berth_host.attach.attachment import AttachSeams
from berth_host.attach.attachments import Attachments
from berth_host.attach.configure import HandleGrants
from berth_host.attach.keeper import LostError
from berth_host.attach.routes import PluginRoute
from berth_host.attach.wanted import wanted_places
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.snapshot import Snapshot
from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.errors.cluster import ClusterError
from berth_host.errors.plugins import PluginError
from berth_host.log import get_logger
from berth_host.model.fate import Fate
from berth_host.model.state_changes import StateChanges, StateSelection
from berth_host.queue.scheduling_queue import SchedulingQueue

log = get_logger()
REFRESH_S: Final = 1.0
"""While no cycle moves the snapshot, it is brought up to date this often for the copies."""
FIRST_SYNC_S: Final = 60.0


class StateOfHost(Protocol):
    """The host's snapshot, and the way to bring it up to date."""

    snapshot: Snapshot

    async def refresh_snapshot(self) -> None:
        """Bring it up to date, when no cycle reads it."""
        ...


class HostWithPlugins(StateOfHost, CyclesOfHost, Protocol):
    """The parts of the host that plugins in other processes are wired to."""

    cache: Cache
    queue: SchedulingQueue
    wiring: QueueWiring
    clients: Clients
    fate: Fate

    async def declare(self, descriptors: Iterable[Descriptor]) -> None:
        """Have the cluster hand over what these plugins need as well. Raises ClusterError."""
        ...


class SnapshotState:
    """`attach.feed.HostState` over the host's snapshot."""

    def __init__(self, host: StateOfHost) -> None:
        self._host = host
        self._snapshot = host.snapshot
        self._log = ChangeLog(host.snapshot)

    @property
    def version(self) -> StateVersion:
        """The snapshot's version now."""
        return self._snapshot.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """What a holder of `base` lacks; None: not known."""
        return self._log.changes_since(base, selection)

    def index_of(self, node_name: str) -> int | None:
        """The slot of a node."""
        return self._snapshot.columns.index_of.get(node_name)

    def node_names(self) -> list[str]:
        """Every node."""
        return self._snapshot.nodes.names

    async def refresh(self) -> None:
        """Bring the snapshot up to date, when no cycle reads it."""
        await self._host.refresh_snapshot()


class HostAttachments:
    """The host's attachments: `attach.Attachments`, the idle refresh, and what a return sets going."""

    def __init__(
        self, configuration: LoadedConfiguration, host: HostWithPlugins, grants: HandleGrants | None
    ) -> None:
        self._host = host
        self._refresher: asyncio.Future[None] | None = None
        self._stopping = False
        seams = AttachSeams(
            state=SnapshotState(host),
            listener=self,
            cycles=CyclesUnderWay(host),
            grants=grants,
            host_version=version("berth-host"),
            traffic=self._count,
            declare=self._declare,
        )
        self.attached_places = Attachments(wanted_places(configuration), seams)
        if self.attached_places.places:
            host.snapshot.confirmed_generation = self.attached_places.confirmed_generation

    async def start(self, *, stands_by: bool = False) -> None:
        """Try every place once; what is missing then is retried in the background."""
        await self.attached_places.start(stands_by=stands_by)
        if self.attached_places.places:
            self._refresher = asyncio.ensure_future(self._refresh())
            self._refresher.add_done_callback(self._refresh_ended)

    async def synchronise(self) -> None:
        """Bring every copy to the snapshot, with more time than a call of a cycle has."""
        for attachment in self.attached_places.places:
            link = attachment.link
            if link is None or link.feed is None:
                continue
            try:
                first = attachment.place.plugins[0].name
                await link.sync((first, "SyncState"), time.monotonic() + FIRST_SYNC_S)
            except PluginError as err:
                log.warning("attachment.sync_failed", place=attachment.place.title, error=err.text)

    async def begin_term(self) -> None:
        """Attach to those that were stood by for; tell the others what is alive under the new epoch."""
        await self.attached_places.begin_term()

    async def stop(self) -> None:
        """Let every plugin go."""
        self._stopping = True
        if self._refresher is not None:
            self._refresher.cancel()
        await self.attached_places.stop()

    @property
    def restoring(self) -> bool:
        """Whether a plugin lost a short while ago may still come back."""
        return self.attached_places.restoring

    @property
    def recoveries(self) -> int:
        """How often a plugin came back."""
        return self.attached_places.recoveries

    def route(self, plugin: BerthPlugin, profile: ResolvedProfile) -> PluginRoute:
        """Where the client of one profile finds its plugin."""
        return self.attached_places.route(plugin.name, profile.scheduler_name)

    # --- AttachListener --------------------------------------------------------------------------

    def attached(self, plugin: str) -> None:
        """A plugin can be asked: try the pods again that failed on its account."""
        for profile, events in self._host.wiring.registrations_of(plugin):
            self._host.queue.register_events(profile, plugin, events)
        self._host.queue.plugin_recovered(plugin)

    def lost(self, plugin: str, reason: str) -> None:
        """A plugin cannot be asked; its points' policies apply from now on."""
        if not self._stopping:
            log.warning("plugin.lost", plugin=plugin, reason=reason)

    async def _declare(self, descriptors: Sequence[Descriptor]) -> None:
        """Raises LostError while the cluster does not hand over what the plugins need."""
        try:
            await self._host.declare(descriptors)
        except ClusterError as err:
            raise LostError(f"needs what the cluster does not hand over: {err}") from err

    def _count(self, plugin: str, call: str, sent: int, received: int) -> None:
        stats = self._host.clients.stats.get(plugin)
        if stats is not None:
            stats.of(call).sent(sent, received)

    def _refresh_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (err := task.exception()) is not None:
            self._host.fate.fail(err)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not self._host.snapshot.held:
                self._host.snapshot.update(self._host.cache)
