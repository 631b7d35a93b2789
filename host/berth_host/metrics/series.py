"""Counters and histograms: the only way to count and to time in the host.

    Counters      numbers of occurrences, by labels
    Histograms    durations or sizes, by labels; one `Histogram` per series
    SeriesBy      the series of one family, by a key of the writer
    Readings      values that other objects keep, read when the metrics are read
    HistogramReadings  the same for histograms, with exemplars

To time something, read `instant_s` before it, and pass the reading to `Histogram.since` after it.

An observation is a bisection and two additions, about 0.2 us. An observation of prometheus-client costs five
times as much, with locks that one loop does not need. So prometheus-client only writes the text
(`exposition`).
"""

from __future__ import annotations

import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from berth_host.metrics.family import Family, Kind

# The first scrape imports it, and not the start.
if TYPE_CHECKING:
    from prometheus_client.core import Metric

K = TypeVar("K", bound=Hashable)
instant_s: Final = time.perf_counter
"""Returns a reading of the clock of all durations, in seconds."""
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

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value, in the unit of the family's name. `count`: how many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count
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
        """The number of observations so far."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """The mean of the values; 0 before the first."""
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that `share` (0..1) of the values do not exceed, up to the width of a bucket.

        0 before the first value.
        """
        wanted = share * self.count
        seen = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.highest)
        return 0.0

    def clear(self) -> None:
        """Drop all observations; the series can still be used."""
        self.counts[:] = [0] * len(self.counts)
        self.total = self.highest = 0.0


class Histograms:
    """All series of one family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._series: dict[Labels, Histogram] = {}
        if not family.labels:
            self.of()

    def of(self, *labels: str) -> Histogram:
        """Return the series with these label values, in the family's order; make it at the first use.

        Writers keep the series, as the look-up costs time.
        """
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Histogram(self.family.buckets)
        return series

    def by(self, labels: Callable[[K], Labels]) -> SeriesBy[K]:
        """Return the series by a key of the writer. `labels` is called once for each key."""
        return SeriesBy(self, labels)

    def items(self) -> Iterator[tuple[Labels, Histogram]]:
        """Return the series with observations. The series of a family without labels is always included."""
        return ((labels, one) for labels, one in self._series.items() if not labels or one.count)

    def clear(self) -> None:
        """Drop all observations."""
        for series in self._series.values():
            series.clear()

    def collect(self) -> Metric | None:
        """Return the family for prometheus-client; None without a series."""
        from prometheus_client.core import HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        bounds = [*map(floatToGoString, self.family.buckets), "+Inf"]
        metric = HistogramMetricFamily(self.family.name, self.family.text, labels=self.family.labels)
        for labels, series in self.items():
            buckets = list(zip(bounds, map(float, itertools.accumulate(series.counts)), strict=True))
            metric.add_metric(labels, buckets, series.total)
        return metric if metric.samples else None


class SeriesBy(dict[K, Histogram]):
    """The series of one family by a key of the writer, such as a code. A look-up does not make the labels
    again.
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
    """All series of one counter family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._values: dict[Labels, float] = {}
        self.clear()

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Add `amount` to a series. `labels`: values in the family's order."""
        values = self._values
        values[labels] = values.get(labels, 0) + amount

    def value(self, labels: Labels = ()) -> float:
        """Return the count so far."""
        return self._values.get(labels, 0)

    def items(self) -> Iterator[tuple[Labels, float]]:
        """Yield the label values and the count of each series."""
        yield from self._values.items()

    def clear(self) -> None:
        """Drop all counts."""
        self._values.clear()
        if not self.family.labels:
            self._values[()] = 0

    def collect(self) -> Metric | None:
        """Return the family for prometheus-client; None without a series."""
        return metric_of(self.family, self._values.items())


class Readings:
    """A family whose values other objects keep. The values are read when the metrics are read.

    A counter starts at 0 at its last `clear`, and is never negative: the counted object may be replaced.
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
        """Return the family for prometheus-client; None without a series."""
        before = self._cleared_at
        if not before:
            return metric_of(self.family, self._read())
        values = self._read()
        return metric_of(
            self.family, [(labels, max(0, value - before.get(labels, 0))) for labels, value in values]
        )


class HistogramReadings:
    """A family whose histograms other objects keep, perhaps with more buckets. Read with the metrics.

    `note` keeps the latest observation of a bucket that has a trace, as its exemplar.
    """

    def __init__(self, family: Family, read: Callable[[], Iterable[tuple[Labels, Histogram]]]) -> None:
        """Show what `read` returns. Each bound of the family is also a bound of these histograms."""
        self.family = family
        self._read = read
        self._cleared_at: dict[Labels, tuple[list[int], float]] = {}
        self._exemplars: dict[tuple[Labels, int], tuple[float, float, int, int]] = {}

    def note(self, labels: Labels, value: float, trace_id: int, span_id: int) -> None:
        """Keep an observation as the exemplar of its bucket."""
        bucket = bisect_left(self.family.buckets, value)
        self._exemplars[labels, bucket] = (value, time.time(), trace_id, span_id)

    def clear(self) -> None:
        """Count from now on."""
        self._cleared_at = {labels: self._values(one) for labels, one in self._read()}
        self._exemplars.clear()

    def _values(self, histogram: Histogram) -> tuple[list[int], float]:
        bounds = self.family.buckets
        counts = [0] * (len(bounds) + 1)
        for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
            counts[bisect_left(bounds, bound)] += count
        return counts, histogram.total

    def collect(self) -> Metric | None:
        """Return the family for prometheus-client; None without a series."""
        from prometheus_client.core import HistogramMetricFamily
        from prometheus_client.samples import Exemplar
        from prometheus_client.utils import floatToGoString

        bounds = [*map(floatToGoString, self.family.buckets), "+Inf"]
        metric = HistogramMetricFamily(self.family.name, self.family.text, labels=self.family.labels)
        for labels, histogram in self._read():
            counts, total = self._values(histogram)
            before, total_before = self._cleared_at.get(labels, ([0] * len(counts), 0.0))
            # The object that counts may be a new one since `clear`.
            left = [max(0, count - earlier) for count, earlier in zip(counts, before, strict=True)]
            if not any(left):
                continue
            buckets: list[Any] = []
            for index, (bound, count) in enumerate(zip(bounds, itertools.accumulate(left), strict=True)):
                kept = self._exemplars.get((labels, index))
                exemplar = None
                if kept is not None:
                    value, at_s, trace_id, span_id = kept
                    ids = {"trace_id": f"{trace_id:032x}", "span_id": f"{span_id:016x}"}
                    exemplar = Exemplar(ids, value, at_s)
                buckets.append((bound, float(count), exemplar))
            metric.add_metric(labels, buckets, max(0.0, total - total_before))
        return metric if metric.samples else None


def metric_of(family: Family, values: Values) -> Metric | None:
    """Return a counter or gauge with these values; None without values, so that the family is not shown."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = made(family.name, family.text, labels=family.labels)
    for labels, value in values:
        metric.add_metric(labels, value)
    return metric if metric.samples else None
