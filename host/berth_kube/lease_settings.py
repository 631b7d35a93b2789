"""`LeaseSettings`: the Lease of a leader election, and its times. `lease` and `lease_client` get it.

The host hands over its configuration (`leaderElection`), which it has checked.
"""

from __future__ import annotations

from typing import Final, Protocol

JITTER: Final = 1.2
"""A follower waits for `retry_period_s` times 1 to 2.2."""


class LeaseSettings(Protocol):
    """The settings of one leader election, as kube-scheduler's `leaderElection` has them."""

    @property
    def resource_namespace(self) -> str:
        """The namespace of the Lease."""
        ...

    @property
    def resource_name(self) -> str:
        """The name of the Lease."""
        ...

    @property
    def lease_duration_s(self) -> float:
        """Seconds after which a Lease that is not renewed may be taken."""
        ...

    @property
    def renew_deadline_s(self) -> float:
        """Seconds for which the leader retries a renewal before it gives up."""
        ...

    @property
    def retry_period_s(self) -> float:
        """Seconds between two tries."""
        ...
