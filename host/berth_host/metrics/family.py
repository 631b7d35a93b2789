"""The description of a metric family: name, type, stability, labels, buckets.

`families` has the table of all families, `series` their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The type of a family, as in its TYPE line."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family. `stability`: written before the help text. `buckets`: upper bounds without +Inf.

    `gate`: the feature gate without which the family is not shown, as kube-scheduler does not register it;
    empty for a family that is always shown. `deprecated_since`: the version of kube-scheduler that deprecated
    the family, as `1.37.0`; empty for none.
    """

    name: str
    kind: Kind
    stability: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    gate: str = ""
    deprecated_since: str = ""

    @property
    def text(self) -> str:
        """The text of the HELP line, as kube-scheduler composes it."""
        since = f"(Deprecated since {self.deprecated_since}) " if self.deprecated_since else ""
        return f"[{self.stability}] {since}{self.help}"


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` upper bounds, each `factor` times the one before.

    The bounds are multiplied step by step, as in Go, so that they round in the same way.
    """
    bounds, bound = [], start
    for _ in range(count):
        bounds.append(bound)
        bound *= factor
    return tuple(bounds)


def counter(name: str, stability: str, labels: str, help_text: str, gate: str = "") -> Family:
    """Return a counter. `labels`: names, separated by spaces."""
    return Family(name, Kind.COUNTER, stability, tuple(labels.split()), help_text, gate=gate)


def gauge(name: str, stability: str, labels: str, help_text: str, gate: str = "") -> Family:
    """Return a gauge. `labels`: names, separated by spaces."""
    return Family(name, Kind.GAUGE, stability, tuple(labels.split()), help_text, gate=gate)


def histogram(
    name: str, stability: str, labels: str, buckets: tuple[float, ...], help_text: str, gate: str = ""
) -> Family:
    """Return a histogram. `labels`: names, separated by spaces. `buckets`: upper bounds without +Inf."""
    return Family(name, Kind.HISTOGRAM, stability, tuple(labels.split()), help_text, buckets, gate)
