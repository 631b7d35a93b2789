"""`Attachments`: the attachments of all places of a configuration. Made by `host_attachments`; clients get
routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.kube_object import ObjectRef

from berth_host.attach.configured_places import Place, WantedPlugin
from berth_host.attach.interfaces import AttachSeams
from berth_host.attach.state import PlaceChange, Refusal, ScopeChange, State, Swap
from berth_host.errors.state import InvariantError
from berth_host.rpc.breaker import BreakerState

# These bring gRPC, which a host without places never imports.
if TYPE_CHECKING:
    from berth_host.attach.attached_instance import Standing
    from berth_host.attach.attachment import Attachment
    from berth_host.attach.folder import SocketFolder
    from berth_host.attach.routes import AttachedPlugin, PluginRoute

RESTORING_S: Final = 60.0
"""Seconds for which a lost plugin may still come back; settling waits that long."""
HOPEFUL_LOSSES: Final = 5
"""The number of losses in a row, soon after attaching, from which on a plugin is not waited for."""
FIRST_TRY_S: Final = 45.0
"""The most seconds that `start` waits until every place was tried once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circuit:
    """An open or half-open circuit breaker of a plugin at an extension point (`preBind`)."""

    plugin: str
    point: str
    state: BreakerState
    last_failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition of one place.

    `plugins`: those expected there. `since_s`: seconds in this state. `carrier`: the carrier of scheduling
    cycles' calls, empty without an instance. `unusable`: why plugins that are expected there cannot be used,
    by name. `circuits`: the circuit breakers that are not closed. `contract`: the version of the contract
    that host and instance agreed on, `MAJOR.MINOR`; empty without an instance. `features`: the optional
    features of the contract that both support.
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
    circuits: tuple[Circuit, ...] = ()
    contract: str = ""
    features: tuple[str, ...] = ()


class Attachments:
    """All attachments of a configuration. Attributes: plugins, by name.

    At most one of the `places` is a folder of sockets (`Place.is_open`); each socket found in that folder
    becomes a place of its own.
    """

    def __init__(self, places: Sequence[Place], seams: AttachSeams) -> None:
        self.plugins: dict[str, AttachedPlugin] = {}
        self._wanted = tuple(places)
        self.recoveries = 0
        """The number of times that a plugin was attached."""
        self._seams = replace(seams, listener=self, holder=self._holder)
        self._listener = seams.listener
        self._fixed: list[Attachment] = []
        self.folder: SocketFolder | None = None
        self._folder_place: Place | None = None
        self._stands_by = False
        for place in places:
            self._add(place)

    def _add(self, place: Place) -> None:
        from berth_host.attach.attachment import Attachment
        from berth_host.attach.dialing import socket_path
        from berth_host.attach.folder import SocketFolder

        members = {wanted.name: self._plugin(wanted) for wanted in place.plugins}
        self.plugins |= members
        if place.is_open:
            self._folder_place = place
            self.folder = SocketFolder(socket_path(place.endpoint), self._attach_in_folder)
        else:
            self._fixed.append(Attachment(place, members, self._seams))

    def _plugin(self, wanted: WantedPlugin) -> AttachedPlugin:
        from berth_host.attach.routes import AttachedPlugin
        from berth_host.rpc.served.outbox import Outbox

        outbox = Outbox(wanted.name, post_bound=lambda pod: self.post_bound(wanted.name, pod))
        return AttachedPlugin(wanted, outbox, self)

    @property
    def places(self) -> list[Attachment]:
        """The attachments: those of the configuration in its order, then those found in the folder."""
        return [*self._fixed, *(() if self.folder is None else self.folder.members)]

    def __bool__(self) -> bool:
        """Return True if there is a place to attach to, or a folder in which one may appear."""
        return bool(self._fixed) or self.folder is not None

    # --- life ------------------------------------------------------------------------------------------

    async def refusals(self, running: Attachments) -> list[Refusal]:
        """Ask the instances, before `start`, to try the arguments that differ from those of `running`.

        Returns the refusals.
        """
        if not self._wanted:
            return []
        from berth_host.attach.argument_check import changed_places, try_place

        places = changed_places(self._wanted, running._wanted)
        found = await asyncio.gather(*(try_place(place, self._seams) for place in places))
        return [refusal for refusal in found if refusal is not None]

    async def start(self, patience_s: float = 0.0, *, stands_by: bool = False) -> None:
        """Attach all places. Returns after every place was tried and is settled, at the latest `patience_s`
        seconds after the first tries.

        Never raises for a plugin: places that fail are retried without end.
        `stands_by`: the host does not lead yet, so no instance is configured before `begin_term`.
        """
        self._stands_by = stands_by
        for attachment in self._fixed:
            attachment.start(stands_by=stands_by)
        if self.folder is not None:
            await self.folder.start()
        await self._all([attachment.tried for attachment in self.places], FIRST_TRY_S)
        await self.settled(patience_s)

    def _attach_in_folder(self, endpoint: str) -> Attachment:
        from berth_host.attach.attachment import Attachment

        place = self._folder_place
        if place is None:
            raise InvariantError("there is no folder of sockets")
        members = {wanted.name: self.plugins[wanted.name] for wanted in place.plugins}
        attachment = Attachment(replace(place, endpoint=endpoint), members, self._seams)
        attachment.start(stands_by=self._stands_by)
        return attachment

    def _holder(self, instance_id: str, asking: object) -> str:
        """Return the place where another attachment than `asking` has this instance; empty for none."""
        return next(
            (
                attachment.place.title
                for attachment in self.places
                if attachment is not asking
                and attachment.standing is not None
                and attachment.instance_id == instance_id
            ),
            "",
        )

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every place is attached or refused and every plugin of the folder is attached.

        Returns False after `timeout_s` seconds.
        """
        awaited = [attachment.decided for attachment in self._fixed]
        if self._folder_place is not None and not self._stands_by:
            awaited += [self.plugins[wanted.name].present for wanted in self._folder_place.plugins]
        return await self._all(awaited, timeout_s)

    async def stop(self) -> None:
        """Drain and detach every plugin, and stop the launched processes."""
        for plugin in self.plugins.values():
            plugin.end()
        if self.folder is not None:
            await self.folder.stop()
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
        """Return a plugin's route for one profile. Raises KeyError for a plugin without a place."""
        return self.plugins[plugin].routes[scheduler_name]

    @property
    def restoring(self) -> bool:
        """True while a plugin that was lost less than a minute ago may come back, or while an outbox still
        delivers to an attached plugin.
        """
        return self.delivering or any(self._is_restoring(attachment) for attachment in self.places)

    @property
    def delivering(self) -> bool:
        """True while an attached plugin has not received an Unreserve or PostBind yet."""
        return any(plugin.outbox.is_delivering and plugin.is_attached for plugin in self.plugins.values())

    def refusing_arguments(self) -> list[Attachment]:
        """Return the places whose instance refused its arguments, if no other instance serves the plugins."""
        return [
            attachment
            for attachment in self.places
            if attachment.refuses_arguments
            and attachment.state is State.REJECTED
            and not all(self.plugins[name].is_attached for name in attachment.served)
        ]

    def awaited(self) -> list[Attachment]:
        """Return the places whose plugins may still come back."""
        return [attachment for attachment in self.places if self._is_restoring(attachment)]

    def _is_restoring(self, attachment: Attachment) -> bool:
        if not attachment.tried.is_set() or (
            attachment.standing is not None and attachment.standing.is_restoring
        ):
            return True
        if all(self.plugins[name].is_attached for name in attachment.served):
            return False  # Another instance serves the plugins.
        lost_s = attachment.lost_s
        return lost_s is not None and _is_hopeful(attachment) and monotonic_s() - lost_s < RESTORING_S

    def confirmed_generation(self) -> int:
        """Return the oldest generation that a copy of the snapshot may still have; see `cache.Snapshot`."""
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
        """Return the condition of every place, and of the folder while one of its plugins is not served."""
        now_s = monotonic_s()
        found = [_condition(attachment, now_s) for attachment in self.places]
        if self.folder is not None and self._folder_place is not None:
            waits = [one.name for one in self._folder_place.plugins if not self.plugins[one.name].is_attached]
            shown = {name for condition in found for name in condition.plugins}
            waits = [name for name in waits if name not in shown]
            if waits or self.folder.problem:
                found.append(_folder_condition(self.folder, waits))
        return found

    async def begin_term(self) -> None:
        """Begin a term as leader, under a new epoch: every instance is reconciled."""
        self._stands_by = False
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
        """Count the recovery and pass it on; a plugin that is lost again each time is not counted."""
        own = (one for one in self.places if one.serves(plugin))
        if all(_is_hopeful(attachment) for attachment in own):
            self.recoveries += 1
        self._listener.attached(plugin)

    def lost(self, plugin: str, reason: str) -> None:
        """Pass the loss on to the listener."""
        self._listener.lost(plugin, reason)

    def post_bound(self, plugin: str, pod: ObjectRef) -> None:
        """Pass the acknowledgement on to the listener."""
        self._listener.post_bound(plugin, pod)

    def swapped(self, swap: Swap) -> None:
        """Pass the swap on to the listener."""
        self._listener.swapped(swap)

    def scope_changed(self, change: ScopeChange) -> None:
        """Pass the change on to the listener."""
        self._listener.scope_changed(change)

    def place_changed(self, change: PlaceChange) -> None:
        """Pass the change on to the listener."""
        self._listener.place_changed(change)


def _condition(attachment: Attachment, now_s: float) -> Condition:
    standing = attachment.standing
    introduction = None if standing is None else standing.introduction
    return Condition(
        place=attachment.place.title,
        state=attachment.state,
        reason=attachment.reason,
        plugins=attachment.served,
        instance_id=attachment.instance_id,
        warnings=attachment.warnings,
        unusable=attachment.unusable,
        since_s=now_s - attachment.since_s,
        synced_bytes=0 if attachment.link is None else attachment.link.synced_bytes,
        carrier="" if attachment.link is None else attachment.link.carrier,
        circuits=() if standing is None else tuple(_circuits(standing)),
        contract="" if introduction is None else "{}.{}".format(*introduction.contract),
        features=() if introduction is None else introduction.features,
    )


def _circuits(standing: Standing) -> Iterator[Circuit]:
    for name, conduct in standing.conducts.items():
        for point, breaker in conduct.breakers.items():
            if breaker.state is not BreakerState.CLOSED:
                yield Circuit(
                    plugin=name,
                    point=point.config_name,
                    state=breaker.state,
                    last_failure=breaker.last_failure,
                )


def _folder_condition(folder: SocketFolder, plugins: Sequence[str]) -> Condition:
    return Condition(
        place=str(folder.path),
        state=State.BACKOFF if folder.problem else State.CONNECTING,
        reason=folder.problem or "no socket in the folder serves it yet",
        plugins=tuple(plugins),
        instance_id="",
        warnings=(),
        unusable={},
        since_s=0.0,
        synced_bytes=0,
        carrier="",
    )


def _is_hopeful(attachment: Attachment) -> bool:
    return attachment.early_losses < HOPEFUL_LOSSES
