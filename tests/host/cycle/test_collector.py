"""Full garbage collections: none in the middle of work, one when nothing is scheduled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from berth_host.cycle import collector
from berth_host.cycle.collector import Collector, collect_from_now_on, uncollected


class Attempts:
    count = 0

    def __call__(self) -> int:
        return self.count


@pytest.fixture(autouse=True)
def no_other_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the hosts that earlier tests killed or left, and their settings of the process."""
    before = gc.get_threshold()
    monkeypatch.setattr(Collector, "_running", 0)
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    yield done


async def test_a_large_cluster_is_set_aside_and_full_collections_are_off_until_the_stop(
    collections: list[str],
) -> None:
    before = gc.get_threshold()
    tested = Collector(Attempts())
    tested.start(collector.LARGE)
    assert collections == ["freeze"]
    assert gc.get_threshold()[2] > 10**9
    tested.stop()
    tested.stop()
    assert collections == ["freeze", "unfreeze"]
    assert gc.get_threshold() == before


async def test_garbage_of_the_start_is_removed_in_the_first_idle_moment_and_not_before(
    collections: list[str],
) -> None:
    attempts = Attempts()
    tested = Collector(attempts)
    tested.start(collector.LARGE)
    try:
        attempts.count = 1
        assert not tested.look()  # a pod was scheduled just now
        assert tested.look()
        assert collections == ["freeze", "unfreeze", "collect", "freeze"]
        assert not tested.look()
    finally:
        tested.stop()


async def test_collector_is_unchanged_for_a_small_cluster(collections: list[str]) -> None:
    tested = Collector(Attempts())
    tested.start(collector.LARGE - 1)
    tested.stop()
    assert collections == ["unfreeze"]


async def test_the_last_of_two_hosts_restores_the_collector(collections: list[str]) -> None:
    before = gc.get_threshold()
    first, second = Collector(Attempts()), Collector(Attempts())
    first.start(0)
    second.start(0)
    first.stop()
    assert gc.get_threshold() != before
    second.stop()
    assert gc.get_threshold() == before


async def test_one_full_collection_when_nothing_was_scheduled_since_the_last_look(
    collections: list[str],
) -> None:
    attempts = Attempts()
    tested = Collector(attempts)
    tested.start(0)
    try:
        attempts.count = collector.WORTH_IT
        assert not tested.look()  # pods were scheduled just now
        assert tested.look()
        assert not tested.look()  # nothing new
        attempts.count += collector.WORTH_IT - 1
        assert not tested.look()
        assert not tested.look()  # idle, and not worth it
        assert collections == ["collect"]
    finally:
        tested.stop()


async def test_full_collection_runs_under_lasting_load_when_it_is_overdue(collections: list[str]) -> None:
    attempts, now_s = Attempts(), 100.0
    tested = Collector(attempts, lambda: now_s)
    tested.start(0)
    try:
        now_s += collector.OVERDUE_S
        attempts.count = collector.WORTH_IT - 1
        assert not tested.look()
        attempts.count += 1
        assert tested.look()
        attempts.count += collector.WORTH_IT
        assert not tested.look()  # a moment later
        now_s += collector.OVERDUE_S
        attempts.count += 1
        assert tested.look()
        assert collections == ["collect", "collect"]
    finally:
        tested.stop()


def test_collections_go_on_after_the_imports_without_what_was_imported(
    collections: list[str],
) -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        collect_from_now_on()
        assert gc.isenabled()
        assert collections == ["freeze"]
        assert gc.get_threshold() == (10_000, 20, before[2])
    finally:
        gc.enable()
        gc.set_threshold(*before)


@pytest.mark.parametrize("count", [collector.MANY, collector.MANY - 1])
async def test_first_lists_are_not_collected_and_many_objects_are_frozen_before_the_next_collection(
    count: int, collections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (count, 0, 0))
    enable = gc.enable

    def enabled() -> None:
        collections.append("enable")
        enable()

    monkeypatch.setattr(gc, "enable", enabled)
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    assert collections == (["freeze", "enable"] if count == collector.MANY else ["enable"])


async def test_collections_begin_again_where_the_first_lists_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "UNCOLLECTED_S", 0.0)
    with pytest.raises(RuntimeError), uncollected():
        await asyncio.sleep(0.01)
        assert gc.isenabled()
        raise RuntimeError
    assert gc.isenabled()
