"""Nodes by the victims that a member of a preempting group newly costs there."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.preemption.node_ranks import NodeRanks, RankedVictim, cost_of
from berth_sdk.testing import make_pod
from support.frameworks import table_of


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
