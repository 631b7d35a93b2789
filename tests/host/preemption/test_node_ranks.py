"""Nodes by the victims that a member of a preempting group newly costs there."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.preemption.node_ranks import NodeRanks, RankedVictim, cost_of
from berth_sdk.testing import make_pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.frameworks import table_of
from support.tiers import examples


def unit(*nodes: str, violations: int = 0, priority: int = 0, rank: int = 0) -> RankedVictim:
    pods = [make_pod(f"v-{name}", node=name) for name in nodes]
    return RankedVictim(pods, violations, priority, rank)


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        pytest.param([], [unit("a")], id="nobody leaves"),
        pytest.param([unit("a", priority=9)], [unit("a", violations=1)], id="no budget is broken"),
        pytest.param([unit("a", priority=1)], [unit("a", priority=2)], id="lower priority"),
        pytest.param([unit("a")], [unit("a"), unit("a")], id="fewer pods"),
        pytest.param([unit("a"), unit("a")], [unit("a", "b", "c")], id="units count with all their pods"),
        pytest.param([unit("a")], [unit("a", rank=1)], id="type of the unit"),
    ],
)
def test_what_costs_less(cheaper: list[RankedVictim], dearer: list[RankedVictim]) -> None:
    assert cost_of(cheaper) < cost_of(dearer)


def test_members_go_where_the_fewest_leave_until_victims_are_condemned_anyway() -> None:
    nodes = table_of("a", "b", "c")
    ranks = NodeRanks([unit("a", "b"), unit("b", "b"), unit("c")])
    rows = np.array([1, 0, 2])
    assert ranks.cheapest(nodes, rows).tolist() == [2]
    assert ranks.in_order(nodes, rows).tolist() == [2, 0, 1]
    condemned = ranks.condemn("b")
    assert ranks.cheapest(nodes, rows).tolist() == [1, 0]
    assert not ranks.condemn("a")
    ranks.pardon(condemned)
    assert ranks.cheapest(nodes, rows).tolist() == [2]


NAMES = ("a", "b", "c", "d")
UNITS = st.lists(
    st.builds(
        lambda nodes, violations, priority: unit(*nodes, violations=violations, priority=priority),
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    max_size=5,
)


def costs_without(victims: list[RankedVictim], gone: set[int]) -> dict[str, tuple[object, ...]]:
    """Return by node the cost of the victims on it that nobody has condemned."""
    return {
        name: cost_of(
            [
                one
                for number, one in enumerate(victims)
                if number not in gone and any(pod.node_name == name for pod in one.pods)
            ]
        )
        for name in NAMES
    }


@settings(max_examples=examples(200), deadline=None)
@given(
    victims=UNITS,
    steps=st.lists(st.one_of(st.sampled_from(NAMES), st.none()), max_size=8),
    rows=st.permutations(range(4)),
    size=st.integers(1, 4),
)
def test_ranks_are_those_of_costs_computed_anew(
    victims: list[RankedVictim], steps: list[str | None], rows: list[int], size: int
) -> None:
    nodes, asked = table_of(*NAMES), np.array(rows[:size])
    ranks = NodeRanks(victims)
    taken: list[list[int]] = []
    for step in steps:
        if step is not None:
            taken.append(ranks.condemn(step))
        elif taken:
            ranks.pardon(taken.pop())
        costs = costs_without(victims, {number for found in taken for number in found})
        least = min(costs[NAMES[row]] for row in asked)
        assert ranks.cheapest(nodes, asked).tolist() == [row for row in asked if costs[NAMES[row]] == least]
        assert ranks.in_order(nodes, asked).tolist() == sorted(asked, key=lambda row: costs[NAMES[row]])
