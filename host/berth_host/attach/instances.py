"""Which of several instances of one plugin is asked.

The newest one that is well, or whose circuit breaker waits for a call to be tried: nothing else closes it;
where there is none, the newest that is not in quarantine. A newer instance that
fails hands over to an older one as long as that is attached; cycles stay with the instance that began them.
Used by `RemotePlugin`. Source: hot swap of the plugin contract's life; KEP-4563's rule for DRA drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.rpc.conduct import Conduct
from berth_host.rpc.remote.grpc_transport import GrpcTransport
from berth_host.rpc.remote.sender import LinkSender


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
    def age_key(self) -> tuple[float, int]:
        """Greater for the newer one."""
        return self.started_at_s, self.order


def chosen(offers: Sequence[Offer]) -> Offer | None:
    """The one to ask; None where there is none."""
    usable = [offer for offer in offers if not offer.conduct.quarantine]
    well = [offer for offer in usable if not offer.conduct.is_refusing]
    return max(well or usable, key=lambda offer: offer.age_key, default=None)
