"""Which of several instances of one plugin is asked.

The host asks the newest instance that is well. A newer one whose circuit breaker is half open is on trial: it
gets one cycle at a time, and all others go to the instance that is well. Where none is well the host asks the
newest one whose breaker waits for a trial call, and else the newest one that is not in quarantine. A newer
instance that fails hands over to an older one as long as that is attached; cycles stay with the instance that
began them.
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
"""When the process of an instance started (Unix seconds) and the number of its attachment: greater for the
newer one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """One instance that serves a plugin. `transports`: by profile. `started_at_s`: of its process, as it says
    (Unix seconds); `order`: counts up with each attachment, for processes of one second or of stepped clocks.
    `taken_up`: is called when the instance is asked from now on, or what an instance that is gone was asked.
    `judged`: is called when it is, or is not, the one that is asked any more.
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
    """Return the instance to ask; None where there is none."""
    usable = [offer for offer in offers if not offer.conduct.quarantine]
    open_to_calls = [offer for offer in usable if not offer.conduct.is_refusing]
    well = [offer for offer in open_to_calls if not offer.conduct.complaint]
    return max(well or open_to_calls or usable, key=lambda offer: offer.age_key, default=None)


def on_trial(offers: Sequence[Offer], asked: Offer | None) -> Offer | None:
    """Return the newest instance that would be asked in place of `asked` if one trial call went well."""
    if asked is None or asked.conduct.complaint:
        return None
    newer = (
        offer
        for offer in offers
        if offer.age_key > asked.age_key and offer.conduct.complaint and not offer.conduct.is_refusing
    )
    return max(newer, key=lambda offer: offer.age_key, default=None)
