"""Medians and ratios of turns, and the table."""

from __future__ import annotations

from berth_bench.faults.figures import standings
from berth_bench.faults.turn import Case, Phase, Size, Turn
from berth_bench.rendering.faults import faults_text

SIZE = Size(nodes=10, pods=20, warm_up_s=5.0)


def turn(rate: float, p99_ms: float) -> Turn:
    """Return a turn in which settled pods are placed twice as fast."""
    whole = Phase(pods_per_second=rate, p99_ms=p99_ms, asked_per_pod=1.0)
    return Turn(whole=whole, settled=Phase(pods_per_second=2 * rate, p99_ms=p99_ms / 2, asked_per_pod=0.0))


def test_ratios_are_those_of_medians() -> None:
    turns = {
        Case.NONE: [turn(100, 2.0), turn(900, 1.0), turn(200, 4.0)],
        Case.HUNG: [turn(50, 8.0), turn(10, 90.0), turn(60, 6.0)],
    }
    none, hung = standings(SIZE, turns)
    assert set(none.ratios.values()) == {1.0}
    assert hung.whole == Phase(pods_per_second=50, p99_ms=8.0, asked_per_pod=1.0)
    assert hung.ratios == {
        "pods_per_second": 0.25,
        "p99_ms": 4.0,
        "settled_pods_per_second": 0.25,
        "settled_p99_ms": 4.0,
    }
    line = hung.as_json("again")
    assert line["case"] == "hung"
    assert line["settled"] == {"pods_per_second": 100, "p99_ms": 4.0, "asked_per_pod": 0.0}
    assert len(line["turns"]) == 3
    lines = faults_text([none, hung]).splitlines()
    assert lines[3].split() == ["hung", "all", "50", "8.00", "1.00", "0.25", "4.00"]
    assert lines[4].split() == ["hung", "after", "5", "s", "100", "4.00", "0.00", "0.25", "4.00"]
