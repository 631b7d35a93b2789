"""Plugins in other processes, wired to the rest of the host. Made by `parts`.

`attach` keeps every place of BerthConfiguration attached; here it is given the snapshot to send, the way
back to hand out, and the queue to wake when a plugin comes back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.attachment_events import AttachmentEvents
from berth_host.app.late_parts import LateParts
from berth_host.app.queue_wiring import QueueWiring
from berth_host.attach.attachments import Attachments
from berth_host.attach.configure import HandleGrants
from berth_host.attach.keeper import LostError
from berth_host.attach.routes import PluginRoute
from berth_host.attach.seams import AttachSeams
from berth_host.attach.state import PlaceChange, Swap
from berth_host.attach.wanted import wanted_places
from berth_host.cache.snapshot import Snapshot
from berth_host.cache.snapshot_state import SnapshotState
from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.errors.cluster import ClusterError
from berth_host.errors.plugins import PluginError, PluginLoadError
from berth_host.log import get_logger
from berth_host.model.fate import Fate
from berth_host.scheduler.running_attempts import CyclesUnderWay

log = get_logger()
REFRESH_S: Final = 1.0
"""While no cycle moves the snapshot, it is brought up to date this often for the copies."""
FIRST_SYNC_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElsewhereSeams:
    """What plugins in other processes are wired to. `declare`: have the cluster hand over what these plugins
    need as well; raises ClusterError. `grants`: the way back. `events`: tells people what becomes of them.
    """

    state: SnapshotState
    snapshot: Snapshot
    cycles: CyclesUnderWay
    wiring: QueueWiring
    fate: Fate
    declare: Callable[[Iterable[Descriptor]], Awaitable[None]]
    grants: HandleGrants
    events: AttachmentEvents
    later: LateParts


class HostAttachments:
    """The host's attachments: `attach.Attachments`, the idle refresh, and the steps after a return."""

    def __init__(self, configuration: LoadedConfiguration, seams: ElsewhereSeams) -> None:
        self._seams = seams
        self._refresher: asyncio.Future[None] | None = None
        self._stopping = False
        attach_seams = AttachSeams(
            state=seams.state,
            listener=self,
            cycles=seams.cycles,
            grants=seams.grants,
            host_version=version("berth-host"),
            traffic=self._count,
            declare=self._declare,
            broken=seams.fate.fail,
        )
        self.attached_places = Attachments(wanted_places(configuration), attach_seams)
        if self.attached_places:
            seams.snapshot.confirmed_generation = self.attached_places.confirmed_generation

    async def try_arguments(self, running: HostAttachments) -> None:
        """Have plugins in other processes try their arguments while `running` still asks them.

        Raises PluginLoadError for arguments that one does not accept.
        """
        for refusal in await self.attached_places.refusals(running.attached_places):
            running._seams.events.refused(refusal)
            raise PluginLoadError(refusal.plugins, refusal.place, f"it {refusal.reason}")

    async def start(self, *, stands_by: bool = False) -> None:
        """Try every place once; missing ones are tried again in the background."""
        await self.attached_places.start(stands_by=stands_by)
        if self.attached_places:
            self._refresher = asyncio.ensure_future(self._refresh())
            self._refresher.add_done_callback(self._refresh_ended)

    async def synchronise(self) -> None:
        """Bring every copy to the snapshot, with more time than a call of a cycle has."""
        for attachment in self.attached_places.places:
            link = attachment.link
            if link is None or link.feed is None:
                continue
            try:
                first = attachment.served[0]
                await link.sync((first, "SyncState"), time.monotonic() + FIRST_SYNC_S)
            except PluginError as err:
                log.warning("attachment.sync_failed", place=attachment.place.title, error=err.text)

    async def begin_term(self) -> None:
        """Attach the places on standby; tell the others which reservations live on in the new epoch."""
        await self.attached_places.begin_term()

    def check_arguments(self) -> None:
        """At the end of the start: a plugin that does not accept its arguments ends it, as one in the host
        does. Later only the instance is refused. Raises PluginLoadError.
        """
        for attachment in self.attached_places.refusing_arguments():
            names = ", ".join(attachment.served)
            raise PluginLoadError(names, attachment.place.title, f"it {attachment.reason}")

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

    def reservations(self) -> dict[str, int]:
        """By plugin: reservations of pods that are being bound, and those it has yet to give back."""
        return {
            name: len(self._seams.cycles.live(name)) + plugin.outbox.pending_unreserves
            for name, plugin in self.attached_places.plugins.items()
        }

    def unreserve_ages(self) -> dict[str, float]:
        """By plugin: for how many seconds the oldest reservation has not been given back; 0: all were."""
        return {
            name: plugin.outbox.oldest_unreserve_s for name, plugin in self.attached_places.plugins.items()
        }

    def drifts(self) -> dict[str, int]:
        """By plugin: how often an instance dropped its copy of the state."""
        return {name: plugin.drifts for name, plugin in self.attached_places.plugins.items()}

    def route(self, plugin: BerthPlugin, profile: ResolvedProfile) -> PluginRoute:
        """Where the client of one profile finds its plugin."""
        return self.attached_places.route(plugin.name, profile.scheduler_name)

    # --- AttachListener --------------------------------------------------------------------------

    def attached(self, plugin: str) -> None:
        """A plugin can be asked: try the pods again that failed on its account."""
        queue = self._seams.later.queue
        for profile, events in self._seams.wiring.registrations_of(plugin):
            queue.register_events(profile, plugin, events)
        queue.plugin_recovered(plugin)

    def lost(self, plugin: str, reason: str) -> None:
        """A plugin cannot be asked; its points' policies apply from now on."""
        if not self._stopping:
            log.warning("plugin.lost", plugin=plugin, reason=reason)

    def swapped(self, swap: Swap) -> None:
        """Another instance of a plugin is asked."""
        self._seams.events.swapped(swap)

    def place_changed(self, change: PlaceChange) -> None:
        """A place has another state."""
        if not self._stopping:
            self._seams.events.place_changed(change)

    async def _declare(self, descriptors: Sequence[Descriptor]) -> None:
        """Raises LostError while the cluster does not hand over what the plugins need."""
        try:
            await self._seams.declare(descriptors)
        except ClusterError as err:
            raise LostError(f"needs what the cluster does not hand over: {err}") from err

    def _count(self, plugin: str, call: str, sent: int, received: int) -> None:
        stats = self._seams.later.clients.stats.get(plugin)
        if stats is not None:
            stats.of(call).sent(sent, received)

    def _refresh_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (err := task.exception()) is not None:
            self._seams.fate.fail(err)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            self._seams.state.refresh_if_idle()
