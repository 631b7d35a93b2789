"""Lives find mutants of the host; the command lists them, and draws ten."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from berth_host import log
from support.life_mutants import ALL, KNOWN, NEW

ENOUGH_LIVES = 60
FEW_LIVES = 10
LEAST_FOUND = 4
"""Of ten drawn mutants, those that FEW_LIVES must find: on average they find seven or eight."""


@pytest.fixture
def script() -> Iterator[ModuleType]:
    log.configure("CRITICAL")
    spec = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    log.configure("INFO")


def test_forty_mutants_are_listed(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert (len(KNOWN), len(NEW), len(ALL)) == (30, 10, 40)
    assert script.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[7:52].strip() for line in lines] == list(ALL)
    assert [line.split()[0] for line in lines] == ["known"] * 30 + ["new"] * 10
    assert all(line.endswith(".") for line in lines)


def test_every_mutant_changes_the_host() -> None:
    for name, mutant in ALL.items():
        with pytest.MonkeyPatch.context() as patch:
            mutant(patch)
            [(owner, attribute, original)] = patch._setattr  # noqa: SLF001 (what it will undo)
            assert vars(owner)[attribute] is not original, name


def test_seed_draws_ten_mutants(script: ModuleType) -> None:
    assert list(script.drawn(1)) == list(script.drawn(1))
    assert len(script.drawn(1)) == 10
    assert set().union(*(script.drawn(seed) for seed in range(40))) == set(ALL)


def test_commit_draws_the_same_mutants_each_time(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(script, "first_broken", lambda mutant, lives: tried.append(mutant.__doc__))
    for _ in range(2):
        assert script.main(["--draw", "4"]) == 1
    seed = script.seed_of_commit()
    assert capsys.readouterr().out.count(f"seed {seed} draws 4 of 40 mutants") == 2
    assert tried == [one.__doc__ for one in script.drawn(seed, 4).values()] * 2


def test_mutant_that_breaks_no_law_is_reported(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.run({"harmless": lambda patch: None}, 1) == 0
    assert "harmless" in (said := capsys.readouterr().out)
    assert "none of 1" in said
    assert "1 mutants, 0 found" in said


@pytest.mark.long
def test_lives_find_most_of_ten_mutants_that_the_commit_draws(script: ModuleType) -> None:
    seed = script.seed_of_commit()
    print(f"seed {seed}")
    assert script.run(script.drawn(seed), FEW_LIVES) >= LEAST_FOUND, f"mutants.py --seed {seed}"


@pytest.mark.long
def test_one_mutant_of_each_area_is_found(script: ModuleType) -> None:
    areas = {name.partition(":")[0]: name for name in SOON_FOUND}
    assert {name.partition(":")[0] for name in ALL} == set(areas)
    for name in SOON_FOUND:
        assert script.first_broken(ALL[name], ENOUGH_LIVES) is not None, name


SOON_FOUND = (
    "queue: backoffQ is not flushed",
    "cache: totals only grow",
    "reserve: PostBind is not called",
    "binding: no Scheduled event",
    "preemption: it never ends",
    "groups: a deleted group stays",
)
"""Mutants that a life of the first few finds."""
