"""Errors that end `berth scheduler` with exit code 1. Raised in this package, printed by the command."""

from __future__ import annotations

from berth_host.errors import HostError


class ProcessError(HostError):
    """The process cannot go on. The text is one line that says why, with the cure where there is one."""


class LeadershipLostError(ProcessError):
    """Another replica leads, or may: nothing was posted from then on."""


class HostFailedError(ProcessError):
    """Something in the host broke: its state cannot be trusted any more."""
