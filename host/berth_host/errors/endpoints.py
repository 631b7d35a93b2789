"""What keeps the secure port shut, or from knowing who asks. The tree is drawn in `berth_host.errors`."""

from __future__ import annotations

from berth_host.errors import HostError


class EndpointError(HostError):
    """The server cannot start: the text says what is wrong and what to do."""


class ReviewError(HostError):
    """The API server could not be asked who somebody is, or what they may do."""
