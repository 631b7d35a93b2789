"""`Attachments`: every place of a configuration, kept attached. Made by `app`; clients get routes from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_host.attach.attachment import Attachment, AttachSeams, State
from berth_host.attach.routes import PluginRoute, RemotePlugin
from berth_host.attach.wanted import Place
from berth_host.rpc.remote.outbox import Outbox

RESTORING_S: Final = 60.0
"""Seconds that settling waits for a lost plugin."""
HOPEFUL_LOSSES: Final = 5
"""A plugin that was lost so often in a row, soon after it came, is not waited for any more. A pod is tried so
often, too, while nothing changes.
"""
FIRST_TRY_S: Final = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One place as it stands. `plugins`: those expected there; `since_s`: seconds in this state; `carrier`:
    how calls of scheduling cycles travel to its instance, empty without one. `unusable`: why plugins that are
    expected there cannot be used, by name.
    """

    place: str
    state: State
    reason: str
    plugins: tuple[str, ...]
    instance_id: str
    warnings: tuple[str, ...]
    unusable: Mapping[str, str]
    since_s: float
    synced_bytes: int
    carrier: str


class Attachments:
    """Attributes: plugins, by name; places, in the order of the configuration."""

    def __init__(self, places: Sequence[Place], seams: AttachSeams) -> None:
        self.plugins: dict[str, RemotePlugin] = {}
        self.recoveries = 0
        """How often a plugin came back, or came for the first time."""
        self._seams = seams
        self._listener = seams.listener
        self.places: list[Attachment] = []
        own = replace(seams, listener=self)
        for place in places:
            members = {wanted.name: RemotePlugin(wanted, Outbox(wanted.name)) for wanted in place.plugins}
            self.plugins |= members
            self.places.append(Attachment(place, members, own))

    # --- life ------------------------------------------------------------------------------------------

    async def start(self, patience_s: float = 0.0, *, stands_by: bool = False) -> None:
        """Attach everything. Returns once every place was tried, or after `patience_s` if that is later
        and something is still missing. Never fails: what is missing is retried for as long as it takes.
        `stands_by`: the host does not lead yet; no instance is configured before `begin_term`.
        """
        for attachment in self.places:
            attachment.start(stands_by=stands_by)
        await self._all([attachment.tried for attachment in self.places], FIRST_TRY_S)
        await self.settled(patience_s)

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every place is attached or refused; False if time runs out."""
        return await self._all([attachment.decided for attachment in self.places], timeout_s)

    async def stop(self) -> None:
        """Let every plugin go, and end the children."""
        await asyncio.gather(*(attachment.stop() for attachment in self.places))
        for plugin in self.plugins.values():
            await plugin.outbox.close()

    async def _all(self, events: Sequence[asyncio.Event], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                for event in events:
                    await event.wait()
        except TimeoutError:
            return False
        return True

    # --- questions of other parts ----------------------------------------------------------------------

    def route(self, plugin: str, scheduler_name: str) -> PluginRoute:
        """Where a client finds its plugin. Raises KeyError for one that is in no place."""
        return self.plugins[plugin].routes[scheduler_name]

    @property
    def restoring(self) -> bool:
        """Whether a plugin that was lost less than a minute ago may still come back, or has yet to be told
        something that it must know and does not refuse to hear.
        """
        return any(self._is_restoring(attachment) for attachment in self.places) or any(
            plugin.outbox.is_delivering and plugin.is_attached for plugin in self.plugins.values()
        )

    def _is_restoring(self, attachment: Attachment) -> bool:
        if not attachment.tried.is_set():
            return True
        lost_s = attachment.lost_s
        return lost_s is not None and _is_hopeful(attachment) and time.monotonic() - lost_s < RESTORING_S

    def confirmed_generation(self) -> int:
        """The oldest generation that some copy of the snapshot may still have; see `cache.Snapshot`."""
        epoch, newest = self._seams.state.version
        held = [
            attachment.link.oldest
            for attachment in self.places
            if attachment.link is not None and attachment.link.feed is not None
        ]
        return min(
            (version.generation for version in held if version is not None and version.epoch == epoch),
            default=newest,
        )

    def conditions(self) -> list[Condition]:
        """Every place, for people."""
        now_s = time.monotonic()
        return [
            Condition(
                place=attachment.place.title,
                state=attachment.state,
                reason=attachment.reason,
                plugins=tuple(wanted.name for wanted in attachment.place.plugins),
                instance_id=attachment.instance_id,
                warnings=attachment.warnings,
                unusable=attachment.unusable,
                since_s=now_s - attachment.since_s,
                synced_bytes=0 if attachment.link is None else attachment.link.synced_bytes,
                carrier="" if attachment.link is None else attachment.link.carrier,
            )
            for attachment in self.places
        ]

    async def begin_term(self) -> None:
        """The host leads from now on, under a new epoch: every instance hears which reservations live on."""
        terms = [asyncio.ensure_future(attachment.begin_term()) for attachment in self.places]
        if terms:
            done, late = await asyncio.wait(terms, timeout=FIRST_TRY_S)
            for term in late:
                term.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for term in done:
                term.result()

    # --- AttachListener --------------------------------------------------------------------------------

    def attached(self, plugin: str) -> None:
        """Count it and pass it on. It changes nothing if the plugin is lost each time that it comes."""
        own = (one for one in self.places if any(wanted.name == plugin for wanted in one.place.plugins))
        if all(_is_hopeful(attachment) for attachment in own):
            self.recoveries += 1
        self._listener.attached(plugin)

    def lost(self, plugin: str, reason: str) -> None:
        """Pass it on."""
        self._listener.lost(plugin, reason)


def _is_hopeful(attachment: Attachment) -> bool:
    return attachment.early_losses < HOPEFUL_LOSSES
