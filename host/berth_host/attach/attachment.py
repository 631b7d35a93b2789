"""`Attachment`: the host's relation to one place where plugins are served, as a state machine.

    CONNECTING -> HANDSHAKING -> CONFIGURING -> SYNCING -> ACTIVE        each failure: BACKOFF -> CONNECTING
    HANDSHAKING -the host does not lead-> STANDBY -the host leads-> CONFIGURING
    HANDSHAKING, CONFIGURING -refused-> REJECTED -another socket or instance-> CONNECTING
    ACTIVE <-another instance of its plugins gets the calls-> STANDBY
    ACTIVE <-not ready, does not answer, a circuit breaker is open-> DEGRADED
    ACTIVE -repeated violations of the contract-> QUARANTINED -the instance is lost-> BACKOFF
    any state -stop-> DRAINING -> CLOSED
    ACTIVE -a certificate expires, or is replaced-> DRAINING -> CONNECTING
    STANDBY -a newer instance was healthy for a minute-> DRAINING -> DRAINED -the newer one fails-> CONNECTING

Its own task changes the state; conditions show `state` and `reason`. Times are real, not those of the host's
clock. Source: the contract's identity.proto; the life of a plugin attachment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import grpc
from berth_sdk import chance
from berth_sdk.clocks import monotonic_s

from berth_host.attach.attached_instance import Standing
from berth_host.attach.audit import AuditTrail
from berth_host.attach.child import Child, ChildError
from berth_host.attach.configure import accept, lacks_way_back, way_back_of
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import dial, frames_to, identity_of, offered, peer_at
from berth_host.attach.handshake import (
    ArgumentsRefusedError,
    DescriptorRefusedError,
    Introduction,
    RefusedError,
    read_handshake,
    with_arguments,
)
from berth_host.attach.identity_calls import Greeting, IdentityCalls, credential_for
from berth_host.attach.interfaces import AttachSeams, LostError
from berth_host.attach.peer import DialError, Peer
from berth_host.attach.probing import Prober, Signals, probe, watch_connection
from berth_host.attach.reconciling import TakenUp
from berth_host.attach.remarks import Remarks
from berth_host.attach.retrying import (
    BACKOFF_LOOK_S,
    HEALTHY_S,
    after_refusal,
    another_comes,
    attach_backoff,
)
from berth_host.attach.routes import AttachedPlugin
from berth_host.attach.state import ATTACHED, NOT_NEEDED, PlaceChange, State
from berth_host.attach.state_feed import InstanceFeed
from berth_host.errors.plugins import PluginError
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.rpc.served.link import InstanceLink, LinkIdentity
from berth_host.rpc.served.statuses import cut, plain

SYNC_BUDGET_S: Final = 60.0
STANDBY_LOOK_S: Final = 5.0
DRAIN_GRACE_S: Final = 30.0
SILENT_GRACE_S: Final = 5.0
"""The grace period of an instance that does not answer its probes."""
REPLACED: Final = f"a newer instance has been healthy for {HEALTHY_S:.0f} s"
RENEWAL_GRACE_S: Final = 5.0
"""The grace period of a connection that is made again."""
_LOG = get_logger()


class Attachment:
    """The attachment to one place.

    Attributes: place, state, reason, since_s (monotonic time of the state), link, warnings, instance_id,
    unusable (why plugins that are expected here cannot be used, by name).
    """

    def __init__(self, place: Place, plugins: dict[str, AttachedPlugin], seams: AttachSeams) -> None:
        self.place = place
        self.state = State.CONNECTING
        self.reason = ""
        self.since_s = monotonic_s()
        self.link: InstanceLink | None = None
        self.warnings: tuple[str, ...] = ()
        self.unusable: Mapping[str, str] = {}
        self.instance_id = ""
        self.was_active = False
        self.lost_s: float | None = None
        """When the instance was lost (monotonic seconds); None while an instance is attached."""
        self.early_losses = 0
        """The number of instances in a row that were lost soon after they were attached."""
        self._active_s = 0.0
        self.tried = asyncio.Event()
        """Set after the first attempt succeeded or failed."""
        self.decided = asyncio.Event()
        """Set while ACTIVE, STANDBY, DRAINED or REJECTED."""
        self._plugins = plugins
        self._seams = seams
        self.backoff = attach_backoff()
        self._trouble = asyncio.Event()
        self._stopping = asyncio.Event()
        self._leads = asyncio.Event()
        """Set when this host may attach: an instance has one host at a time, the leader."""
        self._grace_s = DRAIN_GRACE_S
        self.child: Child | None = None
        self.peer = Peer()
        self._audit = AuditTrail(place.title)
        self._refused: tuple[str, str] | None = None
        self.refuses_arguments = False
        """True if the last configured instance refused its arguments; `reason` has its words."""
        self._told_reason = ""
        self.task: asyncio.Task[None] | None = None
        self.standing: Standing | None = None
        self._served: frozenset[str] = frozenset() if place.is_open else frozenset(plugins)
        self._features: frozenset[str] = frozenset()

    # --- life ------------------------------------------------------------------------------------------

    def start(self, *, stands_by: bool = False) -> None:
        """Start the task that attaches and stays attached.

        `stands_by`: stop after the handshake until `begin_term`.
        """
        if not stands_by:
            self._leads.set()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"attach-{self.place.title}")

    async def stop(self, grace_s: float | None = None) -> None:
        """Drain: wait for running calls, then disconnect. Has no effect if `start` was never called.
        `grace_s`: the longest wait in seconds; None for DRAIN_GRACE_S.
        """
        if grace_s is None:
            grace_s = DRAIN_GRACE_S
        task = self.task
        if task is not None and not task.done():
            silent = self.standing is not None and self.standing.is_silent
            self._grace_s = grace_s = min(grace_s, SILENT_GRACE_S) if silent else grace_s
            self._stopping.set()
            if self.standing is not None:
                await asyncio.wait({task}, timeout=2 * grace_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._enter(State.CLOSED, "")

    async def _run(self) -> None:
        while not self._stopping.is_set():
            began_s = monotonic_s()
            met = identity_of(self.place.endpoint)
            try:
                await self._live()
                continue
            except RefusedError as err:
                self._enter(State.REJECTED, err.reason)
                self.lost_s = None
                if not self._stopping.is_set():
                    await after_refusal(self.place)
                continue
            except (DialError, ChildError, LostError, PluginError) as err:
                reason = str(err)
                self._audit.failed(err)
            except InvariantError as err:
                self._seams.broken(err)
                reason = "the host stops after an internal error"
            except Exception:  # noqa: BLE001
                # An unexpected error must not end the loop: attach again after the backoff.
                _LOG.exception("attachment.failed", place=self.place.title)
                reason = "the host failed to attach it; see the host's log"
            if self.was_active and monotonic_s() - began_s > HEALTHY_S:
                self.backoff.reset()
            self._enter(State.BACKOFF, reason)
            # `stop` may wait for the end of this task, and needs no other instance.
            if not self._stopping.is_set() and await another_comes(self.place, met, self.backoff.next_s()):
                self.backoff.reset()

    async def _live(self) -> None:
        """Make one attempt: dial, attach, and watch the instance.

        Returns when `stop` was called and when the connection must be made again. Raises the error for which
        the instance is lost.
        """
        self._enter(State.CONNECTING, self.reason)
        endpoint = self.place.endpoint
        expected_instance = ""
        if self.place.command:
            names = ", ".join(self._plugins)
            self.child = await Child.launch(self.place.command, self.place.title, plugins=names)
            endpoint, expected_instance = self.child.address, self.child.instance_id
        self._features = offered(self.place, endpoint, handle_over_tls=self._seams.handle_over_tls)
        attachment_id = chance.token_hex(8)
        channel: grpc.aio.Channel | None = None
        try:
            self.peer = await peer_at(endpoint, self.place)
            channel = dial(endpoint, self.place)
            calls = IdentityCalls(channel, self.place, attachment_id, self._first_name)
            introduction = await self._shake_hands(calls, expected_instance)
            if not self._leads.is_set():
                await self._stand_by(calls, introduction)
            introduction = await self._configure(calls, attachment_id, introduction, endpoint)
            await self._seams.declare(introduction.plugins)
            link = self._make_link(channel, attachment_id, endpoint, introduction)
            ends_s = monotonic_s() + SYNC_BUDGET_S
            await self._synchronise(link, ends_s)
            taken_up = await self._reconcile(link, introduction, ends_s)
            standing = self._activate(link, introduction, taken_up)
            why = await self._keep(link, standing, channel)
            if self._stopping.is_set():
                await self._drain(calls, link, standing, "the host stops", final=True)
            elif why == REPLACED:
                await self._drain(calls, link, standing, REPLACED, final=False)
            else:
                self._enter(State.DRAINING, why)
                standing.withdraw(why)
                await link.quiet(RENEWAL_GRACE_S)
        finally:
            await self._let_go(channel, attachment_id)
        # `stop` may have come while the instance was drained for the newer one.
        if why == REPLACED and not self._stopping.is_set():
            await self._rest()

    async def _let_go(self, channel: grpc.aio.Channel | None, attachment_id: str) -> None:
        self._seams.revoke(attachment_id)
        if self.standing is not None:
            if not self._stopping.is_set():
                self.lost_s = self.lost_s or monotonic_s()
                lived_s = monotonic_s() - self._active_s
                self.early_losses = self.early_losses + 1 if lived_s < HEALTHY_S else 0
            standing, self.standing = self.standing, None
            standing.end("lost its instance")
        if self.link is not None:
            self.link.close()
            self.link = None
        if channel is not None:
            await channel.close()
        if self.child is not None:
            child, self.child = self.child, None
            await child.stop()

    # --- coming up ---------------------------------------------------------------------------------------

    async def _shake_hands(self, calls: IdentityCalls, expected: str) -> Introduction:
        self._enter(State.HANDSHAKING, self.reason)
        reply = await calls.shake_hands(self._greeting())
        if self._refused is not None and self._refused[0] == reply.instance_id:
            raise RefusedError(self._refused[1])
        if holder := self._seams.holder(reply.instance_id, self):
            raise DialError(f"instance {reply.instance_id} is attached already, at {holder}")
        try:
            if expected and reply.instance_id != expected:
                raise RefusedError(
                    f"the process reported instance {expected}, but {reply.instance_id} answers at its socket"
                )
            introduction = read_handshake(reply, self.place, self._features)
            if self.place.is_open:
                self._served = frozenset(item.name for item in introduction.plugins)
            return introduction
        except RefusedError as err:
            self._refused = (reply.instance_id, err.reason)
            await calls.refuse(err.reason)
            raise

    def _greeting(self) -> Greeting:
        return Greeting(
            host_version=self._seams.host_version,
            epoch=self._seams.state.version.epoch,
            features=self._features,
            credential=credential_for(self.place, self.child),
        )

    async def _stand_by(self, calls: IdentityCalls, introduction: Introduction) -> None:
        """Wait until this host leads. The leader may use the same instance, and Configure would take it over.

        Raises LostError when another instance answers.
        """
        await self._seams.declare(introduction.plugins)
        self._enter(State.STANDBY, "")
        while not self._leads.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STANDBY_LOOK_S):
                    await self._leads.wait()
            reply = await calls.shake_hands(self._greeting())
            if reply.instance_id != introduction.instance_id:
                raise LostError(f"instance {reply.instance_id} answers in its place")

    async def _configure(
        self, calls: IdentityCalls, attachment_id: str, introduction: Introduction, endpoint: str
    ) -> Introduction:
        """Call Configure; return the introduction with what the plugins declare by their arguments."""
        self._enter(State.CONFIGURING, self.reason)
        grants = self._seams.grants
        way_back = await way_back_of(grants, attachment_id, self.place, introduction, endpoint)
        try:
            reply = await calls.configure(accept(attachment_id, self.place, introduction, way_back))
            introduction = with_arguments(introduction, reply)
        except RefusedError as err:
            self._refused = (introduction.instance_id, err.reason)
            self.refuses_arguments = isinstance(err, ArgumentsRefusedError)
            if isinstance(err, DescriptorRefusedError):
                await calls.refuse(err.reason)
            raise
        self.refuses_arguments = False
        remarks = Remarks()
        lacks = lacks_way_back(self.place, introduction, over_tls=self._seams.handle_over_tls)
        for text in (*lacks, *introduction.warnings, *reply.warnings):
            remarks.add(text)
        self.warnings = ()
        self._warn(*remarks.texts)
        self.unusable = introduction.unusable
        for name, reason in introduction.unusable.items():
            self._plugins[name].absence = reason
            _LOG.warning("plugin.unusable", plugin=name, place=self.place.title, reason=reason)
        return introduction

    def _warn(self, *warnings: str) -> None:
        self.warnings = (*self.warnings, *warnings)
        for warning in warnings:
            _LOG.warning("plugin.warned", place=self.place.title, warning=warning)

    def _make_link(
        self, channel: grpc.aio.Channel, attachment_id: str, endpoint: str, introduction: Introduction
    ) -> InstanceLink:
        identity = LinkIdentity(
            instance_id=introduction.instance_id,
            attachment_id=attachment_id,
            endpoint=endpoint,
            started_at_s=introduction.started_at_s,
            max_message_bytes=introduction.max_message_bytes,
        )
        in_step = [item for item in introduction.plugins if item.keeps_state]
        feed = None
        if in_step:
            needs = (need for item in in_step for need in item.needs)
            feed = InstanceFeed(self._seams.state, needs)
        self._trouble.clear()
        frames, warning = frames_to(endpoint, introduction, self.place.allowed_uids)
        if warning:
            self._warn(warning)
        return InstanceLink(
            channel,
            identity,
            feed,
            self._trouble.set,
            self._seams.traffic,
            frames=frames,
        )

    async def _synchronise(self, link: InstanceLink, ends_s: float) -> None:
        """Send the whole state, if the instance keeps a copy, and wait until the instance is ready.

        Raises LostError if the instance is not ready at `ends_s` (monotonic seconds).
        """
        self._enter(State.SYNCING, self.reason)
        self.link = link
        if link.feed is not None:
            await link.sync((self._first_name, "SyncState"), ends_s, full=True)
        while True:
            reply = await probe(link, self._first_name)
            if reply.ready:
                return
            if monotonic_s() > ends_s:
                raise LostError(f"was not ready within {SYNC_BUDGET_S:.0f} s: {reply.message}")
            await asyncio.sleep(0.1)

    async def _reconcile(self, link: InstanceLink, introduction: Introduction, ends_s: float) -> TakenUp:
        """Send the live reservations to the instance. No new ones appear before the instance is active."""
        taken_up = self._start_taking_up()
        for descriptor in introduction.plugins:
            await taken_up.reconcile(link, self._plugins[descriptor.name], descriptor, ends_s)
        return taken_up

    async def begin_term(self) -> None:
        """Begin a new epoch: reconcile the attached instance, which drops what it kept of another epoch.

        An instance that waited in STANDBY is attached now; return after the attempt. An instance that
        attaches later is reconciled then.
        """
        stood_by = not self._leads.is_set()
        if stood_by:
            if self.state is State.STANDBY:
                self.tried.clear()
                self.decided.clear()
            self._leads.set()
            await self.tried.wait()
            return
        if self.standing is None:
            return
        try:
            await self.standing.begin_term()
        except LostError as err:
            # The keeper probes the instance at once. A lost instance is reconciled when it attaches again.
            _LOG.warning("plugin.warned", place=self.place.title, warning=f"new term: {err}")
            self._trouble.set()

    # --- being there -----------------------------------------------------------------------------------

    def _activate(self, link: InstanceLink, introduction: Introduction, taken_up: TakenUp) -> Standing:
        self.instance_id = introduction.instance_id
        self._refused = None
        self.standing = Standing(
            link,
            introduction,
            self._plugins,
            order=next(self._seams.order),
            take_up=self._start_taking_up,
            changed=self._stand_changed,
        )
        self.was_active = True
        self._active_s = monotonic_s()
        self.lost_s = None
        self.standing.offer(taken_up)
        self._stand_changed()
        return self.standing

    def _start_taking_up(self) -> TakenUp:
        return TakenUp(self._seams.cycles, self._seams.state.version.epoch)

    def _stand_changed(self) -> None:
        """Update the state after the chosen instance or this instance's health changed."""
        standing = self.standing
        if standing is None or self._stopping.is_set() or self.state is State.DRAINING:
            return
        state, reason = standing.state
        if state is State.QUARANTINED:
            self._refused = (self.instance_id, reason)
            # Calls of a quarantined plugin to the host are refused too.
            for name in standing.quarantined:
                self._seams.revoke(standing.link.identity.attachment_id, name)
        if not standing.is_silent:
            self.lost_s = None
        elif self.lost_s is None:
            self.lost_s = monotonic_s()
        self._enter(state, reason)

    async def _keep(self, link: InstanceLink, standing: Standing, channel: grpc.aio.Channel) -> str:
        """Probe the instance and update its copy of the state.

        Returns why the connection must end; empty after `stop`. Raises LostError when the instance is lost.
        """
        loop = asyncio.get_running_loop()
        watch = loop.create_task(watch_connection(channel, self._trouble))
        ended = None if self.child is None else loop.create_task(self.child.ended())
        try:
            signals = Signals(self._trouble, self._stopping, ended, lambda: self._end_of(standing))
            return await Prober(link, self._first_name, signals, standing).run()
        finally:
            tasks = [watch] if ended is None else [watch, ended]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- going -----------------------------------------------------------------------------------------

    def _end_of(self, standing: Standing) -> str:
        """Return why a healthy connection must end (replaced, or renewal); empty if it stays."""
        if standing.is_replaced(HEALTHY_S, self._seams.cycles):
            return REPLACED
        return self.peer.renewal()

    async def _drain(
        self, calls: IdentityCalls, link: InstanceLink, standing: Standing, reason: str, *, final: bool
    ) -> None:
        self._enter(State.DRAINING, reason)
        ends_s = monotonic_s() + self._grace_s
        for name in standing.conducts:
            await self._plugins[name].outbox.drained(max(ends_s - monotonic_s(), 0.0))
        standing.withdraw(f"is let go: {reason}")
        await calls.drain(reason, self._grace_s, ends_s, final=final)
        await link.quiet(max(ends_s - monotonic_s(), 0.0))

    async def _rest(self) -> None:
        """Wait until the drained instance is needed again or another process listens at the place."""
        self.lost_s = None
        met = identity_of(self.place.endpoint)
        self._enter(State.DRAINED, f"{REPLACED}; this one is attached again if the newer one fails")
        while all(plugin.is_well for plugin in self._own_plugins):
            if await another_comes(self.place, met, BACKOFF_LOOK_S):
                return

    @property
    def _first_name(self) -> str:
        return next((name for name in self._plugins if name in self._served), self.place.title)

    @property
    def served(self) -> tuple[str, ...]:
        """The plugins of this place, in the order of the configuration.

        In a folder of sockets: those that the instance serves. Elsewhere: those expected at the place.
        """
        return tuple(name for name in self._plugins if name in self._served)

    def serves(self, plugin: str) -> bool:
        """Return True if the plugin is one of `served`."""
        return plugin in self._served

    @property
    def _own_plugins(self) -> list[AttachedPlugin]:
        return [self._plugins[name] for name in self.served]

    def _enter(self, state: State, reason: str) -> None:
        reason = plain(cut(reason))  # The reason may contain text from the instance.
        changed = state is not self.state or reason != self.reason
        self.state, self.reason = state, reason
        settled = state in ATTACHED or state in NOT_NEEDED or state is State.REJECTED
        if settled or state is State.BACKOFF:
            self.tried.set()
        if settled:
            self.decided.set()
        elif state in (State.BACKOFF, State.DRAINING, State.CLOSED):
            self.decided.clear()
        for plugin in self._own_plugins:
            if state in (State.REJECTED, State.BACKOFF) and not plugin.is_attached:
                plugin.absence = f"is not attached: {reason}"
            stood_by = state is State.STANDBY and not self._leads.is_set()
            plugin.stood_by_at.add(self) if stood_by else plugin.stood_by_at.discard(self)
            if plugin.stands_by:
                plugin.absence = "is not attached: this host stands by"
        if changed:
            self.since_s = monotonic_s()
            self._tell(state, reason, settled)

    def _tell(self, state: State, reason: str, settled: bool) -> None:
        """Log a change of state and report lasting ones; intermediate states are logged at debug level."""
        introduction = None if self.standing is None else self.standing.introduction
        self._audit.entered(state, reason, introduction, self.peer)
        if state is State.BACKOFF and reason == self._told_reason:
            return
        change = PlaceChange(
            place=self.place.title,
            plugins=self.served,
            state=state,
            reason=reason,
            instance_id=self.instance_id,
        )
        if settled or state in (State.BACKOFF, State.CLOSED):
            self._told_reason = reason
            told = state in (State.ACTIVE, *NOT_NEEDED, State.CLOSED)
            level = _LOG.info if told else _LOG.warning
            self._seams.listener.place_changed(change)
        else:
            level = _LOG.debug
        level("attachment.changed", **{**asdict(change), "state": state.value})
