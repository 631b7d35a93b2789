"""Errors of a cluster that refuses a call or cannot be asked: the same for every adapter.

Raised by `cluster/`, acted on by the scheduling and the binding cycle. The status codes of the API
server that each stands for are named in its docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from berth_host.errors import HostError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong field. `path`: dotted, `[i]` for list items; `problem`: the mistake and the cure."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ClusterError(HostError):
    """A call to the cluster that did not succeed. Attributes: resource, key (`namespace/name`), text.

    `server_message`: the API server's own text, which is then the whole text of the error: users know
    it from kubectl and from kube-scheduler's conditions.
    `outcome_known` False: the call may have taken effect: read before deciding.
    """

    outcome_known: ClassVar[bool] = True

    def __init__(self, resource: str, key: str, text: str, *, server_message: str = "") -> None:
        self.resource = resource
        self.key = key
        self.text = text
        self.server_message = server_message
        which = [resource, repr(key)] if key else [resource]
        super().__init__(server_message or f"{' '.join(which)}: {text}".removeprefix(": "))


class ConflictError(ClusterError):
    """409: another writer was faster, or the object has moved on. Read it again before trying again."""


class NotFoundError(ClusterError):
    """404: no such object. Trying again does not help."""

    def __init__(self, resource: str, key: str, text: str = "not found", *, server_message: str = "") -> None:
        super().__init__(resource, key, text, server_message=server_message)


class GoneError(ClusterError):
    """410: the resource version that was asked for is too old. List again."""


class InvalidError(ClusterError):
    """400, 422: refused for its content. Attribute: problems, one per field, all of them."""

    def __init__(
        self, resource: str, key: str, problems: Sequence[FieldProblem], *, server_message: str = ""
    ) -> None:
        self.problems = tuple(problems)
        text = "; ".join(str(problem) for problem in self.problems)
        super().__init__(resource, key, text, server_message=server_message)


class UnauthorizedError(ClusterError):
    """401: the credentials are missing, wrong or expired."""


class ForbiddenError(ClusterError):
    """403: the credentials are good, and RBAC or an admission plugin says no."""


class TooManyRequestsError(ClusterError):
    """429: not done, come back later. Attribute: retry_after_s, 0 where the server did not say."""

    def __init__(
        self, resource: str, key: str, text: str, *, retry_after_s: float = 0.0, server_message: str = ""
    ) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(resource, key, text, server_message=server_message)


class UnavailableError(ClusterError):
    """500, 503, 504, a lost connection: the outcome is unknown, the call may be repeated."""

    outcome_known = False


class TimedOutError(UnavailableError):
    """No answer in time: the outcome is unknown."""


class ClientConfigError(HostError):
    """The configuration for reaching the API server is missing or wrong. The text ends in the cure."""
