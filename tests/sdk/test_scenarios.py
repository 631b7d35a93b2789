"""What-ifs as columns give the same result as removing and adding the same pods one by one."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from berth_sdk.pod import HostPort, Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.tables import NodeTable, PodChanges, PodTable
from berth_sdk.tables.node_columns import changed_usage
from berth_sdk.tables.used_ports import UsedPorts
from berth_sdk.testing import make_node, make_pod, make_table
from hypothesis import given
from hypothesis import strategies as st

NODES: Final = ("a", "b", "c")
PORTS: Final = [
    {"containerPort": 1, "hostPort": port, "hostIP": ip} for port in (80, 81) for ip in ("", "10.0.0.1")
]
RESOURCES: Final = ("cpu", "memory", "example.com/gpu", "never asked for")


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "") -> Pod:
    return make_pod(
        name,
        uid=f"uid-{name}",
        cpu=draw(st.integers(0, 4)),
        requests={"example.com/gpu": draw(st.integers(0, 2))},
        host_ports=draw(st.lists(st.sampled_from(PORTS), max_size=2)),
        node=node,
    )


@st.composite
def tables(draw: st.DrawFn) -> NodeTable:
    held = [draw(pods(f"p{i}", draw(st.sampled_from(NODES)))) for i in range(draw(st.integers(0, 6)))]
    return make_table([make_node(name) for name in NODES], held)


@st.composite
def questions(draw: st.DrawFn, table: NodeTable) -> list[Scenario]:
    items = []
    for i in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(NODES))
        here = [pod for pod in table.pods.on_node(table.slots[NODES.index(name)]) if draw(st.booleans())]
        come = tuple(draw(pods(f"new{i}-{j}")) for j in range(draw(st.integers(0, 2))))
        items.append(Scenario(name, tuple(here), come))
    return items


@given(data=st.data())
def test_columns_of_scenarios_equal_a_walk_over_their_pods(data: st.DataObject) -> None:
    table = data.draw(tables())
    items = data.draw(questions(table))
    scenarios = Scenarios(table, items)
    columns = Scenarios.of_changes(
        table.take([NODES.index(item.node_name) for item in items]), scenarios.removed, scenarios.added
    )
    some = data.draw(st.lists(st.sampled_from(range(len(items))), max_size=4) if items else st.just([]))
    for asked, wanted in (
        (scenarios, items),
        (columns, items),
        (columns.take(some), [items[i] for i in some]),
        (scenarios.take(np.arange(len(items)) % 2 == 0), items[::2]),
    ):
        _check(table, asked, wanted)


def _check(table: NodeTable, asked: Scenarios, wanted: list[Scenario]) -> None:
    nodes = asked.nodes
    assert list(asked.items) == wanted
    assert nodes.names == [item.node_name for item in wanted]
    usages = []
    for item in wanted:
        view = table.node_named(item.node_name)
        assert view is not None
        usages.append(changed_usage(view.usage, item.removed, item.added))
    for resource in RESOURCES:
        assert nodes.requested(resource).tolist() == [usage.requested.get(resource, 0) for usage in usages]
    for resource in ("cpu", "memory"):
        assert nodes.non_zero_requested(resource).tolist() == [
            usage.non_zero_requested.get(resource, 0) for usage in usages
        ]
    assert nodes.pod_count.tolist() == [usage.pod_count for usage in usages]
    for port in (HostPort("", "", 80), HostPort("10.0.0.1", "TCP", 81), HostPort("10.0.0.2", "TCP", 80)):
        taken = [UsedPorts(usage.host_ports).conflict_with([port]) for usage in usages]
        assert nodes.port_taken(port).tolist() == taken
    for i, (item, usage) in enumerate(zip(wanted, usages, strict=True)):
        view = asked.view(i)
        assert view.usage == usage
        assert {pod.uid for pod in view.pods} == {
            *(pod.uid for pod in table.pods.on_node(view.index) if pod not in item.removed),
            *(pod.uid for pod in item.added),
        }


def test_removed_pods_are_rows_of_the_snapshots_table() -> None:
    table = make_table([make_node("a")], [make_pod("p", uid="1", node="a"), make_pod("q", uid="2", node="a")])
    scenarios = Scenarios(table, [Scenario("a", (table.pods.pod(1),)), Scenario("a")])
    assert scenarios.removed.table is table.pods
    assert scenarios.removed.rows.tolist() == [1]
    assert scenarios.removed.row_of.tolist() == [0]
    assert scenarios.removed.starts.tolist() == [0, 1, 1]
    assert scenarios.pods is table.pods


def test_changes_add_up_pods_that_are_on_no_node() -> None:
    made = PodTable.of([make_pod(f"p{i}", uid=f"{i}", cpu=i, priority=i) for i in range(100)])
    assert made.requests("cpu").tolist() == [1000 * i for i in range(100)]
    assert made.priority.tolist() == list(range(100))
    assert set(made.node_index.tolist()) == {-1}
    changes = PodChanges(made, np.array([3, 3, 5]), np.array([0, 2, 2, 3]))
    assert changes.total(made.requests("cpu")).tolist() == [6000, 0, 5000]
    assert [pod.name for pod in changes.pods(0)] == ["p3", "p3"]


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(KeyError, match="ghost"):
        Scenarios(make_table([make_node("a")]), [Scenario("ghost")])
