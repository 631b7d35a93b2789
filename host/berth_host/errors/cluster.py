"""Errors of calls to a cluster, the same for every adapter.

Raised by `cluster/`, handled by the scheduling and the binding cycle. Each docstring names the API server's
status codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_host.errors import HostError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong field. `path`: dotted, with `[i]` for list items. `problem`: the mistake and the cure."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ClusterError(HostError):
    """A failed call to the cluster. Attributes: resource, key (`namespace/name`), text.

    `server_message`: the API server's own text, if there is one; it is then the whole text of the error,
    because users know it from kubectl and from kube-scheduler's conditions.
    `outcome_known`: False if the call may have taken effect: read the object before deciding.
    """

    outcome_known: bool = True

    def __init__(self, resource: str, key: str, text: str, *, server_message: str = "") -> None:
        self.resource = resource
        self.key = key
        self.text = text
        self.server_message = server_message
        which = [resource, repr(key)] if key else [resource]
        super().__init__(server_message or f"{' '.join(which)}: {text}".removeprefix(": "))


class ConflictError(ClusterError):
    """409: another client changed the object first. Read the object again before a retry."""


class NotFoundError(ClusterError):
    """404: the object does not exist. A retry does not help."""

    def __init__(self, resource: str, key: str, text: str = "not found", *, server_message: str = "") -> None:
        super().__init__(resource, key, text, server_message=server_message)


class GoneError(ClusterError):
    """410: the requested resource version is too old. List again."""


class InvalidError(ClusterError):
    """400, 422: the request's content is invalid. Attribute: problems, one per wrong field."""

    def __init__(
        self, resource: str, key: str, problems: Sequence[FieldProblem], *, server_message: str = ""
    ) -> None:
        self.problems = tuple(problems)
        text = "; ".join(str(problem) for problem in self.problems)
        super().__init__(resource, key, text, server_message=server_message)


class UnauthorizedError(ClusterError):
    """401: the credentials are missing, wrong or expired."""


class ForbiddenError(ClusterError):
    """403: the credentials are valid, but RBAC or an admission plugin refuses the request."""


class TooManyRequestsError(ClusterError):
    """429: not done, retry later. Attribute: retry_after_s, 0 if the server gave no time."""

    def __init__(
        self, resource: str, key: str, text: str, *, retry_after_s: float = 0.0, server_message: str = ""
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(resource, key, text, server_message=server_message)


class UnavailableError(ClusterError):
    """500, 503, 504 or a lost connection: the outcome is unknown, and the call may be repeated."""

    outcome_known = False


class RepeatableError(UnavailableError):
    """500, 503 or a refused connection: kube-scheduler sends a Binding again. Source: kube-scheduler
    `util/utils.go` (Retriable), v1.37.
    """


class TimedOutError(UnavailableError):
    """No answer in time: the outcome is unknown."""


class UnreadableClusterError(HostError):
    """The user may not list kinds of objects of a cluster. `resources`: all these kinds, as a `Need` spells
    them.
    """

    def __init__(self, server: str, resources: Sequence[str], said: str) -> None:
        self.resources = tuple(resources)
        cure = "a ClusterRole must allow the verb list on these resources"
        super().__init__(f"{server}: {', '.join(resources)} cannot be listed ({said}): {cure}")


class ClientConfigError(HostError):
    """The configuration for reaching the API server is missing or wrong. The text ends in the cure."""
