"""Medians, ratios of medians, and one line of `-o json`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_bench.rendering.versus import comparisons_text
from berth_bench.versus.figures import Comparison, Latency, Standing, Turn

TURN = Turn(
    pods_per_s=300.0,
    cpu_ms_per_pod=2.0,
    loop_cpu_ms_per_pod=0.5,
    memory_mb=100.0,
    beside_cpu_ms_per_pod=0.0,
    beside_memory_mb=0.0,
    servers_cpu_ms_per_pod=4.0,
    startup_s=1.0,
    load=1.0,
)
LATE = Latency(p50_ms=10.0, p99_ms=20.0, worst_ms=30.0, cpu_ms_per_pod=2.5, load=0.5)


def turns(*rates: float, cpu_ms: float = 2.0) -> tuple[Turn, ...]:
    return tuple(replace(TURN, pods_per_s=rate, cpu_ms_per_pod=cpu_ms) for rate in rates)


def comparison(*standings: Standing) -> Comparison:
    return Comparison(workload="Plain/1000Nodes", nodes=1000, pods=3000, standings=standings)


OURS = Standing(contender="berth", turns=turns(300.0, 900.0, 330.0, cpu_ms=3.0))
THEIRS = Standing(contender="kube-scheduler", turns=turns(220.0, 100.0, 210.0, cpu_ms=4.0))


def test_median_is_computed_for_each_figure_separately() -> None:
    runs = (
        replace(TURN, pods_per_s=1.0, memory_mb=30.0),
        replace(TURN, pods_per_s=3.0, memory_mb=10.0),
        replace(TURN, pods_per_s=2.0, memory_mb=20.0),
    )
    assert Standing(contender="berth", turns=runs).median == replace(TURN, pods_per_s=2.0, memory_mb=20.0)


def test_median_of_two_is_between_them_and_of_none_is_none() -> None:
    median = Standing(contender="berth", turns=turns(100.0, 300.0)).median
    assert median is not None
    assert median.pods_per_s == 200.0
    assert Standing(contender="berth").median is None


def test_ratio_is_that_of_the_medians_not_of_the_means() -> None:
    (ratio,) = comparison(OURS, THEIRS).ratios
    assert (ratio.contender, ratio.over) == ("berth", "kube-scheduler")
    assert ratio.pods_per_s == pytest.approx(330 / 210)
    assert ratio.cpu == pytest.approx(0.75)


def test_ratios_are_over_each_of_the_others() -> None:
    slow = Standing(contender="kube-scheduler, extender", turns=turns(33.0, cpu_ms=0.0))
    first, second = comparison(OURS, slow, THEIRS).ratios
    assert (first.over, first.cpu) == (slow.contender, None)
    assert first.pods_per_s == pytest.approx(10.0)
    assert second.over == "kube-scheduler"
    assert second.pods_per_s == pytest.approx(330 / 210)


def test_ratios_of_the_loop_and_the_servers_are_over_another_berth() -> None:
    before = replace(TURN, loop_cpu_ms_per_pod=1.0, servers_cpu_ms_per_pod=2.0)
    (first, second) = comparison(
        OURS,
        Standing(contender="berth, before/python", turns=(before,)),
        Standing(contender="kube-scheduler", turns=(replace(before, loop_cpu_ms_per_pod=0.0),)),
    ).ratios
    assert (first.loop_cpu, first.servers_cpu) == (0.5, 2.0)
    assert (second.loop_cpu, second.servers_cpu) == (None, 2.0)


def test_json_has_medians_turns_ratios_and_the_command() -> None:
    said = comparison(OURS, THEIRS).as_json("berth bench versus Plain/1000Nodes")
    assert set(said) == {"workload", "nodes", "pods", "contenders", "ratios", "command"}
    assert said["command"] == "berth bench versus Plain/1000Nodes"
    own, other = said["contenders"]
    assert own["median"]["pods_per_s"] == 330.0
    assert [turn["pods_per_s"] for turn in other["turns"]] == [220.0, 100.0, 210.0]
    assert said["ratios"] == [
        {
            "contender": "berth",
            "over": "kube-scheduler",
            "pods_per_s": 1.571,
            "cpu": 0.75,
            "loop_cpu": 1.0,
            "servers_cpu": 1.0,
        }
    ]
    assert "latency" not in own


def test_latencies_are_separate_from_turns() -> None:
    late = Standing(contender="berth", latencies=(LATE, replace(LATE, p99_ms=40.0), LATE))
    said = comparison(late).as_json("command")
    assert said["contenders"][0]["latency"]["p99_ms"] == 20.0
    assert "median" not in said["contenders"][0]
    assert said["ratios"] == []


def test_text_has_medians_and_ratios() -> None:
    beside = replace(TURN, beside_cpu_ms_per_pod=0.5, beside_memory_mb=64.0)
    text = comparisons_text([comparison(OURS, THEIRS, Standing(contender="berth, plugin", turns=(beside,)))])
    first, second, plugin, empty, header, ratio, *_ = text.splitlines()[1:]
    assert " ".join(first.split()) == "Plain/1000Nodes 1000 3000 berth 330 3.00 0.500 2000 100 - - 4.00 1.0"
    assert second.split()[3:5] == ["kube-scheduler", "210"]
    assert plugin.split()[-4:] == ["0.50", "64", "4.00", "1.0"]
    assert empty == ""
    assert " ".join(header.split()) == "WORKLOAD RATIO OF MEDIANS PODS/S CPU LOOP CPU SERVERS CPU"
    assert " ".join(ratio.split()) == "Plain/1000Nodes berth / kube-scheduler 1.57 0.75 1.00 1.00"


def test_text_has_what_a_shadow_costs_and_how_often_it_agrees() -> None:
    shadowed = replace(TURN, beside_cpu_ms_per_pod=0.75, beside_memory_mb=200.0, compared=0.998, agreed=1.0)
    text = comparisons_text([comparison(OURS, Standing(contender="berth, shadow beside", turns=(shadowed,)))])
    _, table, _ = text.split("\n\n")
    header, line = table.splitlines()
    assert header.split()[:2] == ["WORKLOAD", "BESIDE"]
    assert line.split()[-6:] == ["0.75", "200", "99.8", "%", "100.0", "%"]


def test_text_of_latencies_has_no_table_of_turns() -> None:
    lines = comparisons_text([comparison(Standing(contender="berth", latencies=(LATE,)))]).splitlines()
    assert lines[0].startswith("WORKLOAD")
    assert lines[1].split() == ["Plain/1000Nodes", "1000", "berth", "10.0", "20.0", "30.0", "2.50"]
    assert len(lines) == 2
