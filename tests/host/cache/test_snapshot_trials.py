"""Trial steps change a held snapshot, and leave nothing behind: rows, pods, groups, and served copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.objects import ObjectStores
from berth_host.cache.pod_groups import GroupReader, PodGroups
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.state import InvariantError
from berth_host.rpc.state_codec import StateEncoder
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import HostPort, Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.selection import StateSelection
from berth_sdk.serve.state_copy import StateCopy, Taken
from berth_sdk.tables import NodeTable, StateVersion
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from support.table_contents import node_contents, pod_contents, pods_by_node
from support.tiers import examples

CLAIMS, CLAIM = "persistentvolumeclaims", "PersistentVolumeClaim"
EVERYTHING = (
    Need(kind=NeedKind.NODE_SUMMARY, images=True, annotation_prefixes=("",)),
    Need.pods(annotation_prefixes=("",)),
    Need.objects(CLAIMS),
)
GROUPS = ("podgroup/default/g1", "podgroup/default/g2", "")
NODES = ("n1", "n2", "n3")
SHAPES = (
    Pod(name="", labels={"app": "a"}, requests={"cpu": 100}, score_requests={"cpu": 100}),
    Pod(name="", labels={"tier": "2"}, priority=4, host_ports=(HostPort("", "", 80),)),
    Pod(name="", requests={"cpu": 2**62}, started_at_s=2.5, score_requests={"cpu": 100}),
)
node_names = st.sampled_from(NODES)
uids = st.sampled_from("abcde")


def made(name: str, node_name: str = "n1", group: str = "", shape: Pod = SHAPES[0]) -> Pod:
    return replace(shape, name=name, uid=name, node_name=node_name, group_key=group)


class Setup:
    """A cache with groups, a snapshot of it, and a copy of the snapshot as a served plugin has it."""

    def __init__(self) -> None:
        self.objects = ObjectStores()
        generations = self.objects.generations
        self.cache = Cache(generations, PodGroups(generations))
        self.snapshot = Snapshot(self.objects)
        self.log = ChangeLog(self.snapshot)
        self.encoder = StateEncoder(StateSelection.of(EVERYTHING))
        self.copy = StateCopy(EVERYTHING)
        self.held_version: StateVersion | None = None
        for name in NODES:
            self.cache.add_node(Node(name=name, labels={"app": name}, allocatable={"cpu": 4000}))
        self.snapshot.update(self.cache)

    def contents(self, snapshot: Snapshot) -> object:
        slots = {slot: name for name, slot in snapshot.columns.index_of.items()}
        return (
            node_contents(snapshot.nodes),
            pod_contents(snapshot.pods, slots),
            pods_by_node(snapshot.nodes),
            groups_of(snapshot.groups),
            [ref.ref for ref in snapshot.objects_of_kind(CLAIM).list()],
        )

    def anew(self) -> Snapshot:
        fresh = Snapshot(self.objects)
        fresh.update(self.cache)
        return fresh

    def check_copy(self) -> None:
        """Send the delta to the copy; it then has what the snapshot has."""
        changes = self.log.changes_since(self.held_version, self.encoder.selection)
        assert changes is not None
        delta = pb.StateDelta.FromString(self.encoder.delta(changes).SerializeToString())
        assert self.copy.apply(delta) in (Taken.APPLIED, Taken.HELD)
        self.held_version = self.copy.version
        assert self.held_version == self.log.version
        table = self.copy.nodes
        assert usages(table) == usages(self.snapshot.nodes)
        assert pods_by_node(table) == pods_by_node(self.snapshot.nodes)
        assert table.generation.tolist() == self.snapshot.nodes.generation.tolist()
        assert [one.ref for one in self.copy.objects(CLAIMS).list()] == [
            one.ref for one in self.snapshot.objects_of_kind(CLAIM).list()
        ]


def usages(table: NodeTable) -> object:
    pods = table.pods
    return {
        view.name: (
            dict(view.usage.requested),
            view.usage.pod_count,
            view.usage.host_ports,
            sorted((pod.uid, pods.is_assumed(pod.uid)) for pod in view.pods),
        )
        for view in table
    }


def groups_of(groups: GroupReader) -> object:
    found = {}
    for key in groups.group_keys():
        state = groups.state(key)
        assert state is not None
        parts = (state.unscheduled, state.assumed, state.assigned)
        assert sorted(state.all) == sorted(uid for part in parts for uid in part)
        assert all(state.all[uid] is pod for part in parts for uid, pod in part.items())
        found[key] = [dict(part) for part in parts]
    return found, {group.key: group for group in groups.objects()}


@pytest.fixture
def setup() -> Setup:
    return Setup()


# --- single steps ------------------------------------------------------------------------------


def test_assumed_pod_counts_on_its_node_until_the_release(setup: Setup) -> None:
    before = setup.snapshot.version
    setup.snapshot.hold()
    setup.snapshot.assume(made("a", "n2"))
    table = setup.snapshot.nodes
    assert table.requested("cpu").tolist() == [0, 100, 0]
    assert setup.snapshot.pods.is_assumed("a")
    assert setup.snapshot.generation > before.generation
    setup.snapshot.release()
    assert setup.snapshot.nodes.requested("cpu").tolist() == [0, 0, 0]
    assert len(setup.snapshot.pods) == 0


def test_removed_pod_comes_back_in_its_place_as_it_was(setup: Setup) -> None:
    for name in "abc":
        setup.cache.add_pod(made(name))
    setup.cache.assume(made("d"))
    setup.snapshot.update(setup.cache)
    before = setup.contents(setup.snapshot)
    setup.snapshot.hold()
    mark = setup.snapshot.mark()
    setup.snapshot.remove("a")
    setup.snapshot.remove("d")
    assert pods_by_node(setup.snapshot.nodes)["n1"] == ["c", "b"]
    assert setup.snapshot.restore("a").uid == "a"
    assert setup.snapshot.restore("d").uid == "d"
    assert setup.snapshot.pods.is_assumed("d")
    setup.snapshot.revert(mark)
    assert setup.contents(setup.snapshot) == before


def test_node_on_trial_is_there_for_the_block_in_the_copy_too(setup: Setup) -> None:
    setup.cache.add_pod(made("a"))
    setup.snapshot.update(setup.cache)
    setup.check_copy()
    before = setup.contents(setup.snapshot)
    setup.snapshot.hold()
    order = setup.snapshot.order.tolist()
    for name in ("new", "newer"):
        new = Node(name=name, labels={"app": "x"}, allocatable={"cpu": 1})
        with setup.snapshot.with_node(new, [made("daemon", name)]):
            view = setup.snapshot.nodes.node_named(name)
            assert view is not None
            assert (view.pod_count, view.requested["cpu"]) == (1, 100)
            setup.check_copy()
            setup.snapshot.assume(made("b", name))
            setup.snapshot.revert(0)
            setup.check_copy()
        setup.check_copy()
    setup.snapshot.release()
    assert setup.contents(setup.snapshot) == before
    assert setup.snapshot.order.tolist() == order
    setup.snapshot.update(setup.cache)
    setup.check_copy()


def test_node_on_trial_that_is_known_or_comes_outside_a_cycle_raises(setup: Setup) -> None:
    setup.cache.add_pod(made("a"))
    setup.snapshot.update(setup.cache)
    with (
        pytest.raises(InvariantError, match="no cycle holds the snapshot"),
        setup.snapshot.with_node(Node(name="new")),
    ):
        pass
    setup.snapshot.hold()
    for node, pods in ((Node(name="n1"), []), (Node(name="new"), [made("a", "new")])):
        with pytest.raises(InvariantError, match="the snapshot has it"), setup.snapshot.with_node(node, pods):
            pass


def test_marks_nest(setup: Setup) -> None:
    setup.snapshot.hold()
    setup.snapshot.assume(made("a"))
    mark = setup.snapshot.mark()
    setup.snapshot.assume(made("b"))
    setup.snapshot.assume(made("c", "n2"))
    setup.snapshot.revert(mark)
    assert pods_by_node(setup.snapshot.nodes) == {"n1": ["a"], "n2": [], "n3": []}
    setup.snapshot.forget("a")
    assert setup.snapshot.mark() == 0


def test_group_state_follows_the_steps(setup: Setup) -> None:
    key = GROUPS[0]
    groups = setup.cache.groups
    pending = made("a", "", key)
    groups.put_unscheduled(pending)
    setup.cache.add_pod(made("b", "n1", key))
    setup.snapshot.update(setup.cache)
    before = groups_of(setup.snapshot.groups)
    setup.snapshot.hold()
    setup.snapshot.assume(pending.on_node("n2"))
    state = setup.snapshot.groups.state(key)
    assert state is not None
    assert (list(state.unscheduled), list(state.assumed), list(state.assigned)) == ([], ["a"], ["b"])
    mark = setup.snapshot.mark()
    setup.snapshot.remove("b")
    assert setup.snapshot.groups.state(key).scheduled_count == 1  # type: ignore[union-attr]
    setup.snapshot.revert(mark)
    assert setup.snapshot.groups.state(key).scheduled_count == 2  # type: ignore[union-attr]
    live = groups.state(key)
    assert live is not None
    assert list(live.unscheduled) == ["a"]
    setup.snapshot.release()
    assert groups_of(setup.snapshot.groups) == before == groups_of(groups)


def test_member_that_was_deleted_does_not_count_in_its_group(setup: Setup) -> None:
    key = GROUPS[0]
    setup.cache.groups.put_object(PodGroup(name="g1"))
    setup.snapshot.update(setup.cache)
    setup.snapshot.hold()
    setup.snapshot.assume(made("a", "n1", key))
    assert setup.snapshot.groups.state(key).all == {}  # type: ignore[union-attr]
    assert setup.snapshot.nodes.pod_count.tolist() == [1, 0, 0]


def test_steps_outside_a_cycle_and_impossible_ones_raise(setup: Setup) -> None:
    snapshot = setup.snapshot
    with pytest.raises(InvariantError, match="no cycle holds"):
        snapshot.assume(made("a"))
    snapshot.hold()
    with pytest.raises(InvariantError, match="no node of it"):
        snapshot.assume(made("a", "nowhere"))
    snapshot.assume(made("a"))
    with pytest.raises(InvariantError, match="already"):
        snapshot.assume(made("a", "n2"))
    with pytest.raises(InvariantError, match="cannot be forgotten"):
        snapshot.forget("b")
    with pytest.raises(InvariantError, match="cannot be removed"):
        snapshot.remove("b")
    with pytest.raises(InvariantError, match="cannot be restored"):
        snapshot.restore("a")


def test_changes_of_the_cache_in_a_cycle_with_trials_are_copied_after_it(setup: Setup) -> None:
    setup.check_copy()
    setup.snapshot.hold()
    setup.cache.assume(made("x", "n1"))
    setup.objects.put(CLAIM, KubeObject.of({"kind": CLAIM, "metadata": {"name": "c", "namespace": "d"}}))
    setup.snapshot.assume(made("a", "n2"))
    setup.check_copy()
    setup.snapshot.release()
    setup.check_copy()
    setup.snapshot.update(setup.cache)
    setup.check_copy()
    assert pods_by_node(setup.snapshot.nodes) == {"n1": ["x"], "n2": [], "n3": []}
    version = setup.snapshot.version
    setup.snapshot.update(setup.cache)
    assert setup.snapshot.version == version


def test_trials_alone_make_no_version_beyond_their_steps(setup: Setup) -> None:
    setup.snapshot.hold()
    setup.snapshot.assume(made("a", "n2"))
    setup.snapshot.release()
    version = setup.snapshot.version
    setup.snapshot.update(setup.cache)
    assert setup.snapshot.version == version


def test_group_without_members_is_as_unknown_after_a_revert_as_before(setup: Setup) -> None:
    setup.snapshot.hold()
    setup.snapshot.assume(made("a", "n1", GROUPS[0]))
    mark, before = setup.snapshot.mark(), setup.contents(setup.snapshot)
    setup.snapshot.assume(made("b", "n1", GROUPS[0]))
    setup.snapshot.revert(mark)
    assert setup.contents(setup.snapshot) == before


# --- any sequence ------------------------------------------------------------------------------


class TrialMachine(RuleBasedStateMachine):
    """Cache changes and cycles with trial steps in any order; the copy is brought up to date now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = Setup()
        self.snapshot = self.setup.snapshot
        self.before: object = None
        self.marks: list[tuple[int, object]] = []

    # --- the cache moves -----------------------------------------------------------------------

    @rule(uid=uids, node_name=node_names, group=st.sampled_from(GROUPS), shape=st.sampled_from(SHAPES))
    def pod_arrives(self, uid: str, node_name: str, group: str, shape: Pod) -> None:
        cache = self.setup.cache
        known = cache.get_pod(uid)
        if known is None:
            cache.add_pod(made(uid, node_name, group, shape))
        elif cache.is_assumed(uid):
            cache.add_pod(known)
        else:
            cache.update_pod(
                known, replace(shape, name=uid, uid=uid, node_name=known.node_name, group_key=known.group_key)
            )

    @rule(uid=uids, node_name=node_names, group=st.sampled_from(GROUPS), shape=st.sampled_from(SHAPES))
    def pod_is_assumed(self, uid: str, node_name: str, group: str, shape: Pod) -> None:
        cache = self.setup.cache
        if cache.get_pod(uid) is None:
            pending = made(uid, "", group, shape)
            cache.groups.put_unscheduled(pending)
            cache.assume(pending.on_node(node_name))

    @rule(uid=uids)
    def pod_leaves(self, uid: str) -> None:
        cache = self.setup.cache
        known = cache.get_pod(uid)
        if known is None:
            return
        if cache.is_assumed(uid):
            cache.forget(known)
            cache.groups.remove_unscheduled(known)
        else:
            cache.remove_pod(known)

    @rule(uid=uids, group=st.sampled_from(GROUPS))
    def member_waits(self, uid: str, group: str) -> None:
        if self.setup.cache.get_pod(uid) is None:
            for key in GROUPS[:2]:
                self.setup.cache.groups.remove_unscheduled(made(uid, "", key))
            self.setup.cache.groups.put_unscheduled(made(uid, "", group))

    @rule(name=st.sampled_from(["g1", "g2"]), there=st.booleans(), minimum=st.integers(1, 3))
    def group_object_changes(self, name: str, there: bool, minimum: int) -> None:
        group = PodGroup(name=name, is_gang=True, min_count=minimum)
        if there:
            self.setup.cache.groups.put_object(group)
        else:
            self.setup.cache.groups.remove_object(group.key)

    @rule(name=node_names, there=st.booleans())
    def node_changes(self, name: str, there: bool) -> None:
        info = self.setup.cache.node_info(name)
        known = info is not None and info.node is not None
        if there:
            labels = {"tier": "x"} if known else {}
            self.setup.cache.add_node(Node(name=name, labels=labels, allocatable={"cpu": 8000}))
        elif known:
            self.setup.cache.remove_node(name)

    @rule(name=st.sampled_from("pq"))
    def object_changes(self, name: str) -> None:
        parsed = {"kind": CLAIM, "metadata": {"name": name, "namespace": "default"}}
        self.setup.objects.put(CLAIM, KubeObject.of(parsed))

    # --- a cycle -------------------------------------------------------------------------------

    @precondition(lambda self: not self.snapshot.held)
    @rule()
    def cycle_starts(self) -> None:
        self.snapshot.update(self.setup.cache)
        assert self.setup.contents(self.snapshot) == self.setup.contents(self.setup.anew())
        self.snapshot.hold()
        self.before = self.setup.contents(self.snapshot)
        self.marks = []

    @precondition(lambda self: self.snapshot.held)
    @rule(uid=uids, node_name=node_names, group=st.sampled_from(GROUPS), shape=st.sampled_from(SHAPES))
    def assume(self, uid: str, node_name: str, group: str, shape: Pod) -> None:
        if self.snapshot.pods.position(uid) is None and self.snapshot.has_node(node_name):
            self.snapshot.assume(made(uid, node_name, group, shape))
            assert self.snapshot.pods.is_assumed(uid)

    @precondition(lambda self: self.snapshot.held)
    @rule(uid=uids)
    def forget_or_remove(self, uid: str) -> None:
        if self.snapshot.pods.position(uid) is None:
            return
        try:
            self.snapshot.forget(uid)
        except InvariantError:
            self.snapshot.remove(uid)
        assert self.snapshot.pods.position(uid) is None
        self._drop_undone_marks()

    @precondition(lambda self: self.snapshot.held)
    @rule(uid=uids)
    def restore(self, uid: str) -> None:
        if self.snapshot.pods.position(uid) is not None:
            return
        try:
            self.snapshot.restore(uid)
        except InvariantError:
            return
        assert self.snapshot.pods.position(uid) is not None
        self._drop_undone_marks()

    @precondition(lambda self: self.snapshot.held)
    @rule()
    def mark(self) -> None:
        self.marks.append((self.snapshot.mark(), self.setup.contents(self.snapshot)))

    @precondition(lambda self: self.snapshot.held)
    @rule()
    def revert(self) -> None:
        if self.marks:
            mark, contents = self.marks.pop()
            self.snapshot.revert(mark)
            assert self.setup.contents(self.snapshot) == contents

    def _drop_undone_marks(self) -> None:
        """Drop the marks behind a step that was undone: the number then stands for another step."""
        self.marks = [(mark, contents) for mark, contents in self.marks if mark <= self.snapshot.mark()]

    @precondition(lambda self: self.snapshot.held)
    @rule()
    def cycle_ends(self) -> None:
        self.snapshot.release()
        assert self.setup.contents(self.snapshot) == self.before

    @rule()
    def copy_is_brought_up_to_date(self) -> None:
        self.setup.check_copy()

    def teardown(self) -> None:
        self.snapshot.release()
        self.snapshot.update(self.setup.cache)
        assert self.setup.contents(self.snapshot) == self.setup.contents(self.setup.anew())
        self.setup.check_copy()


TestTrialMachine = TrialMachine.TestCase
TestTrialMachine.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
