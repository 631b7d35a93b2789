"""Medians and ratios of starts and turns, and the text."""

from __future__ import annotations

from berth_bench.attach.figures import attach_figures, start_figures
from berth_bench.attach.start import Starts, Taken
from berth_bench.attach.turn import Cost, Size, Turn, Way
from berth_bench.rendering.attach import attach_text

SIZE = Size(processes=5, each=2)
STARTS = Starts(
    child=tuple(Taken(wall_s=wall_s, cpu_s=0.24) for wall_s in (0.2, 9.0, 0.18)),
    bare=tuple(Taken(wall_s=wall_s, cpu_s=0.16) for wall_s in (0.1, 0.1, 9.0)),
)


def one_by_one(*costs_s: float, asked: int = 10) -> Turn:
    """Return a turn in which each process takes half as much CPU time."""
    return Turn(costs=tuple(Cost(wall_s=s, cpu_s=s / 2) for s in costs_s), asked=asked, bound=20)


TURNS = {
    Way.ONE_AT_A_TIME: [one_by_one(7.0, 0.02, 0.02, 0.03, 0.03)],
    Way.TOGETHER: [one_by_one(0.15), one_by_one(0.1, asked=9), one_by_one(0.2)],
}


def test_starts_are_compared_by_their_medians() -> None:
    line = start_figures(STARTS).as_json("again")
    assert (line["child_ms"], line["bare_ms"], line["starts"]) == (200.0, 100.0, 3)
    assert line["ratios"] == {"wall": 2.0, "cpu": 1.5}
    assert (line["measured"], line["command"]) == ("start", "again")


def test_costs_are_per_plugin_and_without_the_first_process_of_a_host() -> None:
    line = attach_figures(SIZE, TURNS).as_json("again")
    assert line["one_at_a_time"] == {"wall_ms_per_plugin": 12.5, "cpu_ms_per_plugin": 6.25}
    assert line["together"] == {"wall_ms_per_plugin": 15.0, "cpu_ms_per_plugin": 7.5}
    assert line["ratios"] == {
        "together_wall": 1.2,
        "together_cpu": 1.2,
        "later_wall": 1.5,
        "later_cpu": 1.5,
    }
    assert (line["plugins_asked"], line["pods_bound"], line["turns"]) == (9, 20, 1)


def test_text_has_the_costs_and_whether_all_plugins_were_called() -> None:
    lines = attach_text(start_figures(STARTS), attach_figures(SIZE, TURNS)).splitlines()
    assert lines[2].split()[-4:] == ["200", "240", "2.00", "1.50"]
    assert lines[6].split()[-4:] == ["15.00", "7.50", "1.20", "1.20"]
    assert lines[8].startswith("9 of 10 plugins in 5 processes were called about 20 pods")
