"""Chooses the instance of a plugin that gets the calls.

The host calls the newest healthy instance. A newer instance whose circuit breaker is half open is on trial:
it gets one cycle at a time, and all other cycles go to the healthy instance. If no instance is healthy, the
host calls the newest one whose breaker waits for a trial call, else the newest one that is not in quarantine.
When a newer instance fails, an older one that is still attached gets the calls. Cycles stay with the instance
that they began with.
Used by `AttachedPlugin`. Source: hot swap of the plugin contract's life; KEP-4563's rule for DRA drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.rpc.conduct import Conduct
from berth_host.rpc.served.grpc_transport import GrpcTransport
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
    conduct: Conduct
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
