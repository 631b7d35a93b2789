"""Percentiles of all slices of a scheduler, its longest pause and its collections; the shape of one line of
`-o json`. Made by the command, printed by `rendering.latency`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

PAUSE_MS: Final = 100.0
"""The pause of a loop that counts as too long."""
_SHOWN: Final = 5
_GENERATIONS: Final = ("young", "middle", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One pause of berth's event loop. `ended_s`: Unix seconds. `ms` on the clock, `cpu_ms` of the loop's
    thread: the rest of the time other processes had the core. `collection`: that which ran within the pause,
    "" for none.
    """

    ended_s: float
    ms: float
    cpu_ms: float
    collection: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """One garbage collection of a process. `ended_s`: Unix seconds. `name`: of the generation."""

    ended_s: float
    ms: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One stretch of steady load. `times_ms`: of the pods that were bound. `unbound`: pods that were created
    and had no node when the slice ended. `pauses` of at least 20 ms and `collections` are those of berth.
    `go_collections`: the number of kube-scheduler's collections; `go_pause_ms`: the longest stop for one.
    """

    contender: str
    seconds: float
    times_ms: tuple[float, ...]
    unbound: int = 0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    pauses: tuple[Pause, ...] = ()
    collections: tuple[Collection, ...] = ()
    go_collections: int = 0
    go_pause_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """All slices of one scheduler."""

    slices: tuple[Slice, ...]

    @property
    def contender(self) -> str:
        """The scheduler's name."""
        return self.slices[0].contender

    @property
    def pods(self) -> int:
        """The number of pods that were bound."""
        return sum(len(one.times_ms) for one in self.slices)

    @property
    def unbound(self) -> int:
        """The number of pods that were not bound before their slice ended."""
        return sum(one.unbound for one in self.slices)

    @property
    def pods_per_s(self) -> float:
        """The rate of the bindings."""
        return self.pods / sum(one.seconds for one in self.slices)

    def percentile(self, percent: float) -> float:
        """Return the milliseconds within which so many percent of the pods were bound, by nearest rank; 100:
        the longest; 0 without a pod.
        """
        ordered = sorted(took_ms for one in self.slices for took_ms in one.times_ms)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0

    @property
    def pauses(self) -> list[Pause]:
        """The pauses of berth's event loop, the longest first."""
        return sorted((pause for one in self.slices for pause in one.pauses), key=lambda one: -one.ms)

    @property
    def collections(self) -> dict[str, tuple[int, float]]:
        """By name the number of collections, and the milliseconds of the longest."""
        found: dict[str, tuple[int, float]] = {}
        for one in (item for part in self.slices for item in part.collections):
            count, longest = found.get(one.name, (0, 0.0))
            found[one.name] = count + 1, max(longest, one.ms)
        if count := sum(one.go_collections for one in self.slices):
            found["Go"] = count, max(one.go_pause_ms for one in self.slices)
        return found

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: the command that was run."""
        pauses = self.pauses
        return {
            "contender": self.contender,
            "minutes": round(sum(one.seconds for one in self.slices) / 60, 2),
            "pods": self.pods,
            "unbound": self.unbound,
            "pods_per_s": round(self.pods_per_s, 1),
            "ms": {
                name: round(self.percentile(percent), 3)
                for name, percent in (("p50", 50), ("p99", 99), ("p99.9", 99.9), ("longest", 100))
            },
            "cpu_ms_per_pod": round(1000 * sum(one.cpu_s for one in self.slices) / max(self.pods, 1), 3),
            "memory_mb": round(max(one.memory_mb for one in self.slices), 1),
            "pauses_over_100_ms": sum(pause.ms > PAUSE_MS for pause in pauses),
            "longest_pauses": [
                {
                    "ms": round(pause.ms, 1),
                    "cpu_ms": round(pause.cpu_ms, 1),
                    "collection": pause.collection,
                }
                for pause in pauses[:_SHOWN]
            ],
            "collections": {
                name: {"count": count, "longest_ms": round(longest, 1)}
                for name, (count, longest) in sorted(self.collections.items())
            },
            "command": command,
        }


def noted(
    lines: Sequence[dict[str, Any]], since_s: float
) -> tuple[tuple[Pause, ...], tuple[Collection, ...]]:
    """Return the pauses and collections of the lines of `watched` that ended after `since_s`; each pause with
    the longest collection within it.
    """
    collections = tuple(
        Collection(ended_s=line["ended_s"], ms=line["ms"], name=_GENERATIONS[line["generation"]])
        for line in lines
        if line["what"] == "collection" and line["ended_s"] >= since_s
    )
    pauses = tuple(
        Pause(
            ended_s=line["ended_s"],
            ms=line["ms"],
            cpu_ms=line["cpu_ms"],
            collection=_within(line, collections),
        )
        for line in lines
        if line["what"] == "pause" and line["ended_s"] >= since_s
    )
    return pauses, collections


def _within(pause: dict[str, Any], collections: Sequence[Collection]) -> str:
    began_s = pause["ended_s"] - pause["ms"] / 1000
    own = [one for one in collections if began_s <= one.ended_s <= pause["ended_s"]]
    return max(own, key=lambda one: one.ms).name if own else ""
