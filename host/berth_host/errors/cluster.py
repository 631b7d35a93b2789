"""What a cluster answers instead of doing what it was asked: the same for every adapter.

Raised by `cluster/`, acted on by the scheduling and the binding cycle. The status codes of the API
server that each stands for are named in its docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_host.errors import HostError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that is wrong. `path`: dotted, `[i]` for list items; `problem`: what, and the cure."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ClusterError(HostError):
    """A call to the cluster that did not succeed. Attributes: resource, key (`namespace/name`)."""

    def __init__(self, resource: str, key: str, text: str) -> None:
        self.resource = resource
        self.key = key
        self.text = text
        super().__init__(f"{resource} {key!r}: {text}")


class ConflictError(ClusterError):
    """409: somebody was faster, or the object has moved on. Read it again before trying again."""


class NotFoundError(ClusterError):
    """404: no such object. Trying again does not help."""

    def __init__(self, resource: str, key: str, text: str = "not found") -> None:
        super().__init__(resource, key, text)


class InvalidError(ClusterError):
    """400, 403, 422: refused for what it says. Attribute: problems, one per field, all of them."""

    def __init__(self, resource: str, key: str, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(resource, key, "; ".join(str(problem) for problem in self.problems))


class UnavailableError(ClusterError):
    """500, 503, 504, or no answer at all: the outcome is unknown, the call may be repeated."""
