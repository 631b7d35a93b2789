"""Growth of the host, judged by counts and by a line through the second half of a soak.

Resident memory is no judge: on a loaded machine it grows without a leak, as the allocator keeps what a burst
needed. Objects are counted after a full collection, and only a steady rise is a leak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

MIN_SAMPLES: Final = 16
"""The least number of samples from which a line is computed."""
SIGMAS: Final = 3.0
"""The error of a growth, in standard errors of the line's slope."""
DOUBT: Final = 0.75
"""The share of a store's own growth that its entries may differ from ENTRY by."""
ENTRY: Final[Mapping[str, Mapping[str, float]]] = {
    "objects": {"events": 2.0, "attempts": 40.0, "pods": 40.0},
    "blocks": {"events": 20.0, "attempts": 50.0, "pods": 100.0},
    "malloced_bytes": {"events": 700.0, "attempts": 500.0, "pods": 1500.0},
}
"""The growth for each entry of a bounded store, as seen in a soak.

An event that is kept for its repetitions (its JSON, key and times) is dropped after six minutes without
another, or as the oldest of 10 000. An attempt is a diagnosis with its share of the pod's history. The host
keeps the latest attempts of 4096 pods, and as many earlier ones. A pod is its parsed object, its record and
its row.
"""
LIMITS_PERCENT: Final[Mapping[str, float]] = {"objects": 1.0, "blocks": 1.0, "malloced_bytes": 3.0}
"""The growth over the second half from which a figure leaks, by figure."""
_MAX_CORRELATION: Final = 0.7
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Heap:
    """One sample of the host. `at_s`: monotonic seconds; `figures`: by their names in ENTRY; `kept`: entries
    of the stores in ENTRY; `types`: objects by type; `resident_mb`: resident memory.
    """

    at_s: float
    figures: Mapping[str, float]
    kept: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    resident_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of one figure from the middle of the run to its end, in per cent of the figure, with its
    error. `lasts`: True if the last quarter of the run does not contradict it.
    """

    percent: float
    error: float
    lasts: bool

    def is_leak(self, limit_percent: float) -> bool:
        """Return True if the growth without its error reaches the limit, and has not ended."""
        return self.lasts and self.percent - self.error >= limit_percent

    def as_json(self) -> dict[str, float]:
        """Return the two numbers, rounded."""
        return {"percent": round(self.percent, 2), "error": round(self.error, 2)}


def growths(samples: Sequence[Heap]) -> dict[str, Growth]:
    """Return the growth of each figure, by name, without what the stores in ENTRY explain; empty for fewer
    than MIN_SAMPLES samples.
    """
    if len(samples) < MIN_SAMPLES:
        return {}
    return {name: _growth(samples, name, entry) for name, entry in ENTRY.items()}


def resident_growth_percent(samples: Sequence[Heap]) -> float | None:
    """Return the growth of resident memory over the second half, by the same line; None for too few samples.

    Nothing is judged by it.
    """
    if len(samples) < MIN_SAMPLES:
        return None
    line = _Line.through(samples[len(samples) // 2 :], lambda one: one.resident_mb)
    return 100 * line.slope * line.span_s / line.level if line.level else 0.0


def leaking_types(samples: Sequence[Heap]) -> list[tuple[str, int]]:
    """Return the types whose objects grew most in the second half, each with their number; the most first.

    These name a leak that `growths` found. By themselves they are none: a type may replace another one.
    """
    half = samples[len(samples) // 2 :]
    if not half:
        return []
    quarter = max(len(half) // 4, 1)
    found = []
    for name in {name for one in (*half[:quarter], *half[-quarter:]) for name in one.types}:
        first, last = (
            float(np.median([one.types.get(name, 0) for one in part]))
            for part in (half[:quarter], half[-quarter:])
        )
        if last > first:
            found.append((name, round(last - first)))
    return sorted(found, key=lambda one: -one[1])[:_NAMED]


def _growth(samples: Sequence[Heap], name: str, entry: Mapping[str, float]) -> Growth:
    half = samples[len(samples) // 2 :]

    def without_stores(one: Heap) -> float:
        return one.figures[name] - sum(each * one.kept.get(store, 0) for store, each in entry.items())

    level = float(np.median([one.figures[name] for one in half])) or 1.0
    quarter = half[len(half) // 2 :]
    line, last = (_Line.through(part, without_stores) for part in (half, quarter))
    span_s = line.span_s

    def growth(part: Sequence[Heap], line: _Line, *, lasts: bool) -> Growth:
        filled = 0.0
        for store, each in entry.items():
            filling = _Line.through(part, lambda one, store=store: one.kept.get(store, 0))  # type: ignore[misc]
            filled += each * abs(filling.slope) * span_s
        error = SIGMAS * line.slope_error * span_s + DOUBT * filled
        return Growth(100 * line.slope * span_s / level, 100 * error / level, lasts)

    whole = growth(half, line, lasts=last.slope + SIGMAS * last.slope_error >= line.slope / 2)
    if len(quarter) < MIN_SAMPLES // 2:
        return whole
    # The stores may be full only in the last quarter. What is certain there holds for the half.
    return min(whole, growth(quarter, last, lasts=True), key=lambda one: one.error)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line through samples. `slope` per second, with its standard error; `span_s`: the samples' duration;
    `level`: the median of the values.
    """

    slope: float
    slope_error: float
    span_s: float
    level: float

    @classmethod
    def through(cls, samples: Sequence[Heap], value: Callable[[Heap], float]) -> _Line:
        """Return the line of Theil and Sen: the median of the slopes between all pairs of samples, which a
        burst does not bend. Its error is that of the residuals' median deviation; samples that follow each
        other are not independent, which widens it.
        """
        at_s = np.array([one.at_s for one in samples])
        values = np.array([value(one) for one in samples], dtype=float)
        first, second = np.triu_indices(len(values), 1)
        apart_s = at_s[second] - at_s[first]
        slope = float(np.median((values[second] - values[first])[apart_s > 0] / apart_s[apart_s > 0]))
        rest = values - slope * at_s
        rest -= np.median(rest)
        spread = 1.4826 * float(np.median(np.abs(rest)))
        squares = float(np.dot(rest, rest))
        correlation = float(np.dot(rest[1:], rest[:-1])) / squares if squares else 0.0
        correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
        wider = ((1 + correlation) / (1 - correlation)) ** 0.5
        width = float(np.sum((at_s - at_s.mean()) ** 2)) ** 0.5
        return cls(slope, wider * spread / width, float(at_s[-1] - at_s[0]), float(np.median(values)))
