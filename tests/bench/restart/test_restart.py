"""Figures and table of `berth bench restart`, and the copies of its pods."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_bench.rendering.restart import restarts_text
from berth_bench.restart.figures import Restarts, Start, Starts, TakeOver
from berth_bench.restart.running_pods import node_copies, pod_copies


def start(cpu_s: float, took_s: float) -> Start:
    return Start(cpu_s=cpu_s, took_s=took_s, memory_mb=100 * cpu_s, servers_cpu_s=1.0, load=0.5)


FOUND = Restarts(
    nodes=10,
    running=20,
    pod_bytes=6000,
    contenders=(
        Starts(contender="berth", starts=(start(2.0, 3.0), start(4.0, 5.0), start(9.0, 1.0))),
        Starts(contender="kube-scheduler", starts=(start(8.0, 6.0),)),
    ),
)


def test_table_has_medians_and_ratios() -> None:
    lines = [line.split() for line in restarts_text(FOUND).splitlines()]
    assert lines[1] == ["berth", "10", "20", "4.0", "3.0", "400", "1.0"]
    assert lines[2] == ["kube-scheduler", "10", "20", "8.0", "6.0", "800", "1.0"]
    assert lines[-1] == ["berth", "/", "kube-scheduler", "0.50", "0.50", "0.50", "1.00"]


def test_take_overs_have_a_table_of_their_own() -> None:
    over = tuple(TakeOver(took_s=took_s, cpu_s=0.25, load=1.0) for took_s in (0.5, 0.1, 0.2))
    first, *others = FOUND.contenders
    found = replace(FOUND, contenders=(replace(first, take_overs=over), *others))
    lines = [line.split() for line in restarts_text(found).splitlines()]
    assert ["berth", "3", "0.20", "0.50", "0.25"] in lines
    assert len(found.as_json("")["contenders"][0]["take_overs"]) == 3


def test_json_has_every_start_and_the_command() -> None:
    shown = FOUND.as_json("berth bench restart")
    assert shown["command"] == "berth bench restart"
    assert [one["cpu_s"] for one in shown["contenders"][0]["starts"]] == [2.0, 4.0, 9.0]
    (ratio,) = shown["ratios"]
    assert (ratio["over"], ratio["cpu_s"], ratio["took_s"]) == ("kube-scheduler", 0.5, 0.5)


@pytest.mark.parametrize("copies", [list(node_copies(120)), list(pod_copies(5, 500))], ids=["nodes", "pods"])
def test_copies_have_their_own_names_and_the_lengths_of_the_original(copies: list[dict[str, str]]) -> None:
    assert all(len(old) == len(new) for copy in copies for old, new in copy.items())
    assert len({next(iter(copy.values())) for copy in copies}) == len(copies)
