"""`Outbox`: messages that a remote plugin must get, from whichever instance: Unreserve, PostBind, ends.

Unreserve is delivered at least once: batched, with backoff, until it is acknowledged, and before a new
Reserve of the same pod. PostBind and the ends of cycles are best effort. What a cycle leaves behind is told
to the instance that the cycle was with, while that is there and hears it at the first try; or else to the
one that is asked. Lives as long as the host; `attach` says who is asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from berth_sdk.kube_object import ObjectRef

from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.log import get_logger
from berth_host.model.clock import Clock, RealClock, Timer
from berth_host.rpc.cycle import CycleEnd

_LOG = get_logger()
_BATCH: Final = 256
_MAX_ENDED: Final = 10_000
_POST_BIND_TRIES: Final = 5
_HOPEFUL_TRIES: Final = 5
_FIRST_BACKOFF_S: Final = 0.2
_MAX_BACKOFF_S: Final = 10.0
IDLE_END_S: Final = 1.0
"""Ends of cycles that no call carried away within this time go in a call of their own."""


@dataclass(slots=True, eq=False)
class Parcel:
    """A reservation to give back, or a pod that was bound.

    `superseded`: an instance has heard since then which reservations are alive, this one not among them.
    `own`: the way to the instance that the cycle was with; None: it is not known.
    """

    cycle_id: str
    pod: ObjectRef
    node_name: str
    token: bytes
    reason: str = ""
    tries: int = 0
    superseded: bool = False
    waiter: asyncio.Future[None] | None = None
    own: Sender | None = None


@dataclass(frozen=True, slots=True)
class _End:
    outcome: CycleEnd
    own: Sender | None


Ended: TypeAlias = tuple[str, CycleEnd]
"""The id of a cycle, and how it ended."""


class Sender(Protocol):
    """The calls that the outbox makes, to one instance. They raise PluginError."""

    @property
    def is_there(self) -> bool:
        """Whether the instance can be told anything."""
        ...

    async def send_unreserve(self, items: Sequence[Parcel]) -> set[str]:
        """The cycles that are done."""
        ...

    async def send_post_bind(self, items: Sequence[Parcel]) -> None:
        """The pods are bound."""
        ...

    async def send_end_cycles(self, ended: Sequence[Ended]) -> None:
        """The cycles are over."""
        ...


class Outbox:
    """Of one plugin. Attributes: plugin, dropped (PostBinds given up)."""

    def __init__(self, plugin: str, clock: Clock | None = None, *, rng: random.Random | None = None) -> None:
        """`clock` None: real time, as for every call; a simulated host's time does not wait for plugins."""
        self.plugin = plugin
        self.dropped = 0
        self._clock = clock or RealClock()
        self._rng = rng or random.Random()
        self._sender: Sender | None = None
        self._unreserves: dict[str, Parcel] = {}
        self._post_binds: dict[str, Parcel] = {}
        self._ended: dict[str, _End] = {}
        self._held_ends: dict[str, _End] = {}
        self._bound: dict[str, Parcel] = {}
        self._settled: dict[str, list[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._backoff_s = 0.0
        self._timer: Timer | None = None
        self._end_timer: Timer | None = None
        self._carried = False
        """Whether a call has brought ends along since that timer was set."""

    # --- sending ---------------------------------------------------------------------------------------

    def attach(self, sender: Sender) -> None:
        """This instance is asked from now on: everything goes to it that is not for another one."""
        self._sender = sender
        self._backoff_s = 0.0
        self._wake()

    def detach(self, sender: Sender) -> None:
        """The instance is not asked any more; nothing is lost."""
        if self._sender is sender:
            self._sender = None

    async def drained(self, deadline_s: float) -> bool:
        """Send all messages now. False: the plugin refuses one, no instance is there, or time is over."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + deadline_s
        while self._is_filled and self._has_recipient:
            if self._end_timer is not None:
                self._end_timer.cancel()
                self._end_timer = None
            self._wake()
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=max(ends_s - loop.time(), 0.0))
            if self._timer is not None or loop.time() >= ends_s:
                break
        return not self._is_filled

    @property
    def _has_recipient(self) -> bool:
        """Whether there is an instance for something that waits."""
        if self._sender is not None:
            return True
        waiting: tuple[Parcel | _End, ...] = (
            *self._unreserves.values(),
            *self._post_binds.values(),
            *self._ended.values(),
        )
        return any(self._recipient(one) is not None for one in waiting)

    def _recipient(self, one: Parcel | _End) -> Sender | None:
        """Whom to tell. An instance that the first try did not reach may hang: then the one that is asked."""
        own = one.own
        tried = isinstance(one, Parcel) and one.tries and self._sender is not None
        return own if own is not None and own.is_there and not tried else self._sender

    @property
    def _is_filled(self) -> bool:
        return bool(self._unreserves or self._post_binds or self._ended or self._held_ends)

    async def close(self) -> None:
        """The host ends: stop sending."""
        self._sender = None
        for timer in (self._timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- Unreserve -------------------------------------------------------------------------------------

    @property
    def pending_unreserves(self) -> int:
        """Reservations that the plugin has not given back yet."""
        return len(self._unreserves)

    @property
    def is_delivering(self) -> bool:
        """Whether a reservation may soon be given back; one that was refused many times will not be."""
        return any(parcel.tries < _HOPEFUL_TRIES for parcel in self._unreserves.values())

    async def unreserve(self, parcel: Parcel, deadline_s: float) -> None:
        """Put it in, and wait for the acknowledgement for a while.

        Raises PluginError when that did not come; the parcel stays and is sent again.
        """
        known = self._unreserves.setdefault(parcel.cycle_id, parcel)
        if self._recipient(known) is None:
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
        """Reservations of bound pods that the plugin still takes for alive: it has not heard of the end."""
        return [*self._bound.values()]

    def given_back(self) -> list[str]:
        """The cycles of the reservations that the plugin has yet to give back."""
        return list(self._unreserves)

    def supersede(self, cycle_ids: Sequence[str]) -> None:
        """The plugin has the list of what is alive, without these: a few more tries are enough, and they are
        counted once: an instance that answers wrongly is in quarantine before they are over.
        """
        for cycle_id in cycle_ids:
            parcel = self._unreserves.get(cycle_id)
            if parcel is not None and not parcel.superseded:
                parcel.superseded, parcel.tries = True, 0

    # --- PostBind and ends -----------------------------------------------------------------------------

    def post_bind(self, parcel: Parcel) -> None:
        """Tell it soon, in a batch."""
        self._post_binds[parcel.cycle_id] = parcel
        self._wake()

    def end_cycle(
        self, cycle_id: str, outcome: CycleEnd, bound: Parcel | None = None, own: Sender | None = None
    ) -> None:
        """Tell it with the next call; after what the cycle itself still has to send.

        `bound`: the reservation of a pod that was bound; `own`: as of a `Parcel`.
        """
        if bound is not None:
            self._bound[cycle_id] = bound
        end = _End(outcome, own)
        if cycle_id in self._unreserves or cycle_id in self._post_binds:
            self._held_ends[cycle_id] = end
            return
        self._ended[cycle_id] = end
        if len(self._ended) > _MAX_ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._bound.pop(oldest, None)
        if self._end_timer is None:
            self._set_end_timer()

    def take_ended(self, sender: Sender | None = None) -> list[Ended]:
        """Ends for a call to carry; then `ended_told`, or `return_ended` if it failed. `sender`: the way to
        the instance that is called; None: any.
        """
        if not self._ended:
            return []
        taken = [
            (cycle_id, end.outcome)
            for cycle_id, end in self._ended.items()
            if sender is None or self._recipient(end) is sender
        ][:_BATCH]
        for cycle_id, _ in taken:
            del self._ended[cycle_id]
        return taken

    def ended_told(self, taken: Sequence[Ended]) -> None:
        """The call that carried these was answered."""
        self._carried = self._carried or bool(taken)
        for cycle_id, _ in taken:
            self._bound.pop(cycle_id, None)

    def return_ended(self, taken: Sequence[Ended], sender: Sender | None = None) -> None:
        """The call that carried these failed. `sender`: as they were taken with."""
        for cycle_id, outcome in taken:
            self._ended.setdefault(cycle_id, _End(outcome, sender))

    # --- sending -----------------------------------------------------------------------------------------

    def _set_end_timer(self) -> None:
        self._carried = False
        self._end_timer = self._clock.call_at(self._clock.monotonic_s() + IDLE_END_S, self._idle)

    def _idle(self) -> None:
        self._end_timer = None
        carried = self._carried and all(self._recipient(end) is self._sender for end in self._ended.values())
        if self._ended and carried:
            self._set_end_timer()  # there are calls; the next one takes along what has ended since the last
        elif self._ended:
            self._wake()

    def _wake(self) -> None:
        if (self._task is not None and not self._task.done()) or not self._has_recipient:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._flush(), name=f"outbox-{self.plugin}")

    async def _flush(self) -> None:
        """Send until nothing is left or an instance does not answer."""
        try:
            while (
                await self._flush_unreserves()
                or await self._flush_post_binds()
                or (self._end_timer is None and await self._flush_ended())
            ):
                pass
        except PluginError as err:
            self._retry_later(err)
            return
        self._backoff_s = 0.0

    def _batch(self, parcels: Mapping[str, Parcel]) -> tuple[Sender | None, list[Parcel]]:
        """The instance that is told next, and what it is told; None: there is none to tell."""
        told = ((self._recipient(parcel), parcel) for parcel in parcels.values())
        there = [(sender, parcel) for sender, parcel in told if sender is not None]
        if not there:
            return None, []
        first = there[0][0]
        return first, [parcel for sender, parcel in there if sender is first][:_BATCH]

    async def _flush_unreserves(self) -> bool:
        """Send one batch; False: there was nothing to send."""
        sender, batch = self._batch(self._unreserves)
        if sender is None:
            return False
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
        return True

    def _disappoint_reserves(self, parcels: Sequence[Parcel], err: PluginError) -> None:
        """Tell new Reserves of these pods at once: the plugin has answered, and it was no yes."""
        for parcel in parcels:
            for waiter in self._settled.pop(parcel.pod.uid, ()):
                if not waiter.done():
                    waiter.set_exception(err)
                    waiter.exception()  # as below

    def _refused(self, batch: Sequence[Parcel]) -> list[Parcel]:
        """The messages to send again: all but those refused several times and known to be over."""
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

    async def _flush_post_binds(self) -> bool:
        sender, batch = self._batch(self._post_binds)
        if sender is None:
            return False
        try:
            await sender.send_post_bind(batch)
        except PluginError as err:
            for parcel in batch:
                parcel.tries += 1
                if parcel.tries >= _POST_BIND_TRIES:
                    self._drop_post_bind(parcel, err)
            raise
        for parcel in batch:
            self._post_binds.pop(parcel.cycle_id, None)
            self._release_end(parcel.cycle_id)
        return True

    def _drop_post_bind(self, parcel: Parcel, err: PluginError) -> None:
        self.dropped += 1
        self._post_binds.pop(parcel.cycle_id, None)
        self._release_end(parcel.cycle_id)
        _LOG.warning("outbox.dropped", plugin=self.plugin, cycle_id=parcel.cycle_id, error=err.text)

    async def _flush_ended(self) -> bool:
        recipients = (self._recipient(end) for end in self._ended.values())
        sender = next((one for one in recipients if one is not None), None)
        if sender is None:
            return False
        taken = self.take_ended(sender)
        try:
            await sender.send_end_cycles(taken)
        except PluginError:
            self.return_ended(taken, sender)
            raise
        self.ended_told(taken)
        return True

    def _release_end(self, cycle_id: str) -> None:
        end = self._held_ends.pop(cycle_id, None)
        if end is not None:
            self.end_cycle(cycle_id, end.outcome, own=end.own)

    def _retry_later(self, err: PluginError) -> None:
        if not self._backoff_s:
            _LOG.warning("outbox.delayed", plugin=self.plugin, error=err.text, waiting=len(self._unreserves))
        self._backoff_s = min(2 * self._backoff_s or _FIRST_BACKOFF_S, _MAX_BACKOFF_S)
        # Full jitter, so that several plugins of one dead process do not come back in step.
        delay_s = self._rng.uniform(0.0, self._backoff_s)
        self._timer = self._clock.call_at(self._clock.monotonic_s() + delay_s, self._wake)


def _short(plugin: str, done_count: int, count: int) -> PluginError:
    """An answer that lacks cycles: one that names none at all was not written for this call."""
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
    """Tell the waiting tasks that it will take longer."""
    for parcel in parcels:
        parcel.tries += 1
        waiter, parcel.waiter = parcel.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(err)
            waiter.exception()  # read here: the waiting task may be gone, and asyncio would report it
