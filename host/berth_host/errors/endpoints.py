"""Errors that keep the secure port shut, or from identifying a caller. The tree is drawn in
`berth_host.errors`."""

from __future__ import annotations

from berth_host.errors import HostError


class EndpointError(HostError):
    """The server cannot start: the text has the reason and the cure."""


class ReviewError(HostError):
    """The API server could not be asked for a caller's user or rights."""
