"""The findings of a simulation, as values, and their form in `-o json` and `-o yaml`.

`outcome.report_of` makes them, `rendering` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A pod on a node. `pod`: `namespace/name`; `owner`: `Deployment/namespace/name` for an expanded pod."""

    pod: str
    node: str
    annotations: Mapping[str, str]
    owner: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`, with `owner` if there is one."""
        owner = {"owner": self.owner} if self.owner else {}
        return {"pod": self.pod, "node": self.node, "annotations": dict(self.annotations)} | owner


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A pod without a node, and the reason."""

    pod: str
    message: str
    owner: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`, with `owner` if there is one."""
        owner = {"owner": self.owner} if self.owner else {}
        return {"pod": self.pod, "message": self.message} | owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a run.

    `finished`: pods of the input that have ended, and are in no list. `newly_placed`: pods that this run
    bound. `seconds`: real time of the scheduling. `gaps`: signs of mistakes in the input, one sentence each.
    `lapses`: see `lapses_of`. `undecided`: pods that an interrupted run did not try.
    """

    nodes: int
    placed: int
    pending: int
    finished: int
    newly_placed: int
    seconds: float
    seed: int
    gaps: tuple[str, ...] = ()
    lapses: tuple[str, ...] = ()
    undecided: int = 0
    is_interrupted: bool = False

    @property
    def pods(self) -> int:
        """The number of pods in all lists together."""
        return self.placed + self.pending + self.undecided

    @property
    def pods_per_s(self) -> float:
        """The number of pods that this run bound per second of real time."""
        return self.newly_placed / self.seconds if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`, with `interrupted` and `undecided` if the run was interrupted."""
        interrupted = {"interrupted": True, "undecided": self.undecided} if self.is_interrupted else {}
        return {
            "nodes": self.nodes,
            "pods": self.pods,
            "placed": self.placed,
            "pending": self.pending,
            "finished": self.finished,
            "seconds": round(self.seconds, 3),
            "pods_per_s": round(self.pods_per_s, 1),
            "seed": self.seed,
            "gaps": list(self.gaps),
            "lapses": list(self.lapses),
        } | interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Every pod of the input in exactly one list, in the order of the input."""

    placements: tuple[Placement, ...]
    pending: tuple[PendingPod, ...]
    summary: Summary
    undecided: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`, with `undecided` if the run was interrupted."""
        undecided = {"undecided": list(self.undecided)} if self.summary.is_interrupted else {}
        return {
            "placements": [placement.as_json() for placement in self.placements],
            "pending": [pod.as_json() for pod in self.pending],
            **undecided,
            "summary": self.summary.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCost:
    """The time that one plugin took for one kind of call. `p99_ms`: exact up to a factor of 2.

    `alike`: calls about a pod that is equal to an earlier one; None: the plugin declares `depends_on`, or no
    answer of this call can be kept.
    """

    plugin: str
    call: str
    served: bool
    calls: int
    total_ms: float
    p99_ms: float
    failures: int = 0
    alike: int | None = None

    @property
    def mean_ms(self) -> float:
        """The mean time of a call in milliseconds."""
        return self.total_ms / self.calls if self.calls else 0.0
