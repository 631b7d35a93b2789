"""`AttachedPlugin`: a served plugin with its instances; `PluginRoute`: its route in one profile.

Attachments offer and withdraw instances. The chosen instance may change between two calls; a cycle stays with
the instance that it began with. The outbox and the last descriptor outlive attachments.

The host calls the newest healthy instance. A newer instance whose circuit breaker is half open is on trial:
it gets one cycle at a time, and all other cycles go to the healthy instance. If no instance is healthy, the
host calls the newest one whose breaker waits for a trial call, else the newest one that is not in quarantine.
When a newer instance fails, an older one that is still attached gets the calls. Source: hot swap of the
plugin contract's life; KEP-4563's rule for DRA drivers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from berth_sdk.clocks import monotonic_s
from berth_sdk.extension_points import ExtensionPoint, NodeMode, PodSensitivity
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import scope_text

from berth_host.attach.configured_places import WantedPlugin, WantedProfile
from berth_host.attach.interfaces import AttachListener
from berth_host.attach.state import ScopeChange, Swap
from berth_host.attempt.call_record import CycleRecord
from berth_host.log import get_logger
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.outbox import Outbox
from berth_host.rpc.served.sender import LinkSender

AgeKey: TypeAlias = tuple[float, int]
"""When the process of an instance started (Unix seconds), and the number of its attachment; greater for the
newer instance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """One instance that serves a plugin.

    `transports`: by profile. `started_at_s`: when its process started, as the instance reports (Unix
    seconds). `order`: the number of the attachment, for processes with equal start times. `taken_up`: called
    when the instance is chosen, or takes over the work of a lost instance. `judged`: called when the
    instance is chosen or is not chosen any more.
    """

    instance_id: str
    started_at_s: float
    order: int
    descriptor: Descriptor
    transports: dict[str, GrpcTransport]
    sender: LinkSender
    conduct: FailureRecord
    taken_up: Callable[[], None]
    judged: Callable[[], None]

    @property
    def age_key(self) -> AgeKey:
        """The age of the instance, to compare with others."""
        return self.started_at_s, self.order


def chosen(offers: Sequence[Offer]) -> Offer | None:
    """Return the instance that gets the calls; None if there is none."""
    usable = [offer for offer in offers if not offer.conduct.quarantine]
    open_to_calls = [offer for offer in usable if not offer.conduct.is_refusing]
    well = [offer for offer in open_to_calls if not offer.conduct.complaint]
    return max(well or open_to_calls or usable, key=lambda offer: offer.age_key, default=None)


def on_trial(offers: Sequence[Offer], asked: Offer | None) -> Offer | None:
    """Return the newest instance that would replace `asked` if a trial call succeeded; None for none."""
    if asked is None or asked.conduct.complaint:
        return None
    newer = (
        offer
        for offer in offers
        if offer.age_key > asked.age_key and offer.conduct.complaint and not offer.conduct.is_refusing
    )
    return max(newer, key=lambda offer: offer.age_key, default=None)


_LOG = get_logger()


class AttachedPlugin:
    """A served plugin: absent -offer-> attached -withdraw the last offer-> absent.

    `absence`: why the plugin is absent, as the end of a sentence. `active`: the instance that gets the calls.
    `present`: set while there is one.
    """

    def __init__(self, wanted: WantedPlugin, outbox: Outbox, listener: AttachListener) -> None:
        self.wanted = wanted
        self.outbox = outbox
        self.absence = "is not attached yet"
        self.quarantine = ""
        """Why the last instance that was quarantined was; empty: none was."""
        self.stood_by_at: set[object] = set()
        """The attachments in STANDBY, which this host attaches when it leads."""
        self._ends = False
        self.drifts = 0
        """The number of times that an instance dropped a wrong copy of the state."""
        self.active: Offer | None = None
        self._well_since_s = 0.0
        """When the active instance was chosen or recovered (monotonic seconds)."""
        self.present = asyncio.Event()
        self.offers: list[Offer] = []
        self.trial: Offer | None = None
        """A newer instance with a circuit breaker that waits for a trial call."""
        self._tried_by: CycleRecord | None = None
        self._listener = listener
        self.descriptor = _expected(wanted)
        self._was_attached = False
        """True once the descriptor is that of an instance."""
        self.routes = {profile.scheduler_name: PluginRoute(self, profile) for profile in wanted.profiles}

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.wanted.name

    @property
    def stands_by(self) -> bool:
        """True if an instance waits in STANDBY until this host leads."""
        return bool(self.stood_by_at)

    @property
    def is_attached(self) -> bool:
        """True while an instance can be called."""
        return self.active is not None

    @property
    def is_well(self) -> bool:
        """True while the active instance is healthy at every extension point."""
        return self.active is not None and not self.active.conduct.complaint

    def is_replaced(self, age_key: AgeKey, for_s: float) -> bool:
        """Return True if an instance newer than `age_key` has been active and healthy for `for_s` seconds."""
        return (
            self.active is not None
            and self.is_well
            and self.active.age_key > age_key
            and monotonic_s() - self._well_since_s >= for_s
        )

    def offer(self, offer: Offer) -> None:
        """Add an instance, and choose again."""
        self.offers.append(offer)
        self.choose("")

    def withdraw(self, offer: Offer, reason: str) -> None:
        """Remove an instance's offer; the active instance, if any, takes over its unfinished work."""
        self.offers.remove(offer)
        before = self.active
        self.choose(reason)
        if self.active is not None and self.active is before and not self._ends:
            self.active.taken_up()

    def choose(self, reason: str) -> None:
        """Choose the best instance for calls. `reason`: why there is none, in case there is none."""
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

    def for_cycle(self, cycle: CycleRecord) -> Offer | None:
        """Return the instance for a new cycle: the one on trial unless another cycle tries that one."""
        if self.trial is not None and self._tried_by is None:
            self._tried_by = cycle
            return self.trial
        return self.active

    def for_batch(self, point: ExtensionPoint) -> Offer | None:
        """Return the instance for a call that belongs to no cycle."""
        if self.trial is not None and self.trial.conduct.awaits_trial(point):
            return self.trial
        return self.active

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Let another cycle try the instance that is on trial."""
        if self._tried_by is cycle:
            self._tried_by = None

    def end(self) -> None:
        """Stop replacing instances, because the host stops."""
        self._ends = True

    def recovered(self) -> None:
        """Report that the active instance has recovered, so that failed pods may be retried."""
        if self.active is not None:
            self._well_since_s = monotonic_s()
            self._listener.attached(self.name)

    def _use(self, offer: Offer, before: Offer | None, reason: str) -> None:
        known, self.descriptor = self.descriptor, offer.descriptor
        self._well_since_s = monotonic_s()
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
        if self._was_attached and known.scope != offer.descriptor.scope:
            change = ScopeChange(
                plugin=self.name,
                instance_id=offer.instance_id,
                before=scope_text(known.scope),
                after=scope_text(offer.descriptor.scope),
            )
            _LOG.info("plugin.scope_changed", **asdict(change))
            self._listener.scope_changed(change)
        self._was_attached = True
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

    def for_cycle(self, cycle: CycleRecord) -> GrpcTransport | None:
        """Return the transport to the instance for a new cycle; None without an instance."""
        return self._to(self.plugin.for_cycle(cycle))

    def for_batch(self, point: ExtensionPoint) -> GrpcTransport | None:
        """Return the transport to the instance for a call outside of cycles; None without an instance."""
        return self._to(self.plugin.for_batch(point))

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Let another cycle try the instance that is on trial."""
        self.plugin.cycle_ended(cycle)

    def forget(self, asking: str) -> None:
        """End the kept answers of all instances.

        The other instances than `asking` (an attachment id) also drop those that they keep themselves.
        """
        for offer in self.plugin.offers:
            transport = offer.transports[self.profile.scheduler_name]
            transport.follows.forget()
            link = transport.link
            if link.identity.attachment_id != asking:
                link.drop_kept()

    def _to(self, offer: Offer | None) -> GrpcTransport | None:
        return None if offer is None else offer.transports[self.profile.scheduler_name]

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the latest instance; before the first one, a guess from the configuration."""
        return self.plugin.descriptor

    @property
    def absence(self) -> str:
        """The reason why there is no transport."""
        return self.plugin.absence


def _expected(wanted: WantedPlugin) -> Descriptor:
    """Return the descriptor of a plugin that never had an instance, from its configured points."""
    named = {point for profile in wanted.profiles for point in profile.points}
    return Descriptor(
        name=wanted.name,
        points=tuple(point for point in ExtensionPoint if point.config_name in named),
        node_mode=NodeMode.NAMES,
        pod_sensitivity=PodSensitivity.CLUSTER,
    )
