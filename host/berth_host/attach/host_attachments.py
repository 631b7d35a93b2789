"""`HostAttachments`: the attachments of one host, from its start to its stop.

`Attachments` keeps every place of BerthConfiguration attached. `HostAttachments` adds what belongs to a
running host: the periodic update of the snapshot for the copies, the terms as leader, Events, and the requeue
of pods when a plugin is attached again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Protocol

from berth_sdk.clocks import monotonic_s
from berth_sdk.kube_object import ObjectRef
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attach.attachments import Attachments
from berth_host.attach.configured_places import wanted_places
from berth_host.attach.events import AttachmentEvents
from berth_host.attach.interfaces import AttachSeams, HandleGrants, LiveCycles, LostError
from berth_host.attach.state import PlaceChange, ScopeChange, Swap
from berth_host.attach.state_feed import HostState
from berth_host.config.berth.configuration import BerthPlugin
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.errors.cluster import ClusterError
from berth_host.errors.plugins import PluginError, PluginLoadError
from berth_host.log import get_logger
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.internal_error import InternalError

if TYPE_CHECKING:  # brings gRPC
    from berth_host.attach.routes import PluginRoute

log = get_logger()
REFRESH_S: Final = 1.0
"""Seconds between updates of the snapshot for the copies, while no cycle updates it."""
FIRST_SYNC_S: Final = 60.0
"""Seconds for the first synchronisation of a copy."""


class UpdatedState(HostState, Protocol):
    """The snapshot, which can also be updated between two cycles."""

    def refresh_if_idle(self) -> None:
        """Update the snapshot unless a cycle holds it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeams:
    """The parts of the host that attachments use.

    `declare`: makes the cluster watch the resources that these plugins need; raises ClusterError. `grants`:
    permissions for HandleService; None: plugins get no way back. `recovered`: called with the name of a newly
    attached plugin, to requeue the pods that failed without it. `post_bound`: called with the name of a
    plugin and the bound pod of which the plugin was told. `stats`: returns the cost of each plugin, by name.
    """

    state: UpdatedState
    cycles: LiveCycles
    internal_error: InternalError
    declare: Callable[[Sequence[Descriptor]], Awaitable[None]]
    grants: HandleGrants | None
    events: AttachmentEvents
    recovered: Callable[[str], None]
    post_bound: Callable[[str, ObjectRef], None]
    stats: Callable[[], Mapping[str, PluginStats]]


class HostAttachments:
    """The attachments of one host: made -start-> attaching -stop-> closed."""

    def __init__(self, configuration: LoadedConfiguration, seams: HostSeams) -> None:
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
            broken=seams.internal_error.fail,
        )
        self.attached_places = Attachments(wanted_places(configuration), attach_seams)

    async def try_arguments(self, running: HostAttachments) -> None:
        """Have the served plugins check their new arguments while `running` still calls them.

        Raises PluginLoadError if a plugin refuses its arguments.
        """
        for refusal in await self.attached_places.refusals(running.attached_places):
            running._seams.events.refused(refusal)
            raise PluginLoadError(refusal.plugins, refusal.place, f"it {refusal.reason}")

    async def start(self, *, stands_by: bool = False) -> None:
        """Try to attach every place, and retry the failed ones in the background.

        `stands_by`: another host may lead; the places are attached by `begin_term`.
        """
        await self.attached_places.start(stands_by=stands_by)
        if self.attached_places:
            self._refresher = asyncio.ensure_future(self._refresh())
            self._refresher.add_done_callback(self._refresh_ended)

    async def synchronise(self) -> None:
        """Synchronise every copy with the snapshot; each may take FIRST_SYNC_S, longer than a call."""
        for attachment in self.attached_places.places:
            link = attachment.link
            if link is None or link.feed is None:
                continue
            try:
                first = attachment.served[0]
                await link.sync((first, "SyncState"), monotonic_s() + FIRST_SYNC_S)
            except PluginError as err:
                log.warning("attachment.sync_failed", place=attachment.place.title, error=err.text)

    async def begin_term(self) -> None:
        """Attach the places on standby; send the live reservations to the attached ones."""
        await self.attached_places.begin_term()

    def check_arguments(self) -> None:
        """Raise PluginLoadError if a served plugin refuses its arguments.

        Called at the end of the start, which then fails, as with in-process plugins. After the start the host
        only refuses the instance.
        """
        for attachment in self.attached_places.refusing_arguments():
            names = ", ".join(attachment.served)
            raise PluginLoadError(names, attachment.place.title, f"it {attachment.reason}")

    async def stop(self) -> None:
        """Close every attachment."""
        self._stopping = True
        if self._refresher is not None:
            self._refresher.cancel()
        await self.attached_places.stop()

    @property
    def restoring(self) -> bool:
        """True while a plugin that was lost a short time ago may still be attached again."""
        return self.attached_places.restoring

    @property
    def delivering(self) -> bool:
        """True while an attached plugin has not received an Unreserve or PostBind yet."""
        return self.attached_places.delivering

    def list_again(self, plugin: str) -> bool:
        """Send the list of its live reservations to a served plugin in the background, if it is attached: an
        instance that attaches later gets the list then. Return False for other plugins.
        """
        found = self.attached_places.plugins.get(plugin)
        if found is not None and found.active is not None:
            found.active.taken_up()
        return found is not None

    @property
    def recoveries(self) -> int:
        """The number of times that a plugin was attached again."""
        return self.attached_places.recoveries

    def reservations(self) -> dict[str, int]:
        """Return by plugin: the number of live reservations and of pending Unreserves."""
        return {
            name: len(self._seams.cycles.live(name))
            + len(self._seams.cycles.bound(name))
            + plugin.outbox.pending_unreserves
            for name, plugin in self.attached_places.plugins.items()
        }

    def unreserve_ages(self) -> dict[str, float]:
        """Return by plugin: the age in seconds of the oldest pending Unreserve; 0 if none is pending."""
        return {
            name: plugin.outbox.oldest_unreserve_s for name, plugin in self.attached_places.plugins.items()
        }

    def drifts(self) -> dict[str, int]:
        """Return by plugin: how often an instance dropped its copy of the state."""
        return {name: plugin.drifts for name, plugin in self.attached_places.plugins.items()}

    def route(self, plugin: BerthPlugin, profile: ResolvedProfile) -> PluginRoute:
        """Return the route of a plugin's client in one profile."""
        return self.attached_places.route(plugin.name, profile.scheduler_name)

    # --- AttachListener --------------------------------------------------------------------------

    def attached(self, plugin: str) -> None:
        """Requeue the pods that failed without the plugin. See AttachListener."""
        self._seams.recovered(plugin)

    def lost(self, plugin: str, reason: str) -> None:
        """Log the loss; the plugin's failure policies apply from now on. See AttachListener."""
        if not self._stopping:
            log.warning("plugin.lost", plugin=plugin, reason=reason)

    def post_bound(self, plugin: str, pod: ObjectRef) -> None:
        """Requeue pods if the bound pod is gone. See AttachListener."""
        self._seams.post_bound(plugin, pod)

    def swapped(self, swap: Swap) -> None:
        """Write an Event about the swap. See AttachListener."""
        self._seams.events.swapped(swap)

    def scope_changed(self, change: ScopeChange) -> None:
        """Write an Event about the change. See AttachListener."""
        self._seams.events.scope_changed(change)

    def place_changed(self, change: PlaceChange) -> None:
        """Write an Event about the change. See AttachListener."""
        if not self._stopping:
            self._seams.events.place_changed(change)

    async def _declare(self, descriptors: Sequence[Descriptor]) -> None:
        """Watch the resources that the plugins need. Raises LostError if the cluster does not list them."""
        try:
            await self._seams.declare(descriptors)
        except ClusterError as err:
            raise LostError(f"needs resources that cannot be listed: {err}") from err

    def _count(self, plugin: str, call: str, sent: int, received: int) -> None:
        stats = self._seams.stats().get(plugin)
        if stats is not None:
            stats.of(call).sent(sent, received)

    def _refresh_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (err := task.exception()) is not None:
            self._seams.internal_error.fail(err)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            self._seams.state.refresh_if_idle()
