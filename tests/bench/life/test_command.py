"""`berth bench life`: what it prints, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from berth_bench.life import life as lives
from berth_bench.life.command import life
from berth_bench.life.life import Result
from berth_bench.life.world import KINDS
from click.testing import CliRunner
from click.testing import Result as Ran

DAYS = "0.002"


def ran(*arguments: str) -> Ran:
    return CliRunner().invoke(life, arguments)


class Drawn:
    """Stands for `live`: lives that break a law from a seed on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken_from: int) -> None:
        self.seeds: list[int] = []
        self._broken_from = broken_from
        monkeypatch.setattr(lives, "live", self)

    def __call__(
        self, seed: int, days: float, hosts: int | None = None, without: Collection[str] = (), **more: Any
    ) -> Result:
        self.seeds.append(seed)
        broken = "pods disappeared" if seed >= self._broken_from else ""
        return Result(
            seed=seed,
            days=days,
            hosts=hosts or 1 + seed % 2,
            mood="calm",
            broken=broken,
            hours=1.0,
            pods=1,
            bound=1,
            acts=1,
            faults=0,
            trace_lines=1,
            trace_sha256="ab",
            cpu_s=0.5,
            without=tuple(sorted(without)),
            lines=("0.000000 a",),
        )


def test_life_is_printed_the_same_each_time_and_its_figures_apart() -> None:
    first, second = (ran("--seed", "1", "--days", DAYS, "-o", "json") for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    printed = json.loads(first.stdout)
    assert (printed["seed"], printed["days"], printed["broken"]) == (1, 0.002, "")
    assert printed["bound"] > 0
    assert "virtual hours" in first.stderr
    assert "lives per minute" in first.stderr


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_replay_compares_the_trace_to_the_byte(hosts: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    made = ran("--seed", "1", "--days", "0.0005", "--hosts", hosts, "--trace", str(file), "-o", "json")
    assert made.exit_code == 0
    assert json.loads(made.stdout)["hosts"] == int(hosts)
    again = ran("--replay", str(file))
    assert again.exit_code == 0, again.output
    assert "the trace is the same:" in again.stderr
    lines = file.read_text().splitlines()
    lines[3] += "x"
    file.write_text("\n".join(lines))
    other = ran("--replay", str(file))
    assert other.exit_code == 1
    assert "line 3 of the trace was" in other.stderr


def test_until_failure_ends_with_the_first_broken_law(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(monkeypatch, broken_from=6)
    result = ran("--seed", "4", "--until-failure")
    assert drawn.seeds == [4, 5, 6]
    assert result.exit_code == 1
    assert "seed 6: pods disappeared" in result.stderr
    assert "play it again: berth bench life --seed 6 --days 0.02 --hosts 1" in result.stderr
    figures = result.stderr.splitlines()[-3:]
    assert figures[0] == "one host: 2 lives, 1 broke a law; 2.0 virtual hours, 2.00 per second of CPU"
    assert figures[1] == "two hosts: 1 lives, 0 broke a law; 1.0 virtual hours, 2.00 per second of CPU"
    assert figures[2].startswith("3 lives, 1 broke a law; 3.0 virtual hours, 2.00 per second of CPU; ")


def test_lives_limits_until_failure_and_without_it_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(monkeypatch, broken_from=100)
    assert ran("--until-failure", "--lives", "3").exit_code == 0
    assert drawn.seeds == [0, 1, 2]
    drawn = Drawn(monkeypatch, broken_from=1)
    assert ran("--lives", "3").exit_code == 1
    assert drawn.seeds == [0, 1, 2]


def test_broken_life_is_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(monkeypatch, broken_from=4)
    result = ran("--seed", "4", "--hosts", "2", "--shrink", "--without", "taint")
    assert result.exit_code == 1
    assert len(drawn.seeds) > 9
    assert set(drawn.seeds) == {4}
    kinds = ",".join(sorted(KINDS))
    found = re.search(
        r"instead of 1: berth bench life --seed 4 --days (\S+) --hosts 2 --without (\S+)", result.stderr
    )
    assert found is not None
    assert float(found[1]) < 0.001
    assert found[2] == kinds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--without", "taint,storms"), "'storms' is none of pods, gang, leave"),
        (("--trace", "f", "--lives", "2"), "--trace is for one life"),
        (("--trace", "f", "--until-failure"), "--trace is for one life"),
        (("--replay", "f", "--seed", "1"), "leave out --seed"),
        (("--replay", "f", "--until-failure"), "leave out --until-failure"),
        (("--replay", "f", "--hosts", "2"), "leave out --hosts"),
        (("--hosts", "3"), "3 is not in the range 1<=x<=2"),
        (("--replay", "f", "--watch"), "leave out --watch"),
        (("--watch", "--lives", "2"), "--watch is for one life"),
    ],
)
def test_options_that_contradict_are_refused(arguments: tuple[str, ...], said: str) -> None:
    result = ran(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_file_that_is_missing_or_no_trace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    missing = ran("--replay", str(file))
    assert missing.exit_code != 0
    assert "cannot be read" in missing.output
    file.write_text("no trace")
    other = ran("--replay", str(file))
    assert other.exit_code != 0
    assert "is not the trace of a life" in other.output
