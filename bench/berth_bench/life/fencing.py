"""`Fencing`: the law of the Lease: no host writes while the Lease is another one's, or has run out.

The host promises this for the moment of *sending*. A request that was sent in time may take effect later,
when the next host leads already, as with kube-scheduler's replicas. A node that gets a pod by such a late
request may hold more than fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from berth_host.cluster.port import WatchEvent
from berth_host.model.lease_record import LeaseRecord

from berth_bench.life.api_servers import Arrived

LEASES: Final = "coordination.k8s.io/leases"
_FREE: Final = ("get", "list", "watch")
_NO_WRITES: Final = (LEASES, "events", "events.k8s.io/events")
"""Writes that a host without the Lease may send: for the Lease, and events."""


@dataclass(slots=True)
class _Term:
    """The time of one holder. `until_s`: when the Lease runs out, or is another one's."""

    holder: str
    since_s: float
    until_s: float


class Fencing:
    """The holders of the Lease over time. `broken`: the first write against the law; "" for none.

    `late_count`: the writes that took effect when another host held the Lease already. `renewed_s`: when a
    holder wrote the Lease last; -inf before that.
    """

    def __init__(self, now_s: Callable[[], float], slack_s: float) -> None:
        """`slack_s`: how much sooner the Lease may run out than the sender's clock says, by their drift."""
        self.broken = ""
        self.late_count = 0
        self.renewed_s = -math.inf
        self._now_s = now_s
        self._slack_s = slack_s
        self._terms: list[_Term] = []

    @property
    def holder(self) -> str:
        """The identity in the Lease; "" for nobody."""
        return self._terms[-1].holder if self._terms else ""

    def see(self, event: WatchEvent) -> str:
        """Note a change of the cluster. Return the new holder's identity if it changed, else ""."""
        if event.kind != "Lease" or event.new is None:
            return ""
        record = LeaseRecord.of(event.new.parsed)
        now_s = self._now_s()
        until_s = now_s + record.duration_s if record.holder else math.inf
        if record.holder:
            self.renewed_s = now_s
        before = self.holder
        last = self._terms[-1] if self._terms else None
        if last is not None and last.holder == record.holder and now_s <= last.until_s:
            last.until_s = until_s
            return ""
        if last is not None:
            last.until_s = min(last.until_s, now_s)
        self._terms.append(_Term(record.holder, now_s, until_s))
        return record.holder if record.holder != before else ""

    def arrived(self, request: Arrived) -> None:
        """Judge a request by the moment at which it was sent."""
        if self._is_judged(request) and not self._held(request.client, request.sent_s):
            last = self._terms[-1] if self._terms else _Term("", 0.0, math.inf)
            self.broken = self.broken or (
                f"a host wrote without the Lease: {request.client} sent {request.call}"
                f" {request.resource} {request.key} at {request.sent_s:.6f} s, and the Lease was of"
                f" {_host_of(last.holder) or 'nobody'} from {last.since_s:.6f} s to {last.until_s:.6f} s"
            )

    def is_late(self, request: Arrived) -> bool:
        """Return True for a write that takes effect now, although its sender's name is not in the Lease."""
        late = self._is_judged(request) and _host_of(self.holder) != request.client
        self.late_count += late
        return late

    def _is_judged(self, request: Arrived) -> bool:
        return request.call not in _FREE and request.resource not in _NO_WRITES and bool(request.key)

    def _held(self, client: str, when_s: float) -> bool:
        """Return True if a host held the Lease at a moment, or less than `slack_s` before it."""
        return any(
            _host_of(term.holder) == client and term.since_s <= when_s < term.until_s + self._slack_s
            for term in self._terms
        )


def _host_of(identity: str) -> str:
    """Return the name of the process in an identity, which ends in a UUID."""
    return identity.rpartition("_")[0]
