"""Laws of cache and snapshot after any sequence of events, duplicates and disorder included.

Totals equal a recount; a snapshot kept in step equals one built anew; its pods equal a recount.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.snapshot import Snapshot
from berth_host.errors.state import CacheError, InvariantError
from berth_sdk.node import Node
from berth_sdk.pod import HostPort, Pod
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.record_strategies import nodes, pods
from support.table_contents import node_contents, pod_contents, pods_by_node
from support.tiers import examples

NODE_NAMES = ("n1", "n2", "n3")
UIDS = tuple("abcdef")
node_names = st.sampled_from(NODE_NAMES)
uids = st.sampled_from(UIDS)


class CacheMachine(RuleBasedStateMachine):
    """The model: pods by uid with their state, nodes by name, ports by node as a set of additions."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.snapshot = Snapshot()
        self.pods: dict[str, Pod] = {}
        self.assumed: set[str] = set()
        self.nodes: dict[str, Node] = {}
        self.ports: dict[str, set[HostPort]] = {name: set() for name in NODE_NAMES}

    # --- pods --------------------------------------------------------------------------------

    @rule(data=st.data(), uid=uids, node_name=node_names)
    def assume(self, data: st.DataObject, uid: str, node_name: str) -> None:
        pod = data.draw(pods(name=uid, node_name=node_name))
        if uid in self.pods:
            with pytest.raises(CacheError):
                self.cache.assume(pod)
            return
        self.cache.assume(pod)
        self._put(pod)
        self.assumed.add(uid)

    @rule(uid=uids, node_name=node_names, right_node=st.booleans())
    def forget(self, uid: str, node_name: str, right_node: bool) -> None:
        known = self.pods.get(uid)
        pod = Pod(name=uid, uid=f"uid-{uid}", node_name=node_name)
        if known is None:
            self.cache.forget(pod)
            return
        if right_node:
            pod = replace(pod, node_name=known.node_name)
        if uid not in self.assumed or pod.node_name != known.node_name:
            with pytest.raises(CacheError):
                self.cache.forget(pod)
            return
        self.cache.forget(pod)
        self._drop(uid)

    @rule(data=st.data(), uid=uids, node_name=node_names, as_assumed=st.booleans())
    def add_pod(self, data: st.DataObject, uid: str, node_name: str, as_assumed: bool) -> None:
        known = self.pods.get(uid)
        if known is not None and as_assumed:
            node_name = known.node_name
        pod = data.draw(pods(name=uid, node_name=node_name))
        if known is not None and uid not in self.assumed:
            with pytest.raises(CacheError):
                self.cache.add_pod(pod)
            return
        elsewhere = known.node_name if known and known.node_name != node_name else None
        assert self.cache.add_pod(pod) == elsewhere
        if known is not None:
            self._drop(uid)
        self._put(pod)

    @rule(data=st.data(), uid=uids)
    def update_pod(self, data: st.DataObject, uid: str) -> None:
        known = self.pods.get(uid)
        node_name = known.node_name if known else "n1"
        pod = data.draw(pods(name=uid, node_name=node_name))
        if known is None or uid in self.assumed:
            with pytest.raises(CacheError):
                self.cache.update_pod(pod, pod)
            return
        with pytest.raises(InvariantError):
            self.cache.update_pod(known, replace(pod, node_name="elsewhere"))
        self.cache.update_pod(known, pod)
        self._drop(uid)
        self._put(pod)

    @rule(uid=uids, with_node=st.booleans())
    def remove_pod(self, uid: str, with_node: bool) -> None:
        known = self.pods.get(uid)
        node_name = known.node_name if known and with_node else ""
        pod = Pod(name=uid, uid=f"uid-{uid}", node_name=node_name)
        if known is None:
            with pytest.raises(CacheError):
                self.cache.remove_pod(pod)
            return
        self.cache.remove_pod(pod)
        self._drop(uid)

    # --- nodes -------------------------------------------------------------------------------

    @rule(data=st.data(), name=node_names, uid=st.sampled_from(["", "1", "2"]))
    def put_node(self, data: st.DataObject, name: str, uid: str) -> None:
        node = replace(data.draw(nodes(name=name)), uid=uid)
        self.cache.add_node(node)
        self.nodes[name] = node

    @rule(name=node_names)
    def remove_node(self, name: str) -> None:
        if name not in self.nodes:
            with pytest.raises(CacheError):
                self.cache.remove_node(name)
            return
        self.cache.remove_node(name)
        del self.nodes[name]

    # --- laws --------------------------------------------------------------------------------

    @rule()
    def snapshot_in_step_equals_one_built_anew(self) -> None:
        self.snapshot.update(self.cache)
        fresh = Snapshot()
        fresh.update(self.cache)
        assert node_contents(self.snapshot.nodes) == node_contents(fresh.nodes)
        assert pods_by_node(self.snapshot.nodes) == pods_by_node(fresh.nodes)
        assert self._pod_contents(self.snapshot) == self._pod_contents(fresh)
        assert set(self.snapshot.nodes.names) == set(self.nodes)
        assert sorted(self.snapshot.order.tolist()) == list(range(len(self.nodes)))
        self._check_pod_table()

    @invariant()
    def totals_equal_a_recount(self) -> None:
        assert self.cache.node_count == len(self.nodes)
        assert self.cache.pod_count == len(self.pods)
        assert self.cache.assumed_uids == {f"uid-{uid}" for uid in self.assumed}
        infos = {info.name: info for info in self.cache.node_infos()}
        busy = {pod.node_name for pod in self.pods.values()}
        assert set(infos) == set(self.nodes) | busy
        for name, info in infos.items():
            here = [pod for pod in self.pods.values() if pod.node_name == name]
            assert info.node is self.nodes.get(name)
            assert {pod.uid for pod in info.pods} == {pod.uid for pod in here}
            assert info.requested == _sum(pod.requests for pod in here)
            assert info.non_zero_requested == _sum(pod.non_zero_requests for pod in here)
            assert info.pvc_refs == _count(f"{pod.namespace}/{claim}" for pod in here for claim in pod.claims)
            assert info.host_ports == self.ports[name]

    @invariant()
    def records_are_those_last_given(self) -> None:
        for uid, pod in self.pods.items():
            assert self.cache.get_pod(f"uid-{uid}") is pod
            assert self.cache.is_assumed(f"uid-{uid}") == (uid in self.assumed)

    # --- the model -----------------------------------------------------------------------------

    def _put(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self.ports[pod.node_name] |= {port.normalized for port in pod.host_ports}

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self.assumed.discard(uid)
        self.ports[pod.node_name] -= {port.normalized for port in pod.host_ports}

    def _pod_contents(self, snapshot: Snapshot) -> object:
        slots = {slot: name for name, slot in snapshot.columns.index_of.items()}
        return pod_contents(snapshot.pods, slots)

    def _check_pod_table(self) -> None:
        table = self.snapshot.pods
        here = {pod.uid: pod for pod in self.pods.values() if pod.node_name in self.nodes}
        assert len(table) == len(here)
        for row in range(len(table)):
            pod = table.pod(row)
            assert here[pod.uid] is pod
            assert table.assumed[row] == (pod.name in self.assumed)
            assert table.node_index[row] == self.snapshot.columns.index_of[pod.node_name]
        for name, slot in self.snapshot.columns.index_of.items():
            info = self.cache.node_info(name)
            assert info is not None
            assert table.on_node(slot) == info.pods
            assert [table.pod(row) for row in table.rows_on_node(slot).tolist()] == info.pods


def _sum(parts: object) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:  # type: ignore[attr-defined]  # any iterable of maps
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return {name: value for name, value in total.items() if value}


def _count(names: object) -> dict[str, int]:
    return _sum({name: 1} for name in names)  # type: ignore[attr-defined]  # any iterable of names


TestCacheMachine = pytest.mark.slow(CacheMachine.TestCase)
TestCacheMachine.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
