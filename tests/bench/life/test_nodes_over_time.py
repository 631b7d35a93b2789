"""A binding is judged by the node as it is, and as it was a while ago."""

from __future__ import annotations

from typing import Any

from berth_bench.life.nodes_over_time import NodesOverTime
from berth_bench.versus.objects import node


class Nodes(NodesOverTime):
    """Nodes with 10 seconds of slack, on a clock of the test."""

    def __init__(self) -> None:
        self.at_s = 0.0
        super().__init__(lambda: self.at_s, 10.0)

    def see(self, at_s: float, cpu: str, **spec: Any) -> None:
        self.at_s = at_s
        self.is_there({**node("n1", cpu), "spec": spec})


def test_node_that_has_shrunk_counts_as_before_until_the_slack_is_over() -> None:
    nodes = Nodes()
    nodes.see(0, "8")
    nodes.see(100, "2")
    for at_s, milli_cpu in ((100, 8000), (109, 8000), (110, 2000), (1000, 2000)):
        nodes.at_s = at_s
        assert nodes.milli_cpu("n1") == milli_cpu


def test_node_that_has_grown_counts_at_once() -> None:
    nodes = Nodes()
    nodes.see(0, "2")
    nodes.see(100, "8")
    assert nodes.milli_cpu("n1") == 8000


def test_closed_node_may_take_pods_until_the_slack_is_over() -> None:
    nodes = Nodes()
    nodes.see(0, "2")
    assert list(nodes.names()) == ["n1"]
    nodes.see(100, "2", taints=[{"key": "a", "effect": "NoSchedule"}])
    assert list(nodes.names()) == []
    assert nodes.may_take("n1")
    nodes.at_s = 110
    assert not nodes.may_take("n1")
    nodes.see(200, "2", unschedulable=True)
    assert not nodes.may_take("n1")


def test_node_may_hold_a_forgiven_pod_more_until_the_slack_is_over() -> None:
    nodes = Nodes()
    nodes.see(0, "2")
    nodes.at_s = 100
    nodes.forgive("n1", 500)
    nodes.at_s = 105
    nodes.forgive("n1", 250)
    for at_s, milli_cpu in ((105, 2750), (110, 2750), (111, 2250), (116, 2000)):
        nodes.at_s = at_s
        assert nodes.milli_cpu("n1") == milli_cpu
    assert nodes.milli_cpu_now("n1") == 2000


def test_node_that_is_gone_or_unknown_has_no_room() -> None:
    nodes = Nodes()
    nodes.see(0, "2")
    nodes.at_s = 50
    nodes.is_gone("n1")
    assert (nodes.milli_cpu("n1"), nodes.may_take("n1")) == (2000, True)
    nodes.at_s = 61
    assert (nodes.milli_cpu("n1"), nodes.may_take("n1")) == (0, False)
    assert (nodes.milli_cpu("n2"), nodes.may_take("n2")) == (0, False)
