"""The plugin filters and scores by two labels of a node."""

from __future__ import annotations

from berth_bench.versus.label_rank import CLOSED, RANK, LabelRank, NodeRank, RowRank
from berth_sdk.testing import PluginHost, make_node, make_pod


def test_closed_nodes_are_rejected_and_ranks_become_points() -> None:
    nodes = [
        make_node("open", labels={RANK: "10"}),
        make_node("closed", labels={RANK: "3", CLOSED: "true"}),
        make_node("ajar", labels={RANK: "7", CLOSED: "false"}),
        make_node("plain"),
    ]
    attempt = PluginHost(LabelRank, nodes=nodes).attempt(make_pod("p"))
    verdicts = attempt.filter()
    assert {name for name, status in verdicts.items() if status.is_success} == {"open", "ajar", "plain"}
    assert verdicts["closed"].message == "node is closed"
    # The framework leaves closed nodes out before it asks; the testing host asks about all.
    assert attempt.score() == {"open": 100, "closed": 30, "ajar": 70, "plain": 0}


def test_declared_plugins_rank_the_same_and_by_pods() -> None:
    nodes = [make_node("high", labels={RANK: "10"}), make_node("low", labels={RANK: "3"})]
    pods = [make_pod("there", node="high")]
    scores = {
        cls: PluginHost(cls, nodes=nodes, pods=pods).attempt(make_pod("p")).score()
        for cls in (LabelRank, NodeRank, RowRank)
    }
    assert scores[LabelRank] == scores[NodeRank] == {"high": 100, "low": 30}
    assert scores[RowRank] == {"high": 99, "low": 30}
