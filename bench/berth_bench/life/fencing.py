"""`Fencing`: the law of the Lease: no host writes while the Lease is another one's.

The host promises this for the moment of *sending*. A request that was sent in time may take effect later,
when the next host leads already, as with kube-scheduler's replicas. A node that gets a pod by such a late
request may hold more than fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from berth_host.cluster.port import WatchEvent
from berth_host.model.lease_record import LeaseRecord

from berth_bench.life.api_servers import Arrived

LEASES: Final = "coordination.k8s.io/leases"
_FREE: Final = ("get", "list", "watch")
_NO_WRITES: Final = (LEASES, "events", "events.k8s.io/events")
"""Writes that a host without the Lease may send: for the Lease, and events."""


class Fencing:
    """The holders of the Lease over time. `broken`: the first write against the law; "" for none.

    `late_count`: the writes that took effect when another host held the Lease already.
    """

    def __init__(self, now_s: Callable[[], float], slack_s: float) -> None:
        """`slack_s`: how much sooner the Lease may run out than the sender's clock says, by their drift."""
        self.broken = ""
        self.late_count = 0
        self._now_s = now_s
        self._slack_s = slack_s
        self._holders: list[tuple[float, str]] = []
        """Since when which identity has held the Lease; "": nobody."""

    @property
    def holder(self) -> str:
        """The identity of the holder; "" for nobody."""
        return self._holders[-1][1] if self._holders else ""

    def see(self, event: WatchEvent) -> str:
        """Note a change of the cluster. Return the new holder's identity if it changed, else ""."""
        if event.kind != "Lease" or event.new is None:
            return ""
        holder = LeaseRecord.of(event.new.parsed).holder
        if holder == self.holder:
            return ""
        self._holders.append((self._now_s(), holder))
        return holder

    def arrived(self, request: Arrived) -> None:
        """Judge a request by the moment at which it was sent."""
        if self._is_judged(request) and not self._held(request.client, request.sent_s):
            self.broken = self.broken or (
                f"a host wrote while another one held the Lease: {request.client} sent {request.call}"
                f" {request.resource} {request.key} at {request.sent_s:.6f} s, and the Lease was of"
                f" {_host_of(self.holder) or 'nobody'} since {self._holders[-1][0]:.6f} s"
            )

    def is_late(self, request: Arrived) -> bool:
        """Return True for a write that takes effect now, while another host holds the Lease."""
        late = self._is_judged(request) and not self._held(request.client, self._now_s())
        self.late_count += late
        return late

    def _is_judged(self, request: Arrived) -> bool:
        return request.call not in _FREE and request.resource not in _NO_WRITES and bool(request.key)

    def _held(self, client: str, when_s: float) -> bool:
        """Return True if a host held the Lease at a moment, or less than `slack_s` before it."""
        until_s = math.inf
        for since_s, holder in reversed(self._holders):
            if until_s <= when_s - self._slack_s:
                return False
            if since_s <= when_s and _host_of(holder) == client:
                return True
            until_s = since_s
        return False


def _host_of(identity: str) -> str:
    """Return the name of the process in an identity, which ends in a UUID."""
    return identity.rpartition("_")[0]
