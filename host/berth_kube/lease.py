"""`LeaderElector`: leader election with a Lease; only the replica that holds the Lease schedules.

Run by `process`: `acquire` returns when this replica leads, `renew` when it has lost the Lease, `release`
gives the Lease up at a regular stop. Clocks of replicas are never compared: a Lease is valid for the duration
that its holder wrote, from the moment at which *this* replica first read the Lease in its current form.

`kubernetes.aio.leaderelection` (37.0.2) is not used: it measures with the wall clock, retries without jitter,
counts no transitions, has no limit for a call that hangs, and never releases a Lease.
One step is stricter than client-go's: a leader that reads another holder's name stops at once, not after
`renew_deadline_s`. Source: `k8s.io/client-go/tools/leaderelection/leaderelection.go`, v0.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    UnauthorizedError,
)
from berth_host.log import get_logger
from berth_host.model.clock import Clock, RealClock, sleep
from berth_host.model.lease_record import LeaseRecord
from berth_sdk import chance
from berth_sdk.rfc3339 import format_micro_time

from berth_kube.lease_settings import JITTER, LeaseSettings

log = get_logger()
T = TypeVar("T")

RELEASE_S: Final = 5.0
"""Seconds to try to release the Lease; Kubernetes kills a terminating pod after 30 s."""
_RELEASED_DURATION_S: Final = 1
_TOLERATED_EXPIRY_S: Final = 20.0


class Leases(Protocol):
    """The calls about one Lease, each bounded in time. They raise ClusterError."""

    async def get(self) -> Mapping[str, Any] | None:
        """Read the Lease; return None if it does not exist."""
        ...

    async def create(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the Lease. Raises ConflictError if it exists."""
        ...

    async def update(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the Lease. Raises ConflictError if its resource version is not that of `lease`."""
        ...

    def record_event(self, lease: Mapping[str, Any], message: str) -> None:
        """Write a LeaderElection event about the Lease, in the background."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectorOptions:
    """The elector's clock, random numbers and callbacks.

    `on_leading` is called with True or False on every change. `on_slow_path` is called when a leader has to
    read the Lease before it can renew. `draw` returns a number in [0, 1).
    """

    clock: Clock = field(default_factory=RealClock)
    draw: Callable[[], float] = chance.share
    on_leading: Callable[[bool], None] = lambda _: None
    on_slow_path: Callable[[], None] = lambda: None


class LeaderElector:
    """The leader election of one replica. `identity` must be unique among all processes, also past ones."""

    def __init__(
        self, leases: Leases, identity: str, settings: LeaseSettings, options: ElectorOptions | None = None
    ) -> None:
        """Take settings that can work: `process.lease_settings` of `berth_host` checks them."""
        self.identity = identity
        self._leases = leases
        self._settings = settings
        self._options = options or ElectorOptions()
        self._clock = self._options.clock
        self._lease: Mapping[str, Any] = {}
        self._observed = LeaseRecord(holder="", duration_s=0, acquire_time="", renew_time="", transitions=0)
        self._observed_at_s = -math.inf
        self._sent = self._observed
        """The record that was sent last, and when."""
        self._sent_at_s = -math.inf
        self._reported = ""
        self._may_hold = False
        self._leads = False

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last read; "" for none."""
        return self._observed.holder

    @property
    def is_leader(self) -> bool:
        """True if this replica held the Lease when it was last read."""
        return self._observed.holder == self.identity

    @property
    def has_run_out(self) -> bool:
        """True while this replica acts as leader although its Lease has run out or belongs to another one."""
        return self._leads and not (self.is_leader and self._is_valid())

    def complaint(self) -> str:
        """Return the renewal's problem, for the health endpoint; "" without one."""
        age_s = self._clock.monotonic_s() - self._observed_at_s
        if self.is_leader and age_s > self._settings.lease_duration_s + _TOLERATED_EXPIRY_S:
            return f"failed election to renew leadership on lease {self._settings.resource_name}"
        return ""

    async def acquire(self) -> None:
        """Wait until this replica leads.

        Raises ForbiddenError, UnauthorizedError and InvalidError, of the first try only: later errors are
        retried.
        """
        is_first = True
        while not await self._tried(self._settings.renew_deadline_s, raises_refusal=is_first):
            is_first = False
            self._report_transition()
            pause_s = self._settings.retry_period_s * (1 + self._options.draw() * JITTER)
            await sleep(self._clock, pause_s)
        self._report_transition()
        self._leases.record_event(self._lease, f"{self.identity} became leader")
        self._set_leading(True)

    async def renew(self) -> None:
        """Renew the Lease until it is lost."""
        while await self._renewed():
            self._report_transition()
            await sleep(self._clock, self._settings.retry_period_s)
        self._report_transition()
        self._set_leading(False)

    async def release(self) -> None:
        """Release the Lease if this replica may hold it, so that another one need not wait for its expiry."""
        self._set_leading(False)
        if not (self.is_leader or self._may_hold):
            return
        try:
            await self._within(min(self._settings.renew_deadline_s, RELEASE_S), self._released())
        except (ClusterError, TimeoutError) as err:
            log.warning("lease.not_released", lease=self._key, error=str(err) or "no answer in time")

    # --- one try -------------------------------------------------------------------------------

    async def _renewed(self) -> bool:
        """Retry the renewal; return False when the deadline passed or another replica holds the Lease."""
        deadline_s = self._clock.monotonic_s() + self._settings.renew_deadline_s
        while (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            if await self._tried(left_s):
                return True
            if self._observed.holder not in ("", self.identity):
                return False
            left_s = deadline_s - self._clock.monotonic_s()
            await sleep(self._clock, min(self._settings.retry_period_s, max(left_s, 0.0)))
        return False

    async def _tried(self, limit_s: float, *, raises_refusal: bool = False) -> bool:
        try:
            return await self._within(limit_s, self._acquired_or_renewed())
        except (ForbiddenError, UnauthorizedError, InvalidError) as err:
            if raises_refusal:
                raise
            self._log_failure(err)
        except (ClusterError, TimeoutError) as err:
            self._log_failure(err)
        return False

    def _log_failure(self, err: Exception) -> None:
        log.warning("lease.not_updated", lease=self._key, error=str(err) or "no answer in time")

    async def _acquired_or_renewed(self) -> bool:
        if self.is_leader and self._is_valid():
            try:
                await self._write(self._record(renews=self._observed))
            except ClusterError as err:
                # The Lease changed since it was read, or the answer was lost: read it again.
                log.debug("lease.read_again", lease=self._key, error=str(err))
                self._options.on_slow_path()
            else:
                return True
        seen = await self._leases.get()
        if seen is None:
            await self._create(self._record())
            return True
        self._observe(seen)
        if self.is_leader:
            await self._write(self._record(renews=self._observed))
            return True
        if self._observed.holder and self._is_valid():
            return False
        await self._write(self._record(transitions=self._observed.transitions + 1))
        return True

    async def _released(self) -> None:
        while (seen := await self._leases.get()) is not None:
            self._observe(seen)
            if not self.is_leader:
                return
            given_up = replace(
                self._record(transitions=self._observed.transitions),
                holder="",
                duration_s=_RELEASED_DURATION_S,
            )
            # A cancelled renewal may still reach the server between the read and this write.
            with contextlib.suppress(ConflictError):
                await self._write(given_up)
                log.info("lease.released", lease=self._key)
                return

    # --- the Lease as last seen ------------------------------------------------------------------

    def _is_valid(self) -> bool:
        return self._observed_at_s + self._observed.duration_s > self._clock.monotonic_s()

    def _observe(self, lease: Mapping[str, Any]) -> None:
        """Store a Lease that was read. The Lease's validity starts again only if its record changed."""
        record = LeaseRecord.of(lease)
        self._lease = lease
        if record == self._sent:
            # Its answer was lost. Other replicas may have read it at any time since it was sent.
            self._take(record, self._sent_at_s)
        elif record.holder == self.identity:
            # An earlier write, after which another one was sent that did not take effect.
            self._take(record, self._observed_at_s)
        elif record != self._observed:
            self._take(record, self._clock.monotonic_s())
        self._may_hold = self.is_leader

    def _take(self, record: LeaseRecord, at_s: float) -> None:
        self._observed = record
        self._observed_at_s = at_s

    def _record(self, renews: LeaseRecord | None = None, transitions: int = 0) -> LeaseRecord:
        now = format_micro_time(self._clock.now_s())
        return LeaseRecord(
            holder=self.identity,
            duration_s=int(self._settings.lease_duration_s),
            acquire_time=now if renews is None else renews.acquire_time,
            renew_time=now,
            transitions=transitions if renews is None else renews.transitions,
        )

    async def _write(self, record: LeaseRecord) -> None:
        self._sends(record)
        self._lease = await self._leases.update(record.put_into(self._lease))
        self._take(record, self._sent_at_s)

    async def _create(self, record: LeaseRecord) -> None:
        self._sends(record)
        metadata = {"name": self._settings.resource_name, "namespace": self._settings.resource_namespace}
        self._lease = await self._leases.create(record.put_into({"metadata": metadata}))
        self._take(record, self._sent_at_s)

    def _sends(self, record: LeaseRecord) -> None:
        """Note a write. The Lease is valid from now on: others may read it before the answer arrives."""
        self._may_hold = True
        self._sent, self._sent_at_s = record, self._clock.monotonic_s()

    def _set_leading(self, leads: bool) -> None:
        self._leads = leads
        self._options.on_leading(leads)

    def _report_transition(self) -> None:
        if self._observed.holder != self._reported:
            self._reported = self._observed.holder
            log.info("leader.changed", lease=self._key, leader=self._reported, is_me=self.is_leader)

    @property
    def _key(self) -> str:
        return f"{self._settings.resource_namespace}/{self._settings.resource_name}"

    async def _within(self, limit_s: float, call: Coroutine[Any, Any, T]) -> T:
        """Return the call's result. Raises TimeoutError after `limit_s` seconds of the elector's clock."""
        task = asyncio.ensure_future(call)
        timed_out = False

        def end() -> None:
            nonlocal timed_out
            timed_out = True
            task.cancel()

        timer = self._clock.call_at(self._clock.monotonic_s() + limit_s, end)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            # If the caller is cancelled when the limit passes, the cancellation must not get lost.
            if timed_out and not (caller is not None and caller.cancelling()):
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
