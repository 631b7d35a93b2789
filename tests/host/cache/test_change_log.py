"""The changes that the change log returns, by part of the state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.model.state_changes import NodeChange, StateChanges
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.selection import StateSelection
from berth_sdk.tables import StateVersion
from berth_sdk.tables.generation_log import GenerationLog
from hypothesis import given
from hypothesis import strategies as st

CLAIMS, KIND = "persistentvolumeclaims", "PersistentVolumeClaim"
ALL = StateSelection.of([Need.nodes(), Need.pods(), Need.objects(CLAIMS)])


class Setup:
    """Three nodes, a snapshot, and the version that a copy holds."""

    def __init__(self) -> None:
        self.objects = ObjectStores()
        self.cache = Cache(self.objects.generations)
        self.snapshot = Snapshot(self.objects)
        self.log = ChangeLog(self.snapshot)
        for name in ("n1", "n2", "n3"):
            self.cache.add_node(Node(name=name, labels={"a": "b"}, allocatable={"cpu": 4000}))
        self.snapshot.update(self.cache)
        self.base = self.log.version

    def changes(self, selection: StateSelection = ALL) -> StateChanges:
        self.snapshot.update(self.cache)
        changes = self.log.changes_since(self.base, selection)
        assert changes is not None
        return changes

    def put_claim(self, name: str) -> None:
        raw = {"metadata": {"name": name, "namespace": "default"}}
        self.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))


def pod(name: str, node_name: str = "n1", **fields: object) -> Pod:
    defaults: dict[str, object] = {"requests": {"cpu": 100}}
    return Pod(name=name, uid=name, node_name=node_name, **(defaults | fields))  # type: ignore[arg-type]


@pytest.fixture
def setup() -> Setup:
    return Setup()


def only(changes: StateChanges) -> NodeChange:
    (change,) = changes.nodes
    return change


def test_an_unchanged_snapshot_has_no_changes(setup: Setup) -> None:
    changes = setup.changes()
    assert (changes.nodes, changes.removed, changes.objects) == ([], [], [])
    assert changes.target == setup.base


STEPS = st.lists(
    st.tuples(st.sampled_from(("bind", "leave", "relabel", "drop", "update")), st.integers(0, 2)), max_size=12
)


@given(steps=STEPS, limit=st.integers(0, 6))
def test_reader_that_lags_behind_the_log_of_rows_gets_the_same_changes(
    steps: list[tuple[str, int]], limit: int
) -> None:
    setup = Setup()
    setup.snapshot.log.moved = GenerationLog(limit)
    for number, (what, which) in enumerate(steps):
        name = f"n{which + 1}"
        info = setup.cache.node_info(name)
        there = info is not None and info.node is not None
        if what == "bind" and there:
            setup.cache.add_pod(pod(f"p{number}", name))
        elif what == "leave":
            for one in () if info is None else tuple(info.pods)[:1]:
                setup.cache.remove_pod(one)
        elif what == "relabel":
            setup.cache.add_node(Node(name=name, labels={"a": str(number)}, allocatable={"cpu": 4000}))
        elif what == "drop" and there:
            setup.cache.remove_node(name)
        elif what == "update":
            setup.snapshot.update(setup.cache)
    changes = setup.changes()
    setup.snapshot.log.moved = GenerationLog(limit=0)
    setup.snapshot.log.moved.add(setup.snapshot.generation, 0)
    every = setup.changes()
    assert [vars_of(change) for change in changes.nodes] == [vars_of(change) for change in every.nodes]
    assert changes.generation_sum == int(setup.snapshot.columns.generation.sum()) % 2**53


def vars_of(change: NodeChange) -> dict[str, object]:
    return {name: getattr(change, name) for name in change.__dataclass_fields__}


def test_assumed_pod_changes_usage_and_pods_but_not_the_summary(setup: Setup) -> None:
    setup.cache.assume(pod("a", "n2"))
    changes = setup.changes()
    change = only(changes)
    assert (change.index, change.is_new, change.summary, change.object) == (1, False, False, False)
    assert change.usage is not None
    assert change.usage.requested == {"cpu": 100}
    assert [p.uid for p in change.pods] == ["a"]
    assert not change.pods_complete
    assert changes.assumed == {"a"}


def test_confirmation_changes_the_pod_but_not_the_usage(setup: Setup) -> None:
    setup.cache.assume(pod("a"))
    setup.base = setup.changes().target
    setup.cache.add_pod(pod("a", resource_version="2"))
    changes = setup.changes()
    change = only(changes)
    assert change.usage is None
    assert [p.resource_version for p in change.pods] == ["2"]
    assert changes.assumed == frozenset()


def test_pods_are_left_out_if_no_plugin_declared_them(setup: Setup) -> None:
    setup.cache.assume(pod("a"))
    change = only(setup.changes(StateSelection.of([Need.nodes()])))
    assert (change.pods, change.removed_pods, change.pods_complete) == ((), (), False)


def test_pod_that_left_is_named(setup: Setup) -> None:
    setup.cache.add_pod(pod("a"))
    setup.cache.add_pod(pod("b"))
    setup.base = setup.changes().target
    setup.cache.remove_pod(pod("a"))
    change = only(setup.changes())
    assert ([p.uid for p in change.pods], list(change.removed_pods)) == (["b"], ["a"])  # b moved up


def test_pod_that_stays_where_it_was_is_not_named(setup: Setup) -> None:
    setup.cache.add_pod(pod("a"))
    setup.cache.add_pod(pod("b"))
    setup.base = setup.changes().target
    setup.cache.remove_pod(pod("b"))
    change = only(setup.changes())
    assert ([p.uid for p in change.pods], list(change.removed_pods)) == ([], ["b"])


def test_pod_that_left_and_came_back_is_not_named_as_gone(setup: Setup) -> None:
    setup.cache.add_pod(pod("a"))
    setup.base = setup.changes().target
    setup.cache.remove_pod(pod("a"))
    setup.changes()
    setup.cache.add_pod(pod("a", priority=5))
    change = only(setup.changes())
    assert ([p.priority for p in change.pods], list(change.removed_pods)) == ([5], [])


def test_pod_bound_elsewhere_leaves_one_node_and_comes_to_another(setup: Setup) -> None:
    setup.cache.assume(pod("a", "n1"))
    setup.base = setup.changes().target
    setup.cache.add_pod(pod("a", "n2"))
    first, second = setup.changes().nodes
    assert (first.index, list(first.removed_pods), list(first.pods)) == (0, ["a"], [])
    assert (second.index, list(second.removed_pods), [p.uid for p in second.pods]) == (1, [], ["a"])


def test_node_update_that_scheduling_does_not_read_moves_the_object_alone(setup: Setup) -> None:
    node = setup.cache.node_info("n1")
    assert node is not None
    assert node.node is not None
    setup.cache.update_node(replace(node.node, resource_version="9"))
    change = only(setup.changes())
    assert (change.summary, change.object, change.usage) == (False, True, None)


def test_node_update_that_scheduling_reads_moves_the_summary(setup: Setup) -> None:
    setup.cache.update_node(Node(name="n1", labels={"a": "c"}, allocatable={"cpu": 4000}))
    change = only(setup.changes())
    assert (change.summary, change.object, change.usage) == (True, True, None)


def test_new_node_comes_whole(setup: Setup) -> None:
    setup.cache.add_pod(pod("a", "n4"))
    setup.cache.add_node(Node(name="n4"))
    change = only(setup.changes())
    assert (change.index, change.node.name, change.is_new, change.summary) == (3, "n4", True, True)
    assert change.usage is not None
    assert ([p.uid for p in change.pods], change.pods_complete) == (["a"], True)


def test_removed_node_is_named_by_its_index(setup: Setup) -> None:
    setup.cache.remove_node("n2")
    changes = setup.changes()
    assert (list(changes.nodes), changes.removed, changes.node_count) == ([], [1], 2)


def test_node_made_again_is_removed_and_new(setup: Setup) -> None:
    setup.cache.remove_node("n2")
    setup.cache.add_node(Node(name="n2"))
    changes = setup.changes()
    assert changes.removed == [1]
    assert (only(changes).index, only(changes).is_new) == (3, True)


def test_objects_of_declared_resources_come_and_go(setup: Setup) -> None:
    setup.put_claim("kept")
    setup.put_claim("lost")
    setup.base = setup.changes().target
    setup.put_claim("new")
    setup.objects.remove(KIND, ObjectRef(name="lost", namespace="default"))
    changes = setup.changes()
    assert {(c.ref.name, c.object is None) for c in changes.objects} == {("lost", True), ("new", False)}
    assert changes.object_count == 2
    nodes_only = setup.changes(StateSelection.of([Need.nodes()]))
    assert (nodes_only.objects, nodes_only.object_count) == ([], 0)


def test_digests_are_those_of_all_rows_and_declared_objects(setup: Setup) -> None:
    setup.put_claim("a")
    setup.cache.assume(pod("a", "n2"))
    changes = setup.changes()
    # n1 came first, n3 third, the claim fourth, the pod moved n2 fifth.
    assert (changes.node_count, changes.object_count, changes.generation_sum) == (3, 1, 1 + 3 + 4 + 5)


def test_reader_without_a_version_gets_everything(setup: Setup) -> None:
    setup.put_claim("a")
    setup.cache.assume(pod("a"))
    setup.changes()
    changes = setup.log.changes_since(None, ALL)
    assert changes is not None
    assert changes.base is None
    assert [change.node.name for change in changes.nodes] == ["n1", "n2", "n3"]
    assert all(change.is_new and change.pods_complete for change in changes.nodes)
    assert [change.ref.name for change in changes.objects] == ["a"]


@pytest.mark.parametrize(
    ("epoch_step", "generation_step"),
    [pytest.param(1, 0, id="another epoch"), pytest.param(0, 1, id="a version of the future")],
)
def test_changes_since_a_version_of_another_epoch_are_unknown(
    setup: Setup, epoch_step: int, generation_step: int
) -> None:
    base = StateVersion(setup.base.epoch + epoch_step, setup.base.generation + generation_step)
    assert setup.log.changes_since(base, ALL) is None


def test_changes_since_a_too_old_version_are_unknown(setup: Setup) -> None:
    setup.snapshot.log.removed_pods = GenerationLog(limit=1)
    for name in "ab":
        setup.cache.add_pod(pod(name))
    setup.base = setup.changes().target
    setup.cache.remove_pod(pod("a"))
    assert list(only(setup.changes()).removed_pods) == ["a"]
    setup.cache.remove_pod(pod("b"))
    setup.snapshot.update(setup.cache)
    assert setup.log.changes_since(setup.base, ALL) is None


def test_changes_stay_as_they_are_when_the_snapshot_moves_on(setup: Setup) -> None:
    setup.cache.assume(pod("a"))
    changes = setup.changes()
    setup.cache.forget(pod("a"))
    setup.cache.assume(pod("b"))
    setup.snapshot.update(setup.cache)
    change = only(changes)
    assert ([p.uid for p in change.pods], changes.assumed) == (["a"], {"a"})
    assert change.usage is not None
    assert change.usage.pod_count == 1
