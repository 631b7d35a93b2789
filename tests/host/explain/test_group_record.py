"""The records of the last attempts of groups are bounded, and keep the best placements."""

from __future__ import annotations

import random

from berth_host.explain.group_record import (
    PLACEMENTS_KEPT,
    GroupRecord,
    GroupRecords,
    TriedPlacement,
    TriedPlacements,
)
from berth_sdk.pod import Pod
from support.hosts import pod

A_POD = Pod.from_object(pod("a"))


def tried(name: str, placed: int, message: str = "too small") -> TriedPlacement:
    return TriedPlacement(name=name, node_count=3, message=message, assignments=((A_POD, "n"),) * placed)


def record(key: str, placed: int = 0) -> GroupRecord:
    return GroupRecord(
        key=key,
        uid=key,
        root_key=key,
        attempt=1,
        outcome="unschedulable",
        message="",
        placements=(tried("", placed),),
    )


def test_best_placements_are_kept() -> None:
    kept = TriedPlacements()
    for i in range(PLACEMENTS_KEPT + 3):
        kept.add(tried(f"r{i}", i))
    kept.add(tried("fits", 1, message=""))
    assert kept.count == PLACEMENTS_KEPT + 4
    assert [one.name for one in kept.best] == ["fits", "r7", "r6", "r5", "r4"]


def test_placements_that_would_not_be_kept_are_only_counted() -> None:
    chance = random.Random(7)
    for _ in range(50):
        outcomes = [(chance.random() < 0.8, chance.randint(0, 3)) for _ in range(chance.randint(1, 20))]
        everyone, kept = [], TriedPlacements()
        for i, (fails, placed) in enumerate(outcomes):
            one = tried(f"r{i}", placed, message="no room" if fails else "")
            everyone.append(one)
            if kept.takes(fails=fails, placed=placed):
                kept.add(one)
        everyone.sort(key=lambda one: (bool(one.message), -one.placed))
        assert kept.best == everyone[:PLACEMENTS_KEPT]
        assert kept.count == len(outcomes)


def test_groups_tried_longest_ago_are_dropped() -> None:
    records = GroupRecords(lambda: 7.0, capacity=2)
    for key in ("a", "b", "a", "c"):
        records.add([record(key)])
    assert [key for key in "abc" if records.get(key)] == ["a", "c"]
    assert records.get("a") is not None
    assert records.get("a")[1] == 7.0  # type: ignore[index]  # it is kept


def test_assignments_of_all_records_are_bounded() -> None:
    records = GroupRecords(lambda: 0.0, assignments=10)
    for key in "abc":
        records.add([record(key, 4)])
    assert [key for key in "abc" if records.get(key)] == ["b", "c"]
    records.add([record("c", 2), record("d", 4)])
    assert [key for key in "abcd" if records.get(key)] == ["b", "c", "d"]
    records.add([record("huge", 50)])
    assert len(records) == 1
