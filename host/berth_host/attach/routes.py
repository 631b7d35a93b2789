"""`AttachedPlugin`: one served plugin, whichever instance serves it; `PluginRoute`: the same in one profile.

Attachments offer instances and withdraw them; the one that is asked changes between two calls, and a cycle
stays with the instance that it began with. The outbox and the last known descriptor outlive attachments.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Protocol

from berth_sdk.extension_points import ExtensionPoint, NodeMode, PodSensitivity
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attach.instances import AgeKey, Offer, chosen, on_trial
from berth_host.attach.state import PlaceChange, Swap
from berth_host.attach.wanted import WantedPlugin, WantedProfile
from berth_host.log import get_logger
from berth_host.rpc.cycle import Cycle
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.outbox import Outbox

_LOG = get_logger()


class AttachListener(Protocol):
    """Hears of attached and lost plugins, on the loop. It must not raise."""

    def attached(self, plugin: str) -> None:
        """An instance can be asked; pods that failed on the plugin's account may be tried again."""
        ...

    def lost(self, plugin: str, reason: str) -> None:
        """No instance can be asked."""
        ...

    def swapped(self, swap: Swap) -> None:
        """Another instance of a plugin is asked."""
        ...

    def place_changed(self, change: PlaceChange) -> None:
        """A place has another state, which lasts."""
        ...


class AttachedPlugin:
    """absent -offer-> attached -withdraw the last-> absent. `absence`: why it is absent, as the end of a
    sentence. `active`: the instance that is asked; `present` is set while there is one.
    """

    def __init__(self, wanted: WantedPlugin, outbox: Outbox, listener: AttachListener) -> None:
        self.wanted = wanted
        self.outbox = outbox
        self.absence = "is not attached yet"
        self.stood_by_at: set[object] = set()
        """The places with an instance that this host will attach to when it leads."""
        self._ends = False
        self.drifts = 0
        """How often an instance dropped its copy of the state, which was not what the host had sent."""
        self.active: Offer | None = None
        self._well_since_s = 0.0
        """When the active instance was chosen, or was well again (monotonic seconds)."""
        self.present = asyncio.Event()
        self.offers: list[Offer] = []
        self.trial: Offer | None = None
        """A newer instance with a circuit breaker that waits for a trial call."""
        self._tried_by: Cycle | None = None
        self._listener = listener
        self.descriptor = _expected(wanted)
        self.routes = {profile.scheduler_name: PluginRoute(self, profile) for profile in wanted.profiles}

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.wanted.name

    @property
    def stands_by(self) -> bool:
        """Whether an instance is there, which this host will attach to when it leads."""
        return bool(self.stood_by_at)

    @property
    def is_attached(self) -> bool:
        """Whether an instance can be asked."""
        return self.active is not None

    @property
    def is_well(self) -> bool:
        """True while an instance can be asked at every point."""
        return self.active is not None and not self.active.conduct.complaint

    def is_replaced(self, age_key: AgeKey, for_s: float) -> bool:
        """Return True when an instance newer than `age_key` has been asked, and well, for `for_s` seconds."""
        return (
            self.active is not None
            and self.is_well
            and self.active.age_key > age_key
            and time.monotonic() - self._well_since_s >= for_s
        )

    def offer(self, offer: Offer) -> None:
        """An instance can serve it."""
        self.offers.append(offer)
        self.choose("")

    def withdraw(self, offer: Offer, reason: str) -> None:
        """It cannot any more. Another one that is attached takes up what this one was in the middle of."""
        self.offers.remove(offer)
        before = self.active
        self.choose(reason)
        if self.active is not None and self.active is before and not self._ends:
            self.active.taken_up()

    def choose(self, reason: str) -> None:
        """Ask the best instance from now on. `reason`: why there is none, if there is none."""
        best, before = chosen(self.offers), self.active
        if self._ends:
            best = before if before in self.offers else None
        trial = None if self._ends else on_trial(self.offers, best)
        if trial is not self.trial:
            self.trial, self._tried_by = trial, None
        if best is before:
            return
        self.active = best
        if before is not None:
            self.outbox.detach(before.sender)
        if best is None:
            self._leave(reason)
        else:
            self._use(best, before, reason)
        for offer in (before, best):
            if offer is not None:
                offer.judged()

    def for_cycle(self, cycle: Cycle) -> Offer | None:
        """Return the instance for a cycle that begins: the one on trial if no other cycle tries it."""
        if self.trial is not None and self._tried_by is None:
            self._tried_by = cycle
            return self.trial
        return self.active

    def for_batch(self, point: ExtensionPoint) -> Offer | None:
        """Return the instance for a call that belongs to no cycle."""
        if self.trial is not None and self.trial.conduct.awaits_trial(point):
            return self.trial
        return self.active

    def cycle_ended(self, cycle: Cycle) -> None:
        """Let another cycle try the instance that is on trial."""
        if self._tried_by is cycle:
            self._tried_by = None

    def end(self) -> None:
        """The host stops: no instance takes the place of another any more."""
        self._ends = True

    def recovered(self) -> None:
        """The active instance is well again: what failed on its account may be tried again."""
        if self.active is not None:
            self._well_since_s = time.monotonic()
            self._listener.attached(self.name)

    def _use(self, offer: Offer, before: Offer | None, reason: str) -> None:
        self.descriptor = offer.descriptor
        self._well_since_s = time.monotonic()
        self.absence = ""
        self.present.set()
        for profile, transport in offer.transports.items():
            self.routes[profile].transport = transport
        self.outbox.attach(offer.sender)
        if before is not None:
            swap = Swap(
                plugin=self.name,
                before=before.instance_id,
                instance_id=offer.instance_id,
                falls_back=offer.age_key < before.age_key,
                reason=before.conduct.complaint or reason,
            )
            _LOG.info("plugin.swapped", **asdict(swap))
            self._listener.swapped(swap)
        offer.taken_up()
        self._listener.attached(self.name)

    def _leave(self, reason: str) -> None:
        self.absence = reason
        self.present.clear()
        for route in self.routes.values():
            route.transport = None
        self._listener.lost(self.name, reason)


class PluginRoute:
    """`rpc.client.Route` of one plugin in one profile."""

    def __init__(self, plugin: AttachedPlugin, profile: WantedProfile) -> None:
        self.plugin = plugin
        self.profile = profile
        self.transport: GrpcTransport | None = None

    def for_cycle(self, cycle: Cycle) -> GrpcTransport | None:
        """Return the way to the instance for a cycle that begins."""
        return self._to(self.plugin.for_cycle(cycle))

    def for_batch(self, point: ExtensionPoint) -> GrpcTransport | None:
        """Return the way to the instance for a call that belongs to no cycle."""
        return self._to(self.plugin.for_batch(point))

    def cycle_ended(self, cycle: Cycle) -> None:
        """Let another cycle try the instance that is on trial."""
        self.plugin.cycle_ended(cycle)

    def forget(self, asking: str) -> None:
        """Have the other instances drop what they keep, before they are asked again."""
        for offer in self.plugin.offers:
            link = offer.transports[self.profile.scheduler_name].link
            if link.identity.attachment_id != asking:
                link.drop_kept()

    def _to(self, offer: Offer | None) -> GrpcTransport | None:
        return None if offer is None else offer.transports[self.profile.scheduler_name]

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the latest instance; before the first, as the configuration tells it."""
        return self.plugin.descriptor

    @property
    def absence(self) -> str:
        """Why there is no transport."""
        return self.plugin.absence


def _expected(wanted: WantedPlugin) -> Descriptor:
    """The descriptor of a plugin without an instance so far."""
    named = {point for profile in wanted.profiles for point in profile.points}
    return Descriptor(
        name=wanted.name,
        points=tuple(point for point in ExtensionPoint if point.config_name in named),
        node_mode=NodeMode.NAMES,
        pod_sensitivity=PodSensitivity.CLUSTER,
    )
