"""Light series, read back from the text that they are shown as."""

from __future__ import annotations

from berth_host.metrics.exposition import Exposition, Source
from berth_host.metrics.family import Family, Kind
from berth_host.metrics.series import Counters, Histogram, Histograms, Readings, instant_s
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

WAITS = Family("waits_seconds", Kind.HISTOGRAM, "ALPHA", ("where",), "Waits.", (0.5, 1.0, 2.0))
PLAIN = Family("sizes", Kind.HISTOGRAM, "STABLE", (), "Sizes.", (1.0,))
SEEN = Family("seen_total", Kind.COUNTER, "ALPHA", ("what", "who"), "Seen.")
BARE = Family("bare_total", Kind.COUNTER, "ALPHA", (), "Bare.")
HERE = Family("here", Kind.GAUGE, "BETA", (), "Here.")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def shown(*sources: Source) -> Samples:
    text = (await Exposition(lambda: sources, process=False).text()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
    }


@given(st.lists(st.floats(0, 3) | st.sampled_from([0.5, 1.0, 2.0])))
async def test_bucket_counts_values_up_to_its_bound(values: list[float]) -> None:
    waits = Histograms(WAITS)
    for value in values:
        waits.of("here").observe(value)
    samples = await shown(waits)
    if not values:
        assert samples == {}  # a labelled family without a series is absent
        return
    for bound in ("0.5", "1.0", "2.0", "+Inf"):
        key = ("waits_seconds_bucket", (("le", bound), ("where", "here")))
        assert samples[key] == sum(value <= float(bound) for value in values)
    assert samples["waits_seconds_count", (("where", "here"),)] == len(values)
    assert abs(samples["waits_seconds_sum", (("where", "here"),)] - sum(values)) < 1e-9


async def test_family_without_labels_is_shown_before_its_first_observation() -> None:
    samples = await shown(
        Histograms(PLAIN), Counters(BARE), Counters(SEEN), Readings(HERE, lambda: [((), 7)])
    )
    assert samples == {
        ("sizes_bucket", (("le", "1.0"),)): 0,
        ("sizes_bucket", (("le", "+Inf"),)): 0,
        ("sizes_count", ()): 0,
        ("sizes_sum", ()): 0,
        ("bare_total", ()): 0,
        ("here", ()): 7,
    }


async def test_cleared_series_start_at_zero_and_can_still_be_written() -> None:
    waits, seen = Histograms(WAITS), Counters(SEEN)
    held = waits.of("here")
    held.observe(1)
    seen.add(("a", "b"), 3)
    waits.clear()
    seen.clear()
    assert await shown(waits, seen) == {}
    held.observe(2)
    seen.add(("a", "b"))
    samples = await shown(waits, seen)
    assert samples["waits_seconds_count", (("where", "here"),)] == 1
    assert samples["seen_total", (("what", "a"), ("who", "b"))] == 1


async def test_counter_of_another_object_counts_from_its_last_clear() -> None:
    count = 5
    reading = Readings(BARE, lambda: [((), count)])
    gauge = Readings(HERE, lambda: [((), count)])
    reading.clear()
    gauge.clear()
    count = 8
    assert await shown(reading, gauge) == {("bare_total", ()): 3, ("here", ()): 8}
    count = 1  # what it counted in was replaced
    assert await shown(reading) == {("bare_total", ()): 0}


async def test_text_is_sorted_by_name_and_has_the_stability_of_each_family() -> None:
    sources = (Counters(BARE), Histograms(PLAIN), Readings(HERE, lambda: [((), 1)]))
    text = (await Exposition(lambda: sources, process=True).text()).decode()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names == sorted(names)
    assert "process_resident_memory_bytes" in names
    assert "# HELP sizes [STABLE] Sizes." in text
    assert "# TYPE bare_total counter" in text


def test_since_counts_the_seconds_from_a_reading_of_the_clock() -> None:
    series = Histogram((0.5, 100.0))
    started_s = instant_s()
    series.since(started_s - 7)
    assert series.counts == [0, 1, 0]
    assert 7 <= series.total == series.highest == series.mean < 100


def test_a_quantile_is_the_bound_of_its_bucket_and_at_most_the_highest_value() -> None:
    series = Histogram((1.0, 2.0, 4.0))
    assert (series.quantile(0.5), series.mean) == (0, 0)
    for value in (0.2, 0.3, 1.5, 9.0):
        series.observe(value)
    assert [series.quantile(share) for share in (0.5, 0.75, 1.0)] == [1.0, 2.0, 9.0]
    series.clear()
    assert (series.count, series.highest, series.quantile(1.0)) == (0, 0, 0)


def test_a_key_finds_its_series_and_labels_are_made_once() -> None:
    waits, made = Histograms(WAITS), list[int]()

    def labels(number: int) -> tuple[str, ...]:
        made.append(number)
        return (f"n{number}",)

    by = waits.by(labels)
    by[1].observe(1)
    by[1].observe(1)
    by[2].observe(1)
    assert made == [1, 2]
    assert {name: series.count for (name,), series in waits.items()} == {"n1": 2, "n2": 1}
