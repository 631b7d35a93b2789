"""The phases of coscheduling's PodGroups, as their own controller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.cluster.coscheduling import Member, next_status


def members(*phases: str) -> list[Member]:
    return [Member(phase) for phase in phases]


@pytest.mark.parametrize(
    ("before", "phases", "after"),
    [
        ({}, ["Pending"] * 3, {"phase": "Pending"}),
        ({"phase": "Pending"}, ["Pending"] * 2, {"phase": "Pending"}),
        ({"phase": "Pending"}, ["Pending"] * 3, {"phase": "Scheduling"}),
        ({"phase": "Scheduling"}, ["Pending"] * 3, {"phase": "Scheduling"}),
        ({"phase": "Scheduling"}, ["Running"] * 2 + ["Pending"], {"phase": "Scheduling", "running": 2}),
        ({"phase": "Scheduling"}, ["Running"] * 3, {"phase": "Running", "running": 3}),
        ({"phase": "Running", "running": 3}, ["Running"] * 2, {"phase": "Pending", "running": 2}),
        (
            {"phase": "Running", "running": 3},
            ["Running"] * 2 + ["Succeeded"],
            {"phase": "Running", "running": 2, "succeeded": 1},
        ),
        (
            {"phase": "Running", "running": 1, "succeeded": 2},
            ["Succeeded"] * 3,
            {"phase": "Finished", "succeeded": 3},
        ),
        (
            {"phase": "Running", "running": 3},
            ["Running"] * 2 + ["Failed"],
            {"phase": "Failed", "running": 2, "failed": 1},
        ),
        ({"phase": "Scheduling"}, ["Pending", "Pending", "Failed"], {"phase": "Scheduling", "failed": 1}),
        ({"phase": "Failed", "failed": 1}, ["Running"] * 3, {"phase": "Failed", "failed": 1}),
        ({"phase": "Finished", "succeeded": 3}, [], {"phase": "Finished", "succeeded": 3}),
    ],
    ids=lambda value: None,
)
def test_phase_follows_from_the_members(
    before: Mapping[str, Any], phases: list[str], after: Mapping[str, Any]
) -> None:
    assert next_status(before, 3, members(*phases)) == after


def test_owner_is_written_when_scheduling_begins() -> None:
    owned = [Member("Pending"), Member("Pending", ("team/b", "team/a"))]
    assert next_status({"phase": "Pending"}, 2, owned) == {
        "phase": "Scheduling",
        "occupiedBy": "team/a,team/b",
    }
