"""The host's only way to count and to time.

    Counters      how often something happened, by labels
    Histograms    how long something took, or how large it was, by labels; `Histogram` is one of its series
    SeriesBy      the series of a family by whatever the writer has at hand
    Readings      values that other objects keep, read when the metrics are read

To time something, read `instant_s` before it, and pass the reading to `Histogram.since` after it.

An observation is a bisection and two additions, some 0.2 us; prometheus-client's own costs five times that,
with locks that one loop does not need. It is asked only to write the text (`exposition`).
"""

from __future__ import annotations

import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from berth_host.metrics.families import Family, Kind

K = TypeVar("K", bound=Hashable)
instant_s: Final = time.perf_counter
"""Returns a reading of the clock by which everything is timed, in seconds."""
Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


class Histogram:
    """One series. `counts[i]`: the observations in bucket i alone; the last bucket has no upper bound.
    `highest`: the highest value, 0 before the first.
    """

    __slots__ = ("bounds", "counts", "highest", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = self.highest = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in the unit of the family's name."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.highest:
            self.highest = value

    def since(self, started_s: float) -> None:
        """Count the seconds since `started_s`, a reading of `instant_s`."""
        seconds = instant_s() - started_s
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds
        if seconds > self.highest:
            self.highest = seconds

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean of the values; 0 before the first."""
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that `share` (0..1) of the values do not exceed, up to the width of a bucket; 0
        before the first value.
        """
        wanted = share * self.count
        seen = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.highest)
        return 0.0

    def clear(self) -> None:
        """As if nothing had been observed; the series can still be used."""
        self.counts[:] = [0] * len(self.counts)
        self.total = self.highest = 0.0


class Histograms:
    """All series of one family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._series: dict[Labels, Histogram] = {}
        self._les = [*map(floatToGoString, family.buckets), "+Inf"]
        if not family.labels:
            self.of()

    def of(self, *labels: str) -> Histogram:
        """The series with these label values, in the family's order; made at its first use. Keep it."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Histogram(self.family.buckets)
        return series

    def by(self, labels: Callable[[K], Labels]) -> SeriesBy[K]:
        """Return the series by a key of the writer's; `labels` is called once for each key."""
        return SeriesBy(self, labels)

    def items(self) -> Iterator[tuple[Labels, Histogram]]:
        """The series that have been observed; a family without labels has its series in any case."""
        return ((labels, one) for labels, one in self._series.items() if not labels or one.count)

    def clear(self) -> None:
        """Forget all observations."""
        for series in self._series.values():
            series.clear()

    def collect(self) -> Metric | None:
        """The family as prometheus-client has it; None without a series."""
        metric = HistogramMetricFamily(self.family.name, _help(self.family), labels=self.family.labels)
        for labels, series in self.items():
            buckets = list(zip(self._les, map(float, itertools.accumulate(series.counts)), strict=True))
            metric.add_metric(labels, buckets, series.total)
        return metric if metric.samples else None


class SeriesBy(dict[K, Histogram]):
    """The series of one family by a key that the writer has at hand, such as a code: found without making the
    labels again.
    """

    __slots__ = ("_family", "_labels")

    def __init__(self, family: Histograms, labels: Callable[[K], Labels]) -> None:
        super().__init__()
        self._family = family
        self._labels = labels

    def __missing__(self, key: K) -> Histogram:
        series = self[key] = self._family.of(*self._labels(key))
        return series


class Counters:
    """All series of one family that is counted up."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._values: dict[Labels, float] = {}
        self.clear()

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count; `labels`: values in the family's order."""
        values = self._values
        values[labels] = values.get(labels, 0) + amount

    def value(self, labels: Labels = ()) -> float:
        """The count so far."""
        return self._values.get(labels, 0)

    def clear(self) -> None:
        """Begin anew."""
        self._values.clear()
        if not self.family.labels:
            self._values[()] = 0

    def collect(self) -> Metric | None:
        """The family as prometheus-client has it; None without a series."""
        return metric_of(self.family, self._values.items())


class Readings:
    """A family whose values are kept elsewhere, and are read when the metrics are read.

    A counter is shown from its last `clear` on, and so that it never falls: the counted object may be
    replaced.
    """

    def __init__(self, family: Family, read: Callable[[], Values]) -> None:
        self.family = family
        self._read = read
        self._cleared_at: dict[Labels, float] = {}

    def clear(self) -> None:
        """Count from now on. Gauges keep their values."""
        if self.family.kind is Kind.COUNTER:
            self._cleared_at = dict(self._read())

    def collect(self) -> Metric | None:
        """The family as prometheus-client has it; None without a series."""
        before = self._cleared_at
        if not before:
            return metric_of(self.family, self._read())
        values = self._read()
        return metric_of(
            self.family, [(labels, max(0, value - before.get(labels, 0))) for labels, value in values]
        )


def metric_of(family: Family, values: Values) -> Metric | None:
    """A counter or gauge with these values; None without any: a family without series is not shown."""
    made = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = made(family.name, _help(family), labels=family.labels)
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric if metric.samples else None


def _help(family: Family) -> str:
    return f"[{family.stability}] {family.help}"
