"""`Outbox`: messages that a served plugin must get, in any instance: Unreserve, PostBind, ends of cycles.

Unreserve is delivered at least once: batched, with backoff, until it is acknowledged, and before a new
Reserve of the same pod. PostBind and the ends of cycles are best effort. Messages go to the
active instance, and also to the instance of the cycle, if it is another one (`FormerInstances`). The outbox
exists as long as the host. `attach` sets and removes its sender.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from berth_sdk import chance
from berth_sdk.cycle_state import TrialRef
from berth_sdk.kube_object import ObjectRef

from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.log import get_logger
from berth_host.model.clock import Clock, RealClock, Timer
from berth_host.rpc.served.overdue import Overdue
from berth_host.tracing.attempt_trace import Anchor

_LOG = get_logger()
_BATCH: Final = 256
_MAX_ENDED: Final = 10_000
_POST_BIND_TRIES: Final = 5
_HOPEFUL_TRIES: Final = 5
_FIRST_BACKOFF_S: Final = 0.2
_MAX_BACKOFF_S: Final = 10.0
IDLE_END_S: Final = 1.0
"""The seconds after which ends of cycles that no call has carried are sent in a call of their own."""


@dataclass(slots=True, eq=False)
class Parcel:
    """A reservation to give back, or a pod that was bound.

    `profile`: the profile of the cycle, by schedulerName. `trial`: of a group's cycle; None: the pod was
    scheduled by itself. `anchor`: of a traced attempt. `since_s`: the time when it was added (monotonic
    seconds). `superseded`: an instance got a list of live reservations since then, without this one. `own`:
    the way to the instance of the cycle; None: not known.
    """

    cycle_id: str
    pod: ObjectRef
    node_name: str
    token: bytes
    profile: str
    reason: str = ""
    since_s: float = 0.0
    tries: int = 0
    superseded: bool = False
    waiter: asyncio.Future[None] | None = None
    own: Sender | None = None
    trial: TrialRef | None = None
    anchor: Anchor | None = None


Ended: TypeAlias = tuple[str, CycleEnd]
"""The id of a cycle, and how it ended."""


class Sender(Protocol):
    """The calls that the outbox makes to one instance. They raise PluginError."""

    @property
    def is_there(self) -> bool:
        """True while messages can be sent to the instance."""
        ...

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        """Send Unreserve; return the cycles that the instance acknowledged."""
        ...

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        """Send PostBind."""
        ...

    async def send_end_cycles(self, ended: Sequence[Ended], anchors: Sequence[Anchor] = ()) -> None:
        """Send the ends of cycles. `anchors`: those of traced attempts."""
        ...


class Outbox:
    """The outbox of one plugin. Attributes: plugin, dropped (the number of PostBinds given up)."""

    def __init__(
        self,
        plugin: str,
        clock: Clock | None = None,
        *,
        rng: random.Random | None = None,
        post_bound: Callable[[ObjectRef], None] = lambda pod: None,
    ) -> None:
        """`clock` None: real time, as for every call; a simulated host's time does not wait for plugins.

        `post_bound`: called with the pod of each PostBind that an instance acknowledged.
        """
        self.plugin = plugin
        self.dropped = 0
        self._clock = clock or RealClock()
        self._rng = rng or chance.generator()
        self._acknowledge_post_bind = post_bound
        self._sender: Sender | None = None
        self._former = FormerInstances(plugin)
        self._unreserves: dict[str, Parcel] = {}
        self._overdue = Overdue(plugin, self._clock, self._oldest_since_s)
        self._post_binds: dict[str, Parcel] = {}
        self._ended: dict[str, CycleEnd] = {}
        self._held_ends: dict[str, CycleEnd] = {}
        self._anchors: dict[str, Anchor] = {}
        """The traced attempts of `_ended` and `_held_ends`, by cycle."""
        self._bound: dict[str, Parcel] = {}
        self._post_bound: set[str] = set()
        """The cycles whose PostBind is over, and whose end was not added yet."""
        self._settled: dict[str, list[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._backoff_s = 0.0
        self._timer: Timer | None = None
        self._end_timer: Timer | None = None
        self._carried = False
        """True if a call has carried ends since that timer was set."""
        self._is_closed = False

    # --- sending ---------------------------------------------------------------------------------------

    def attach(self, sender: Sender) -> None:
        """Send all messages, waiting and new ones, to this instance from now on."""
        self._sender = sender
        self._backoff_s = 0.0
        self._wake()

    def detach(self, sender: Sender) -> None:
        """Stop sending to this instance. Messages stay until another instance is attached."""
        if self._sender is not sender:
            return
        self._sender = None
        # The instance still gets the messages of its own cycles, while it is attached.
        for parcel in self._unreserves.values():
            if parcel.own is sender:
                self._former.unreserve(sender, parcel)
        for parcel in self._post_binds.values():
            if parcel.own is sender:
                self._former.post_bind(sender, parcel)
        for cycle_id, outcome in (self._held_ends | self._ended).items():
            self._former.end_cycle(sender, cycle_id, outcome, self._anchors.get(cycle_id))

    async def drained(self, deadline_s: float) -> bool:
        """Send all messages now. Return False if the plugin refuses one, no instance is attached, or time is
        over.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + deadline_s
        while self._sender is not None and self._is_filled:
            if self._end_timer is not None:
                self._end_timer.cancel()
                self._end_timer = None
            self._wake()
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=max(ends_s - loop.time(), 0.0))
            if self._timer is not None or loop.time() >= ends_s:
                break
        await self._former.told(ends_s - loop.time())
        return not self._is_filled

    @property
    def _is_filled(self) -> bool:
        return bool(self._unreserves or self._post_binds or self._ended or self._held_ends)

    async def close(self) -> None:
        """Stop sending; the host stops. Messages that are added later set no timer."""
        self._is_closed = True
        self._sender = None
        self._overdue.close()
        await self._former.close()
        for timer in (self._timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- Unreserve -------------------------------------------------------------------------------------

    @property
    def pending_unreserves(self) -> int:
        """The number of reservations that the plugin has not given back yet."""
        return len(self._unreserves)

    @property
    def oldest_unreserve_s(self) -> float:
        """The age of the oldest of these reservations, in seconds; 0 if there is none."""
        return self._overdue.age_s

    def _oldest_since_s(self) -> float | None:
        return next((parcel.since_s for parcel in self._unreserves.values()), None)

    @property
    def is_delivering(self) -> bool:
        """True if a PostBind is on its way, or a reservation may soon be given back; one that was refused
        many times will not be.
        """
        return bool(self._post_binds) or any(
            parcel.tries < _HOPEFUL_TRIES for parcel in self._unreserves.values()
        )

    async def unreserve(self, parcel: Parcel, deadline_s: float) -> None:
        """Add a reservation to give back, and wait for the acknowledgement.

        Raises PluginError if none comes within the deadline; the parcel stays and is sent again.
        """
        known = self._unreserves.setdefault(parcel.cycle_id, parcel)
        if known is parcel:
            parcel.since_s = self._clock.monotonic_s()
            # A binding cycle that a host without the Lease did not wait for is undone after `close`.
            if not self._is_closed:
                self._overdue.watch()
        if (former := self._former_of(parcel.own)) is not None:
            self._former.unreserve(former, parcel)
        if self._sender is None:
            raise PluginUnavailableError(self.plugin, "Unreserve", "has no instance")
        known.waiter = known.waiter or asyncio.get_running_loop().create_future()
        self._wake()
        try:
            async with asyncio.timeout(deadline_s):
                await asyncio.shield(known.waiter)
        except TimeoutError as err:
            raise PluginTimeoutError(self.plugin, "Unreserve", deadline_s) from err

    async def settled(self, pod_uid: str, deadline_s: float) -> None:
        """Wait until no Unreserve of this pod is left. Raises PluginError when the plugin answered without
        giving back, PluginTimeoutError when it did not answer.
        """
        if not any(parcel.pod.uid == pod_uid for parcel in self._unreserves.values()):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settled.setdefault(pod_uid, []).append(waiter)
        self._wake()
        try:
            async with asyncio.timeout(deadline_s):
                await waiter
        except TimeoutError as err:
            raise PluginTimeoutError(self.plugin, "Unreserve", deadline_s) from err

    # --- Reconcile -------------------------------------------------------------------------------------

    def bound_untold(self) -> list[Parcel]:
        """Return the reservations of bound pods whose PostBind, or end without PostBind, the plugin has not
        received yet.
        """
        return [*self._bound.values()]

    def was_post_bound(self, cycle_id: str) -> bool:
        """Return True for a running cycle whose PostBind is over: its reservation has ended."""
        return cycle_id in self._post_bound

    def given_back(self) -> list[str]:
        """Return the cycles of the reservations that the plugin has yet to give back."""
        return list(self._unreserves)

    def supersede(self, cycle_ids: Sequence[str]) -> None:
        """Limit the further tries for these cycles, which the list of live reservations did not have.

        The tries are reset only once. An instance that answers wrongly is in quarantine before they end.
        """
        for cycle_id in cycle_ids:
            parcel = self._unreserves.get(cycle_id)
            if parcel is not None and not parcel.superseded:
                parcel.superseded, parcel.tries = True, 0

    # --- PostBind and ends -----------------------------------------------------------------------------

    def post_bind(self, parcel: Parcel) -> None:
        """Send a PostBind soon, in a batch."""
        self._post_binds[parcel.cycle_id] = parcel
        if (former := self._former_of(parcel.own)) is not None:
            self._former.post_bind(former, parcel)
        self._wake()

    def end_cycle(
        self,
        cycle_id: str,
        outcome: CycleEnd,
        bound: Parcel | None = None,
        own: Sender | None = None,
        anchor: Anchor | None = None,
    ) -> None:
        """Tell it with the next call; after what the cycle itself still has to send.

        `bound`: the reservation of a pod that was bound; `own`, `anchor`: as of a `Parcel`.
        """
        if anchor is not None:
            self._anchors[cycle_id] = anchor
        if (former := self._former_of(own)) is not None:
            self._former.end_cycle(former, cycle_id, outcome, anchor)
        if bound is not None and cycle_id not in self._post_bound:
            self._bound[cycle_id] = bound
        self._post_bound.discard(cycle_id)
        if cycle_id in self._unreserves or cycle_id in self._post_binds:
            self._held_ends[cycle_id] = outcome
            return
        self._ended[cycle_id] = outcome
        if len(self._ended) > _MAX_ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._bound.pop(oldest, None)
            self._anchors.pop(oldest, None)
        if self._end_timer is None and not self._is_closed:
            self._set_end_timer()

    def take_ended(self, sender: Sender | None = None) -> list[Ended]:
        """Take ends for a call to carry. Call `ended_told` after the call, or `return_ended` if it failed.

        `sender`: the way to the called instance. A call to a former instance carries no ends.
        """
        if not self._ended or self._former_of(sender) is not None:
            return []
        taken = list(self._ended.items())[:_BATCH]
        for cycle_id, _ in taken:
            del self._ended[cycle_id]
        return taken

    def ended_told(self, taken: Sequence[Ended]) -> None:
        """Forget these ends: the call that carried them was answered."""
        self._carried = self._carried or bool(taken)
        for cycle_id, _ in taken:
            self._bound.pop(cycle_id, None)
            if self._anchors:
                self._anchors.pop(cycle_id, None)

    def return_ended(self, taken: Sequence[Ended]) -> None:
        """Keep these ends: the call that carried them failed."""
        for cycle_id, outcome in taken:
            self._ended.setdefault(cycle_id, outcome)

    # --- sending -----------------------------------------------------------------------------------------

    def _former_of(self, own: Sender | None) -> Sender | None:
        """Return `own` if that instance is not called any more, else None."""
        return None if own is self._sender else own

    def _set_end_timer(self) -> None:
        self._carried = False
        self._end_timer = self._clock.call_at(self._clock.monotonic_s() + IDLE_END_S, self._idle)

    def _idle(self) -> None:
        self._end_timer = None
        if self._ended and self._carried:
            self._set_end_timer()  # calls are made: the next call carries the ends since the last call
        elif self._ended:
            self._wake()

    def _wake(self) -> None:
        if self._sender is None or (self._task is not None and not self._task.done()):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._flush(), name=f"outbox-{self.plugin}")

    async def _flush(self) -> None:
        """Send until nothing is left or the plugin does not answer."""
        while (sender := self._sender) is not None:
            try:
                if self._unreserves:
                    await self._flush_unreserves(sender)
                elif self._post_binds:
                    await self._flush_post_binds(sender)
                elif self._ended and self._end_timer is None:
                    await self._flush_ended(sender)
                else:
                    break
            except PluginError as err:
                self._retry_later(err)
                return
        self._backoff_s = 0.0

    async def _flush_unreserves(self, sender: Sender) -> None:
        batch = list(self._unreserves.values())[:_BATCH]
        try:
            done = await sender.send_unreserve(batch)
        except (PluginUnavailableError, PluginTimeoutError) as err:
            _disappoint(batch, err)
            raise
        except PluginError as err:
            _disappoint(self._refused(batch), err)
            raise
        for parcel in batch:
            if parcel.cycle_id in done:
                self._acknowledged(parcel)
        missing = self._refused([parcel for parcel in batch if parcel.cycle_id not in done])
        if missing:
            short = _short(self.plugin, len(batch) - len(missing), len(batch))
            _disappoint(missing, short)
            self._disappoint_reserves(missing, short)
            raise short

    def _disappoint_reserves(self, parcels: Sequence[Parcel], err: PluginError) -> None:
        """Fail the Reserves that wait for these pods: the plugin has answered without giving back."""
        for parcel in parcels:
            for waiter in self._settled.pop(parcel.pod.uid, ()):
                if not waiter.done():
                    waiter.set_exception(err)
                    waiter.exception()  # as below

    def _refused(self, batch: Sequence[Parcel]) -> list[Parcel]:
        """Return the messages to send again: all but those refused several times and known to be over."""
        again = []
        for parcel in batch:
            if parcel.superseded and parcel.tries >= _HOPEFUL_TRIES:
                _LOG.warning("outbox.superseded", plugin=self.plugin, cycle_id=parcel.cycle_id)
                self._acknowledged(parcel)
            else:
                again.append(parcel)
        return again

    def _acknowledged(self, parcel: Parcel) -> None:
        self._unreserves.pop(parcel.cycle_id, None)
        if parcel.waiter is not None and not parcel.waiter.done():
            parcel.waiter.set_result(None)
        self._release_end(parcel.cycle_id)
        uid = parcel.pod.uid
        if not any(other.pod.uid == uid for other in self._unreserves.values()):
            for waiter in self._settled.pop(uid, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def _flush_post_binds(self, sender: Sender) -> None:
        batch = list(self._post_binds.values())[:_BATCH]
        try:
            await sender.send_post_bind(batch)
        except PluginError as err:
            for parcel in batch:
                parcel.tries += 1
                if parcel.tries >= _POST_BIND_TRIES:
                    self._drop_post_bind(parcel, err)
            raise
        if self._sender is not sender:
            # Another instance was attached meanwhile. It took up these reservations as live, and would keep
            # them: it gets the messages, too.
            return
        for parcel in batch:
            self._post_bind_is_over(parcel.cycle_id)
            self._acknowledge_post_bind(parcel.pod)

    def _post_bind_is_over(self, cycle_id: str) -> None:
        """Release the end of the cycle, and list the reservation as live no more: a new instance would keep
        it, because only PostBind, and not the end of a cycle, reaches the class of a plugin.
        """
        self._post_binds.pop(cycle_id, None)
        if cycle_id in self._held_ends:
            self._bound.pop(cycle_id, None)
        else:
            self._post_bound.add(cycle_id)
        self._release_end(cycle_id)

    def _drop_post_bind(self, parcel: Parcel, err: PluginError) -> None:
        self.dropped += 1
        self._post_bind_is_over(parcel.cycle_id)
        _LOG.warning("outbox.dropped", plugin=self.plugin, cycle_id=parcel.cycle_id, error=err.text)

    async def _flush_ended(self, sender: Sender) -> None:
        taken = self.take_ended()
        try:
            anchors = [self._anchors[cycle_id] for cycle_id, _ in taken if cycle_id in self._anchors]
            await sender.send_end_cycles(taken, anchors)
        except PluginError:
            self.return_ended(taken)
            raise
        self.ended_told(taken)

    def _release_end(self, cycle_id: str) -> None:
        outcome = self._held_ends.pop(cycle_id, None)
        if outcome is not None:
            self.end_cycle(cycle_id, outcome)

    def _retry_later(self, err: PluginError) -> None:
        if not self._backoff_s:
            _LOG.warning("outbox.delayed", plugin=self.plugin, error=err.text, waiting=len(self._unreserves))
        self._backoff_s = min(2 * self._backoff_s or _FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        # Full jitter, so that several plugins of one dead process are not tried at the same time.
        delay_s = self._rng.uniform(0.0, self._backoff_s)
        self._timer = self._clock.call_at(self._clock.monotonic_s() + delay_s, self._wake)


def _short(plugin: str, done_count: int, count: int) -> PluginError:
    """Return the error for an acknowledgement that lacks cycles: a violation if it names none at all."""
    if done_count:
        return PluginUnavailableError(
            plugin, "Unreserve", f"acknowledged {done_count} of {count} reservations"
        )
    return PluginProtocolError(
        plugin,
        "Unreserve",
        f"acknowledged none of {count} reservations: done_cycle_ids has to name each that is given back",
    )


def _disappoint(parcels: Sequence[Parcel], err: PluginError) -> None:
    """Wake the waiting tasks with the error; the messages are sent again later."""
    for parcel in parcels:
        parcel.tries += 1
        waiter, parcel.waiter = parcel.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(err)
            waiter.exception()  # read here: the waiting task may be gone, and asyncio would report it


@dataclass(slots=True)
class _Untold:
    """The messages that one instance has yet to get."""

    unreserves: list[Parcel] = field(default_factory=list)
    post_binds: list[Parcel] = field(default_factory=list)
    ended: dict[str, CycleEnd] = field(default_factory=dict)
    anchors: list[Anchor] = field(default_factory=list)
    """The traced attempts of `ended`."""


class FormerInstances:
    """The instances of one plugin that are not called any more, and the messages that wait for them.

    The outbox sends to the active instance, which has got the reservations of all instances (Reconcile). An
    instance that was replaced by a newer one, or that is not ready, still holds the reservations of its own
    cycles. It gets the messages as well, while it is attached. Each message is sent once, beside the outbox,
    so that an instance that hangs delays no other. The next Reconcile brings what the instance missed.
    """

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._untold: dict[Sender, _Untold] = {}
        self._task: asyncio.Task[None] | None = None

    def unreserve(self, sender: Sender, parcel: Parcel) -> None:
        """Send the Unreserve of one of the instance's own reservations."""
        self._add(sender, lambda untold: untold.unreserves.append(parcel))

    def post_bind(self, sender: Sender, parcel: Parcel) -> None:
        """Send the PostBind of one of the instance's own pods."""
        self._add(sender, lambda untold: untold.post_binds.append(parcel))

    def end_cycle(
        self, sender: Sender, cycle_id: str, outcome: CycleEnd, anchor: Anchor | None = None
    ) -> None:
        """Send the end of one of the instance's own cycles. `anchor`: of a traced attempt."""

        def add(untold: _Untold) -> None:
            untold.ended[cycle_id] = outcome
            if anchor is not None:
                untold.anchors.append(anchor)

        self._add(sender, add)

    async def told(self, timeout_s: float) -> None:
        """Wait until everything was sent, `timeout_s` at most."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=max(timeout_s, 0.0))

    async def close(self) -> None:
        """Stop sending; the host stops."""
        self._untold.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _add(self, sender: Sender, add: Callable[[_Untold], None]) -> None:
        if not sender.is_there:
            return
        add(self._untold.setdefault(sender, _Untold()))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell(), name=f"former-{self._plugin}")

    async def _tell(self) -> None:
        while self._untold:
            sender = next(iter(self._untold))
            untold = self._untold.pop(sender)
            if not sender.is_there:
                continue
            try:
                if untold.unreserves:
                    await sender.send_unreserve(untold.unreserves)
                if untold.post_binds:
                    await sender.send_post_bind(untold.post_binds)
                if untold.ended:
                    await sender.send_end_cycles(list(untold.ended.items()), untold.anchors)
            except PluginError as err:
                _LOG.warning("outbox.unheard", plugin=self._plugin, error=err.text)
