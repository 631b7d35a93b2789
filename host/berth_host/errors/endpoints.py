"""Errors of the secure port and of its callers' identification. `berth_host.errors` has the whole tree."""

from __future__ import annotations

from berth_host.errors import HostError


class EndpointError(HostError):
    """The server of the secure port cannot start. The text has the reason and the cure."""


class ReviewError(HostError):
    """The API server could not review a caller's token or rights."""


class BusyError(HostError):
    """Too many callers wait to be identified, or for a review of their rights."""


class QuestionError(HostError):
    """A question that the host cannot answer as it was asked. The text has the cure."""


class UnknownObjectError(QuestionError):
    """A question about an object that the host does not know."""


class QuestionCutError(QuestionError):
    """The host stopped in the middle of a question."""
