"""Views of tables follow the tables, keep the identity of what they hand out, and tell plugins apart. Each
accessor, with and without its need: `host/rpc/test_declared_parts.py`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from berth_sdk.errors import UndeclaredError
from berth_sdk.limits import node_limits, pod_limits
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.selection import StateSelection
from berth_sdk.tables import NodeColumns, NodeTable, PodChanges, PodsWith
from berth_sdk.tables.limited_tables import LimitedNodeTable, table_class
from berth_sdk.tables.pod_table import SharedReading
from berth_sdk.testing import make_node, make_pod
from berth_sdk.testing.builders import make_columns

NOTES = Need.pods(annotation_prefixes=("note/",))


def kind(*needs: Need) -> type[LimitedNodeTable]:
    selection = StateSelection.of(needs)
    return table_class(node_limits(selection, True), pod_limits(selection), False)


def columns() -> NodeColumns:
    nodes = [make_node(f"n{i}", labels={"zone": "ab"[i]}) for i in range(2)]
    held = [make_pod(f"p{i}", node=f"n{i}", uid=f"u{i}", annotations={"note/a": str(i)}) for i in range(2)]
    return make_columns(nodes, held)


def note(pod: Pod) -> str | None:
    return pod.annotations.get("note/a")


def pods_of(made: NodeColumns) -> Any:
    assert made.pods is not None
    return made.pods


def test_tables_of_equal_needs_share_a_class_and_a_view() -> None:
    table = NodeTable(columns())
    assert kind(Need.nodes()) is kind(Need.nodes())
    assert table.seen_as(kind(Need.nodes())) is table.seen_as(kind(Need.nodes()))


def test_tables_made_from_a_view_have_its_limits() -> None:
    table = NodeTable(columns()).seen_as(kind(Need.nodes()))
    none = PodChanges.none(1)
    for made in (
        table.take([1]),
        table.take(np.array([True, False])),
        table.unchanged(np.array([0])),
        table.whole,
        table.take([0]).with_changes(none, none),
        table.take([0]).with_changes(none, none).take([0]),
    ):
        with pytest.raises(UndeclaredError, match=r"reads nodes\.pods"):
            made.pods  # noqa: B018  # the read is what raises
        with pytest.raises(UndeclaredError, match=r"reads node\.annotations"):
            made.node(0).annotations  # noqa: B018
        assert made.node(0).labels["zone"] in "ab"


def test_view_of_pods_follows_the_table_and_keeps_its_records() -> None:
    made = columns()
    limits = kind(Need.nodes(), NOTES)
    before = NodeTable(made).seen_as(limits).pods
    first = before.pod(0)
    assert first.annotations == {"note/a": "0"} and note(first) == "0"
    made.begin_update()
    raw = pods_of(made)
    raw.set_node_pods(0, [*raw.on_node(0), make_pod("new", node="n0", uid="u9")], (), 2)
    made.touch(0, 2)
    after = NodeTable(made).seen_as(limits).pods
    assert after is before and len(after) == 3
    assert after.pod(0) is first and after.on_node(0)[0] is first
    assert after.several(np.array([0, 2]))[0] is first
    assert [pod.name for pod in after.on_node(0)] == ["p0", "new"]


def test_limited_records_of_removed_pods_are_dropped() -> None:
    made = columns()
    seen: Any = NodeTable(made).seen_as(kind(Need.nodes(), NOTES)).pods
    for round_ in range(2000):
        pods_of(made).set_node_pods(0, [make_pod("next", node="n0", uid=f"next-{round_}")], (), round_ + 2)
        seen.on_node(0)
    assert len(seen._records) < 1200  # noqa: SLF001  # no read shows what is kept


def test_plugins_with_different_needs_have_different_columns() -> None:
    made = columns()
    table = NodeTable(made)
    codes, values = table.seen_as(kind(Need.nodes(), NOTES)).pods.encoded("test/note", note)
    assert [values.values[code] for code in codes] == ["0", "1"]
    less = table.seen_as(kind(Need.nodes(), Need.pods()))
    with pytest.raises(UndeclaredError, match=r"reads pod\.annotations"):
        less.pods.encoded("test/note", note)
    assert less.pods.readings("test/name", lambda pod: pod.name) is less.pods.readings("test/name", note)


def test_plugins_that_declare_a_derived_field_share_its_column_and_others_cannot_read_it() -> None:
    read = SharedReading(lambda pod: pod.pod_affinity, "pod_affinity")
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    made = make_columns(
        [make_node("n0")], [make_pod("p0", node="n0", affinity=near), make_pod("p1", node="n0")]
    )
    table = NodeTable(made)
    own = pods_of(made).encoded("test/terms", read)
    for needs in ((NOTES, Need.pod_objects()), (Need.pods(), Need.pod_objects())):
        seen = table.seen_as(kind(Need.nodes(), *needs)).pods
        codes, values = seen.encoded("test/terms", read)
        assert [values.values[code] is None for code in codes] == [False, True]
        assert values is own[1]
        assert seen.readings("test/terms", read) is own[1]
    less = table.seen_as(kind(Need.nodes(), Need.pods())).pods
    with pytest.raises(UndeclaredError):
        less.encoded("test/terms", read)


def test_tally_reads_limited_records_of_added_and_removed_pods() -> None:
    made = columns()
    tally = PodsWith("test/note", note, int)
    limits = kind(Need.nodes(), NOTES)
    counts = NodeTable(made).seen_as(limits).pod_counts
    assert counts.column(tally)[:2].tolist() == [0, 1]
    made.begin_update()
    pods_of(made).set_node_pods(0, [make_pod("p", node="n0", uid="x", annotations={"note/a": "7"})], (), 2)
    made.touch(0, 2)
    assert NodeTable(made).seen_as(limits).pod_counts is counts
    assert counts.column(tally)[:2].tolist() == [7, 1]
    assert counts.by_domain(tally, "zone").tolist() == [0, 7, 1]
    less = NodeTable(made).seen_as(kind(Need.nodes(), Need.pods())).pod_counts
    with pytest.raises(UndeclaredError, match=r"reads pod\.annotations"):
        less.column(tally)


def test_what_if_through_a_view_equals_that_of_the_table() -> None:
    table = NodeTable(columns())
    seen = table.seen_as(kind(Need.nodes(), Need.pods()))
    (held,) = table.pods.on_node(0)
    what_if = Scenarios(table, [Scenario("n0", removed=(held,), added=(make_pod("come", cpu=2),))])
    nodes = what_if.nodes.seen_as(kind(Need.nodes(), Need.pods()))
    limited = what_if.limited(nodes, *nodes.limited_changes(what_if.removed, what_if.added))
    assert limited.nodes.requested("cpu").tolist() == what_if.nodes.requested("cpu").tolist()
    assert [pod.name for pod in limited.view(0).pods] == ["come"]
    removed = limited.take([0]).removed
    assert removed.pods(0)[0] is seen.pods.pod(cast("int", seen.pods.position(held.uid)))
    with pytest.raises(UndeclaredError, match=r"reads pod\.annotations"):
        note(limited.items[0].removed[0])
