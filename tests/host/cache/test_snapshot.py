"""The snapshot gets the changes of the cache, and does not change while it is held."""

from __future__ import annotations

import numpy as np
import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.state import InvariantError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node, NodeImage
from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables.generation_log import GenerationLog

ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str = "", **fields: object) -> Node:
    return Node(name=name, labels={ZONE: zone} if zone else {}, **fields)  # type: ignore[arg-type]


def pod(name: str, node_name: str = "n1", **fields: object) -> Pod:
    return Pod(name=name, uid=f"uid-{name}", node_name=node_name, **fields)  # type: ignore[arg-type]


class Setup:
    """A cache, its stores and one snapshot."""

    def __init__(self, *nodes: Node) -> None:
        self.objects = ObjectStores()
        self.cache = Cache(self.objects.generations)
        self.snapshot = Snapshot(self.objects)
        for each in nodes:
            self.cache.add_node(each)
        self.update()

    def update(self) -> None:
        self.snapshot.update(self.cache)

    def visited(self) -> list[str]:
        names = self.snapshot.nodes.names
        return [names[row] for row in self.snapshot.order.tolist()]


def test_snapshot_shows_no_change_until_it_is_updated() -> None:
    setup = Setup(node("n1"))
    table, version = setup.snapshot.nodes, setup.snapshot.version
    setup.cache.assume(pod("a", requests={"cpu": 5}))
    setup.cache.add_node(node("n2"))
    assert table.requested("cpu").tolist() == [0]
    assert (setup.snapshot.version, len(setup.snapshot.nodes)) == (version, 1)
    setup.update()
    assert setup.snapshot.generation > version.generation
    assert setup.snapshot.nodes.requested("cpu").tolist() == [5, 0]


def test_held_snapshot_refuses_an_update_until_it_is_released() -> None:
    setup = Setup(node("n1"))
    setup.snapshot.hold()
    setup.cache.assume(pod("a", requests={"cpu": 5}))
    setup.cache.remove_node("n1")
    with pytest.raises(InvariantError, match="is held by a cycle"):
        setup.update()
    with pytest.raises(InvariantError, match="a second one"):
        setup.snapshot.hold()
    assert setup.snapshot.nodes.names == ["n1"]
    assert setup.snapshot.nodes.requested("cpu").tolist() == [0]
    setup.snapshot.release()
    setup.update()
    assert setup.snapshot.nodes.names == []


def test_work_that_waits_for_the_release_is_done_between_two_cycles_and_once() -> None:
    setup = Setup(node("n1"))
    setup.snapshot.hold()
    setup.cache.add_node(node("n2"))
    setup.snapshot.when_released(setup.update)
    assert setup.snapshot.nodes.names == ["n1"]
    setup.snapshot.release()
    assert setup.snapshot.nodes.names == ["n1", "n2"]
    setup.cache.add_node(node("n3"))
    setup.snapshot.release()
    assert setup.snapshot.nodes.names == ["n1", "n2"]
    setup.snapshot.when_released(setup.update)
    assert setup.snapshot.nodes.names == ["n1", "n2", "n3"]


def test_plugins_cannot_write_to_its_columns() -> None:
    setup = Setup(node("n1", allocatable={"cpu": 4000}))
    table = setup.snapshot.nodes
    for column in (table.allocatable("cpu"), table.requested("cpu"), table.pod_count, table.slots):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        setup.snapshot.order[0] = 7
    setup.cache.assume(pod("a"))
    setup.update()
    with pytest.raises(ValueError, match="read-only"):
        setup.snapshot.pods.priority[0] = 7


def test_only_rows_that_changed_get_a_new_generation() -> None:
    setup = Setup(node("n1"), node("n2"), node("n3"))
    before = setup.snapshot.nodes.generation.tolist()
    setup.cache.assume(pod("a", "n2"))
    setup.update()
    after = setup.snapshot.nodes.generation.tolist()
    assert [old != new for old, new in zip(before, after, strict=True)] == [False, True, False]


def test_update_without_changes_keeps_version_and_table() -> None:
    setup = Setup(node("n1"))
    table, version = setup.snapshot.nodes, setup.snapshot.version
    setup.update()
    assert setup.snapshot.nodes is table
    assert setup.snapshot.version == version


def test_epochs_differ_between_snapshots_and_are_never_zero() -> None:
    epochs = {Snapshot().epoch for _ in range(20)}
    assert len(epochs) == 20
    assert 0 not in epochs


def test_placeholder_nodes_are_not_in_the_snapshot() -> None:
    setup = Setup(node("n1"))
    setup.cache.add_pod(pod("a", "unknown"))
    setup.update()
    assert setup.snapshot.nodes.names == ["n1"]
    assert len(setup.snapshot.pods) == 0
    setup.cache.add_node(node("unknown"))
    setup.update()
    assert setup.snapshot.nodes.names == ["n1", "unknown"]
    assert [p.name for p in setup.snapshot.nodes.node(1).pods] == ["a"]


def test_removed_node_leaves_the_snapshot_though_it_has_pods() -> None:
    setup = Setup(node("n1"), node("n2"))
    setup.cache.add_pod(pod("a"))
    setup.update()
    setup.cache.remove_node("n1")
    setup.update()
    assert setup.snapshot.nodes.names == ["n2"]
    assert len(setup.snapshot.pods) == 0


def test_node_made_again_under_its_name_gets_another_index_and_generation() -> None:
    setup = Setup(node("n1"), node("n2"))
    setup.cache.add_pod(pod("a"))
    setup.update()
    index, generation = setup.snapshot.columns.index_of["n1"], setup.snapshot.generation
    setup.cache.remove_node("n1")
    setup.cache.add_node(node("n1"))
    setup.update()
    view = setup.snapshot.nodes.node_named("n1")
    assert view is not None
    assert view.index != index
    assert view.generation > generation
    assert [p.name for p in view.pods] == ["a"]


def test_index_is_free_again_only_after_every_copy_confirmed_the_removal() -> None:
    setup = Setup(node("n1"))
    confirmed = setup.snapshot.generation
    setup.snapshot.confirmed_generation = lambda: confirmed
    setup.cache.remove_node("n1")
    setup.cache.add_node(node("n2"))
    setup.update()
    removal = setup.snapshot.generation
    setup.cache.add_node(node("n3"))
    setup.update()
    assert setup.snapshot.columns.index_of == {"n2": 1, "n3": 2}
    confirmed = removal
    setup.cache.add_node(node("n4"))
    setup.update()
    assert setup.snapshot.columns.index_of["n4"] == 0


def test_nodes_are_visited_zone_by_zone_in_turn() -> None:
    setup = Setup(node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c"), node("c2", "c"))
    assert setup.visited() == ["a1", "b1", "c1", "a2", "c2"]


def test_order_is_made_anew_only_when_nodes_come_or_go() -> None:
    setup = Setup(node("a1", "a"), node("a2", "a"), node("b1", "b"))
    setup.cache.update_node(node("a1", "b"))
    setup.update()
    assert setup.visited() == ["a1", "b1", "a2"]
    setup.cache.add_node(node("a3", "a"))
    setup.update()
    assert setup.visited() == ["a2", "b1", "a3", "a1"]


def test_node_made_again_between_two_updates_keeps_its_place_in_the_order() -> None:
    setup = Setup(node("a1", "a"), node("a2", "a"))
    setup.cache.remove_node("a1")
    setup.cache.add_node(node("a1", "a"))
    setup.update()
    assert setup.visited() == ["a1", "a2"]
    setup.cache.remove_node("a2")
    setup.update()
    assert setup.visited() == ["a1"]


def test_row_keeps_the_image_counts_of_its_last_copy() -> None:
    image = (NodeImage(("img",), 100),)
    setup = Setup(node("n1", images=image), node("n2"))
    setup.cache.update_node(node("n2", images=image))
    setup.update()
    assert setup.snapshot.nodes.image("img")[0].tolist() == [1, 2]
    setup.cache.assume(pod("a", "n1"))
    setup.update()
    assert setup.snapshot.nodes.image("img")[0].tolist() == [2, 2]


def test_totals_beyond_int64_are_capped() -> None:
    setup = Setup(node("n1"))
    for name in "ab":
        setup.cache.add_pod(pod(name, requests={"memory": 2**63 - 1}))
    setup.update()
    assert setup.snapshot.nodes.requested("memory").tolist() == [2**63 - 1]


def test_confirming_with_the_same_record_clears_the_assumed_mark() -> None:
    setup = Setup(node("n1"))
    setup.cache.assume(pod("a"))
    setup.update()
    assert setup.snapshot.pods.assumed.tolist() == [True]
    record = setup.cache.get_pod("uid-a")
    assert record is not None
    setup.cache.add_pod(record)
    setup.update()
    assert setup.snapshot.pods.assumed.tolist() == [False]


def test_host_ports_move_with_the_pods() -> None:
    setup = Setup(node("n1"), node("n2"))
    setup.cache.assume(pod("a", host_ports=(HostPort("", "", 80),)))
    setup.update()
    assert setup.snapshot.nodes.port_taken(HostPort("10.0.0.1", "TCP", 80)).tolist() == [True, False]
    setup.cache.forget(pod("a"))
    setup.update()
    assert setup.snapshot.nodes.port_taken(HostPort("", "", 80)).tolist() == [False, False]


# --- objects of other kinds --------------------------------------------------------------------------


def claim(name: str, size: str = "1Gi") -> KubeObject:
    return KubeObject.of(
        {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "size": size}
    )


KIND = "PersistentVolumeClaim"


def names_of(setup: Setup) -> list[str]:
    return [item.ref.name for item in setup.snapshot.objects_of_kind(KIND).list()]


def test_objects_are_those_of_the_version() -> None:
    setup = Setup()
    setup.objects.put(KIND, claim("a"))
    setup.objects.put(KIND, claim("b"))
    setup.update()
    setup.objects.put(KIND, claim("a", "2Gi"))
    setup.objects.remove(KIND, ObjectRef(name="b", namespace="default"))
    setup.objects.put(KIND, claim("c"))
    store = setup.snapshot.objects_of_kind(KIND)
    old = store.get("a", "default")
    assert old is not None
    assert (names_of(setup), old.get("size")) == (["a", "b"], "1Gi")
    setup.update()
    new = store.get("a", "default")
    assert new is not None
    assert (names_of(setup), new.get("size")) == (["a", "c"], "2Gi")


def test_object_made_again_between_two_updates_stays() -> None:
    setup = Setup()
    setup.objects.put(KIND, claim("a"))
    setup.update()
    setup.objects.remove(KIND, ObjectRef(name="a", namespace="default"))
    setup.objects.put(KIND, claim("a"))
    setup.update()
    assert names_of(setup) == ["a"]


def test_more_removals_than_the_log_remembers_are_all_taken_over() -> None:
    setup = Setup()
    setup.objects.of_kind(KIND).removed = GenerationLog(limit=2)
    for name in "abcdef":
        setup.objects.put(KIND, claim(name))
    setup.update()
    for name in "abcde":
        setup.objects.remove(KIND, ObjectRef(name=name, namespace="default"))
    setup.update()
    assert names_of(setup) == ["f"]
    live = setup.objects.of_kind(KIND)
    assert setup.snapshot.objects_of_kind(KIND).generation_sum == live.generation_sum


def test_columns_are_contiguous_while_no_node_has_left() -> None:
    setup = Setup(*(node(f"n{i}") for i in range(20)))
    table = setup.snapshot.nodes
    assert np.shares_memory(table.generation, setup.snapshot.columns.generation)
    setup.cache.remove_node("n3")
    setup.update()
    table = setup.snapshot.nodes
    assert table.names == [f"n{i}" for i in range(20) if i != 3]
    assert table.position("n4") == 3
    assert table.position("n3") is None


def test_epochs_are_numbers_that_every_decoder_reads_exactly() -> None:
    snapshot = Snapshot()
    seen = {snapshot.epoch}
    for _ in range(100):
        snapshot.begin_epoch()
        seen.add(snapshot.epoch)
    assert len(seen) == 101
    assert all(0 < epoch < 2**53 for epoch in seen)
