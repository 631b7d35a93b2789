"""A copy equals the host's tables after any sequence of deltas, lost deltas and full syncs.

Real parts on both sides: cache, snapshot, change log, codec, and the SDK's copy; every message is
serialised on its way.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.model.state_changes import StateChanges
from berth_host.rpc.state_codec import StateEncoder
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import HostPort, Pod
from berth_sdk.selection import StateSelection
from berth_sdk.serve.state_copy import StateCopy, Taken
from berth_sdk.tables import NodeTable, StateVersion
from berth_sdk.tables.generation_log import GenerationLog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.table_contents import node_contents, pod_contents, pods_by_node
from support.tiers import examples

CLAIMS, KIND = "persistentvolumeclaims", "PersistentVolumeClaim"
EVERYTHING = (
    Need(kind=NeedKind.NODE_SUMMARY, images=True, annotation_prefixes=("",)),
    Need.pods(annotation_prefixes=("",)),
    Need.objects(CLAIMS),
)
NEEDS: tuple[tuple[Need, ...], ...] = (
    EVERYTHING,
    (),
    (Need(kind=NeedKind.NODE_SUMMARY, label_prefixes=("app", "x/")),),
    (Need(kind=NeedKind.POD_SUMMARY, label_prefixes=("tier",)), Need.objects(CLAIMS, "spec.size")),
)
SMALL_MESSAGE_BYTES = 600
# Few shapes: a step is cheap, and sequences are long. Any pod on the wire: tests/sdk/wire/test_records.py.
NODES = (
    Node(name="", labels={"app": "a", "other": "b"}, allocatable={"cpu": 4000}),
    Node(name="", labels={"tier": "x"}, annotations={"note": "1"}, images=(NodeImage(("img",), 7),)),
    Node(name="", taints=(Taint("k", "v", "NoSchedule"),), unschedulable=True, declared_features=("alpha",)),
)
PODS = (
    Pod(
        name="",
        labels={"app": "a", "tier": "1"},
        requests={"cpu": 100},
        non_zero_requests={"cpu": 100, "memory": 200},  # never less than requests, as read from an object
        score_requests={"cpu": 100},
    ),
    Pod(name="", labels={"tier": "2"}, annotations={"note": "1"}, host_ports=(HostPort("", "", 80),)),
    Pod(name="", terminating=True, started_at_s=12.5, priority=3, score_requests={"cpu": 7}),
)
node_names = st.sampled_from(["n1", "n2", "n3"])
uids = st.sampled_from("abcd")


def chunks_of(encoder: StateEncoder, changes: StateChanges) -> list[state_pb2.SyncStateRequest]:
    """Return the chunks, without the pauses between them."""
    return [chunk for chunk in encoder.chunks(changes, SMALL_MESSAGE_BYTES) if chunk is not None]


class Link:
    """The host's side of one attachment: what it believes the instance holds."""

    def __init__(self, log: ChangeLog, needs: tuple[Need, ...]) -> None:
        self.log = log
        self.needs = needs
        self.encoder = StateEncoder(StateSelection.of(needs))
        self.copy = StateCopy(needs)
        self.believed: StateVersion | None = None

    def changes(self, base: StateVersion | None) -> StateChanges:
        found = self.log.changes_since(base, self.encoder.selection)
        if found is None:
            found = self.log.changes_since(None, self.encoder.selection)
        assert found is not None
        return found

    def send(self, base: StateVersion | None, chunked: bool) -> Taken:
        changes = self.changes(base)
        if not chunked:
            return self.copy.apply(pb.StateDelta.FromString(self.encoder.delta(changes).SerializeToString()))
        stream = self.copy.begin_sync()
        for request in chunks_of(self.encoder, changes):
            data = request.SerializeToString()
            assert len(data) <= SMALL_MESSAGE_BYTES
            stream.add(state_pb2.SyncStateRequest.FromString(data))
        response = stream.response()
        if response.need_full:
            return Taken.MISSING_STATE
        assert response.have.generation == self.log.version.generation
        return Taken.APPLIED

    def bring_up_to_date(self, chunked: bool) -> None:
        """Send the delta as the relay does, and at most one repair, which a right belief never needs."""
        right = self.believed in (None, self.copy.version)
        if self.send(self.believed, chunked) is Taken.MISSING_STATE:
            assert not right
            self.believed = self.copy.version
            assert self.send(self.believed, chunked) is not Taken.MISSING_STATE
        self.believed = self.copy.version
        assert self.believed == self.log.version


class DeltaMachine(RuleBasedStateMachine):
    """A cluster that moves, and four instances with different needs."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = ObjectStores()
        self.cache = Cache(self.objects.generations)
        self.snapshot = Snapshot(self.objects)
        # Short logs, so that "too long ago" happens.
        self.snapshot.log.removed = GenerationLog(limit=2)
        self.snapshot.log.removed_pods = GenerationLog(limit=4)
        self.links = [Link(ChangeLog(self.snapshot), needs) for needs in NEEDS]
        self.snapshot.confirmed_generation = lambda: min(
            link.believed.generation if link.believed else 0 for link in self.links
        )
        self.pods: dict[str, Pod] = {}
        for name in ("n1", "n2"):
            self.cache.add_node(replace(NODES[0], name=name))
        self.all_copies_brought_up_to_date_equal_the_host(chunked=False, twice=False)

    # --- the cluster moves ---------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES), name=node_names)
    def put_node(self, node: Node, name: str) -> None:
        self.cache.add_node(replace(node, name=name))

    @rule(name=node_names, again=st.booleans())
    def remove_node(self, name: str, again: bool) -> None:
        info = self.cache.node_info(name)
        if info is None or info.node is None:
            return
        node = info.node
        self.cache.remove_node(name)
        if again:
            self.cache.add_node(node)

    @rule(pod=st.sampled_from(PODS), uid=uids, node_name=node_names, assume=st.booleans())
    def put_pod(self, pod: Pod, uid: str, node_name: str, assume: bool) -> None:
        known = self.pods.get(uid)
        if known is not None and not self.cache.is_assumed(uid):
            node_name = known.node_name
        pod = replace(pod, name=uid, uid=uid, node_name=node_name)
        if known is None:
            (self.cache.assume if assume else self.cache.add_pod)(pod)
        elif self.cache.is_assumed(uid):
            self.cache.add_pod(pod)
        else:
            self.cache.update_pod(known, pod)
        self.pods[uid] = pod

    @rule(uid=uids)
    def remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.cache.remove_pod(pod)

    @rule(name=st.sampled_from("pqr"), size=st.integers(1, 3), keep=st.booleans())
    def put_object(self, name: str, size: int, keep: bool) -> None:
        if keep:
            raw = {"metadata": {"name": name, "namespace": "default"}, "spec": {"size": size, "mode": "x"}}
            self.objects.put(KIND, KubeObject("v1", KIND, parsed=raw))
        else:
            self.objects.remove(KIND, ObjectRef(name=name, namespace="default"))

    @rule()
    def snapshot_moves(self) -> None:
        self.snapshot.update(self.cache)

    # --- what can happen on the way --------------------------------------------------------------

    @rule(which=st.integers(0, 3), chunked=st.booleans())
    def request_is_lost(self, which: int, chunked: bool) -> None:
        link = self.links[which]
        changes = link.changes(link.believed)
        if chunked:
            stream = link.copy.begin_sync()
            before = link.copy.version
            for request in chunks_of(link.encoder, changes)[:-1]:
                stream.add(request)
            assert link.copy.version == before

    @rule(which=st.integers(0, 3), chunked=st.booleans())
    def reply_is_lost(self, which: int, chunked: bool) -> None:
        link = self.links[which]
        link.send(link.believed, chunked)

    @rule(which=st.integers(0, 3))
    def instance_starts_anew(self, which: int) -> None:
        self.links[which].copy = StateCopy(self.links[which].needs)

    @rule(which=st.integers(0, 3))
    def host_forgets_what_is_held(self, which: int) -> None:
        self.links[which].believed = None

    # --- the law -----------------------------------------------------------------------------------

    @rule(chunked=st.booleans(), twice=st.booleans())
    def all_copies_brought_up_to_date_equal_the_host(self, chunked: bool, twice: bool) -> None:
        self.snapshot.update(self.cache)
        for link in self.links:
            self._bring_up_to_date(link, chunked, twice)

    @rule(which=st.integers(0, 3), chunked=st.booleans())
    def one_copy_brought_up_to_date_equals_the_host(self, which: int, chunked: bool) -> None:
        self.snapshot.update(self.cache)
        self._bring_up_to_date(self.links[which], chunked, False)

    def _bring_up_to_date(self, link: Link, chunked: bool, twice: bool) -> None:
        base = link.believed
        link.bring_up_to_date(chunked)
        if twice and base is not None:
            assert link.send(base, chunked) in (Taken.HELD, Taken.APPLIED)
        if link.needs is EVERYTHING:
            self._check_against_host(link.copy)
        fresh = Link(link.log, link.needs)
        fresh.bring_up_to_date(chunked=not chunked)
        assert _contents(link.copy) == _contents(fresh.copy)

    def _check_against_host(self, copy: StateCopy) -> None:
        host, got = self.snapshot.nodes, copy.nodes
        assert got.names == host.names
        assert got.slots.tolist() == host.slots.tolist()
        assert got.generation.tolist() == host.generation.tolist()
        assert node_contents(got) == node_contents(host)
        assert _pods(got) == _pods(host)
        want = [item.raw for item in self.snapshot.objects_of_kind(KIND).list()]
        assert [item.raw for item in copy.objects(CLAIMS).list()] == want


def _pods(table: NodeTable) -> object:
    slots = dict(zip(table.slots.tolist(), table.names, strict=True))
    return pod_contents(table.pods, slots), pods_by_node(table)


def _contents(copy: StateCopy) -> object:
    shape = copy.shape
    claims = [item.raw for item in copy.objects(CLAIMS).list()] if shape.resources else []
    return node_contents(copy.nodes), _pods(copy.nodes) if shape.pods else None, claims


TestDeltaMachine = pytest.mark.slow(DeltaMachine.TestCase)
TestDeltaMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
