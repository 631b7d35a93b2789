"""`Standing`: an attached instance, its offers to plugins, and its health.

Made by `Attachment` after the instance is synchronised, ended when it is lost. The attachment's keeper
reports probes here. The relay reports calls through `FailureRecord`. `AttachedPlugin` chooses among the
offers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attach.configure import effective_concurrency
from berth_host.attach.handshake import Introduction
from berth_host.attach.interfaces import LiveCycle, LiveCycles, LostError
from berth_host.attach.reconciling import RECONCILE_S, TakenUp
from berth_host.attach.routes import AttachedPlugin, Offer
from berth_host.attach.state import State
from berth_host.log import get_logger
from berth_host.rpc.call_rules import call_rules
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.served.grpc_transport import AtInstance, GrpcTransport
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.reserve_gate import ReserveGate
from berth_host.rpc.served.sender import LinkSender
from berth_host.rpc.transport import Transport

HOPEFUL_OPENINGS: Final = 2
"""The number of openings in a row after which a simulation does not wait for a circuit breaker."""
_LOG = get_logger()


class Standing:
    """An attached instance: not ready <-> offered -end-> over.

    `changed`: called when `state` may have changed. `take_up`: creates a new reconciliation. `order`: see
    `Offer`.
    """

    def __init__(
        self,
        link: InstanceLink,
        introduction: Introduction,
        plugins: Mapping[str, AttachedPlugin],
        *,
        order: int,
        take_up: Callable[[], TakenUp],
        changed: Callable[[], None],
    ) -> None:
        self.link = link
        self.introduction = introduction
        self.conducts = {
            descriptor.name: FailureRecord(descriptor.name, self._judge)
            for descriptor in introduction.plugins
        }
        self._gates = {name: ReserveGate() for name in self.conducts}
        self.not_ready = ""
        link.on_drift = self.drifted
        self._plugins = plugins
        self._order = order
        self._start_taking_up = take_up
        self._changed = changed
        self._offers: dict[str, Offer] = {}
        self._taken_up: TakenUp | None = None
        self._ill: set[str] = set()
        self._over = False
        self._offering = False
        self._taking_up: set[asyncio.Task[None]] = set()

    # --- what it is ------------------------------------------------------------------------------------

    @property
    def state(self) -> tuple[State, str]:
        """The state and the reason for it."""
        told = [(name, conduct) for name, conduct in self.conducts.items() if conduct.complaint]
        if any(conduct.quarantine for _, conduct in told):
            reason = "; ".join(f"plugin {name} {one.quarantine}" for name, one in told if one.quarantine)
            return State.QUARANTINED, reason
        if self.not_ready:
            return State.DEGRADED, f"not ready: {self.not_ready}"
        if told:
            return State.DEGRADED, "; ".join(f"plugin {name} {one.complaint}" for name, one in told)
        asked = self._plugins_served
        if all(plugin.active is not self._offers.get(plugin.name) for plugin in asked):
            others = sorted({plugin.active.instance_id for plugin in asked if plugin.active is not None})
            return State.STANDBY, f"instance {', '.join(others)} is asked"
        return State.ACTIVE, ""

    @property
    def quarantined(self) -> list[str]:
        """The names of the instance's plugins in quarantine."""
        return [name for name, conduct in self.conducts.items() if conduct.quarantine]

    @property
    def next_trial_s(self) -> float | None:
        """When a probe is due for an open circuit breaker (monotonic seconds); None without one."""
        times_s = (conduct.next_trial_s for conduct in self.conducts.values())
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    @property
    def is_restoring(self) -> bool:
        """True if an open circuit breaker may close again soon."""
        return not self.is_silent and any(
            conduct.next_trial_s is not None and conduct.opened <= HOPEFUL_OPENINGS
            for conduct in self.conducts.values()
        )

    @property
    def is_silent(self) -> bool:
        """True if the instance does not answer its probes."""
        return any(conduct.silent for conduct in self.conducts.values())

    def is_replaced(self, for_s: float, cycles: LiveCycles) -> bool:
        """Return True if newer instances of all its plugins have been healthy for `for_s` seconds and no
        running cycle belongs to this instance.
        """
        age_key = self.introduction.started_at_s, self._order
        return all(plugin.is_replaced(age_key, for_s) for plugin in self._plugins_served) and not any(
            self._owns(name, live) for name in self.conducts for live in cycles.live(name)
        )

    def _owns(self, plugin: str, live: LiveCycle) -> bool:
        way: Transport | None = live.cycle.part(plugin).instance
        return way is not None and way.conduct is self.conducts[plugin]

    @property
    def _plugins_served(self) -> list[AttachedPlugin]:
        return [self._plugins[descriptor.name] for descriptor in self.introduction.plugins]

    # --- what happens to it ----------------------------------------------------------------------------

    def offer(self, taken_up: TakenUp | None = None) -> None:
        """Offer the instance to its plugins.

        `taken_up`: its answers to Reconcile. `changed` is not called: the caller reads `state` afterwards.
        """
        self._taken_up = taken_up
        self._offering = True
        for descriptor in self.introduction.plugins:
            plugin = self._plugins[descriptor.name]
            offer = self._offers[descriptor.name] = self._made(plugin, descriptor)
            plugin.offer(offer)
        self._offering = False
        self._taken_up = None

    def withdraw(self, reason: str) -> None:
        """Withdraw the offers, so that no new cycle uses the instance."""
        offers, self._offers = self._offers, {}
        for name, offer in offers.items():
            self._plugins[name].withdraw(offer, reason)

    def end(self, reason: str) -> None:
        """End the standing of an instance that was lost or drained."""
        self._over = True
        self.withdraw(reason)
        for task in self._taking_up:
            task.cancel()

    def ready_changed(self, ready: bool, message: str) -> None:
        """Take the answer to a probe: offer a ready instance, withdraw one that is not ready."""
        for conduct in self.conducts.values():
            conduct.probed()
        if ready and not self._offers:
            self.not_ready = ""
            self.offer()
        elif not ready and self._offers:
            self.withdraw(f"is not ready: {message}")
        self.not_ready = "" if ready else message or "no reason given"
        self._changed()

    def missed(self, why: str) -> None:
        """Take that several probes were missed: the instance gets no calls until it answers one."""
        for conduct in self.conducts.values():
            conduct.missed(why)

    def drifted(self) -> None:
        """Take that the instance dropped its copy of the state, which is sent whole again.

        All plugins of the instance share the copy, so each one is counted.
        """
        _LOG.warning(
            "attachment.drifted", place=self.link.identity.endpoint, instance_id=self.introduction.instance_id
        )
        for name, conduct in self.conducts.items():
            self._plugins[name].drifts += 1
            # Answers from the wrong copy may be kept.
            offer = self._offers.get(name)
            for transport in () if offer is None else offer.transports.values():
                transport.follows.forget()
            conduct.drifted()

    async def begin_term(self) -> None:
        """Reconcile all plugins for a new epoch. Raises LostError."""
        await self._reconcile(self._plugins_served)

    # --- how it is done --------------------------------------------------------------------------------

    def _made(self, plugin: AttachedPlugin, descriptor: Descriptor) -> Offer:
        conduct = self.conducts[plugin.name]
        rules = call_rules(plugin.wanted.points, descriptor.deadlines, required=plugin.wanted.required)
        sender = LinkSender(self.link, descriptor.name, conduct, rules, descriptor.points)
        shared = AtInstance(
            slots=asyncio.Semaphore(effective_concurrency(descriptor, plugin.wanted)),
            conduct=conduct,
            sender=sender,
            gate=self._gates[plugin.name],
        )
        transports = {
            profile.scheduler_name: GrpcTransport(
                self.link, descriptor, profile.scheduler_name, plugin.outbox, shared
            )
            for profile in plugin.wanted.profiles
        }
        return Offer(
            instance_id=self.introduction.instance_id,
            started_at_s=self.introduction.started_at_s,
            order=self._order,
            descriptor=descriptor,
            transports=transports,
            sender=sender,
            conduct=conduct,
            taken_up=lambda: self._take_up(plugin),
            judged=self._judged,
        )

    def _take_up(self, plugin: AttachedPlugin) -> None:
        """Take over the cycles of a lost instance that this instance knows."""
        if self._taken_up is not None:
            adopted = self._taken_up.adopt(plugin.name, self._offers[plugin.name].transports)
            # If the answer was given while another instance existed that is gone now, reconcile again.
            if adopted or len(plugin.offers) > 1:
                return
        task = asyncio.ensure_future(self._ask_what_it_knows(plugin))
        self._taking_up.add(task)
        task.add_done_callback(self._taking_up.discard)

    async def _ask_what_it_knows(self, plugin: AttachedPlugin) -> None:
        try:
            await self._reconcile([plugin])
        except LostError as err:
            _LOG.warning("plugin.warned", place=self.link.identity.endpoint, warning=str(err))

    async def _reconcile(self, plugins: list[AttachedPlugin]) -> None:
        taken_up = self._start_taking_up()
        ends_s = monotonic_s() + RECONCILE_S
        by_name = {descriptor.name: descriptor for descriptor in self.introduction.plugins}
        for plugin in plugins:
            async with self._gates[plugin.name].listing():
                await taken_up.reconcile(self.link, plugin, by_name[plugin.name], ends_s)
                offer = self._offers.get(plugin.name)
                if offer is not None and plugin.active is offer:
                    taken_up.adopt(plugin.name, offer.transports)

    def _judged(self) -> None:
        """Report that the instance was chosen or replaced."""
        if not self._offering:
            self._changed()

    def _judge(self) -> None:
        """Choose again after a plugin's conduct has changed, and report recoveries."""
        if self._over:
            return
        for name, conduct in self.conducts.items():
            plugin = self._plugins[name]
            if conduct.quarantine:
                plugin.quarantine = conduct.quarantine
                plugin.choose(f"is in quarantine: it {conduct.quarantine}")
            else:
                plugin.choose("")
            ill = bool(conduct.complaint)
            if not ill and name in self._ill and plugin.active is self._offers.get(name):
                plugin.recovered()
            self._ill.add(name) if ill else self._ill.discard(name)
        self._changed()
