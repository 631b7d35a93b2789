"""The account of a soak is made from the cluster's changes."""

from __future__ import annotations

import random
from typing import Any

from berth_host.cli.bench.soak.load import Account, Load
from berth_host.cli.bench.versus.objects import node, pod
from berth_host.cluster.memory.kinds import POD
from berth_host.cluster.memory.server import ApiServer
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef


def a_cluster() -> tuple[ApiServer, Account]:
    server = ApiServer(ManualClock())
    account = Account(server)
    server.create(node("n1", "4"))
    return server, account


def made(server: ApiServer, name: str, cpu: str = "1500m") -> ObjectRef:
    return server.create(pod(name, cpu)).ref


def test_pods_without_a_node_are_known_by_name() -> None:
    server, account = a_cluster()
    first, second = made(server, "a"), made(server, "b")
    assert account.unbound == {"default/a", "default/b"}
    server.bind(first, "n1")
    server.delete("pods", second)
    assert account.unbound == set()
    assert account.bound == 1


def test_node_that_gets_more_than_it_has_is_over_committed_even_for_a_moment() -> None:
    server, account = a_cluster()
    refs = [made(server, name) for name in "abc"]
    for ref in refs[:2]:
        server.bind(ref, "n1")
    assert account.over_committed == set()
    server.bind(refs[2], "n1")
    server.delete("pods", refs[0])
    assert account.over_committed == {"n1"}


def test_room_of_a_deleted_pod_counts_again() -> None:
    server, account = a_cluster()
    for name in "abc":
        ref = made(server, name)
        server.bind(ref, "n1")
        if name == "a":
            server.delete("pods", ref)
    assert account.over_committed == set()


def test_pod_that_changes_its_node_was_bound_twice() -> None:
    server, account = a_cluster()
    ref = made(server, "a")
    server.bind(ref, "n1")
    found = server.get("pods", ref)
    assert found is not None
    spec: dict[str, Any] = {**found.parsed["spec"], "nodeName": "n2"}
    # The server refuses it, so its store is told directly.
    server.store.put(POD, "default/a", {**found.parsed, "spec": spec})
    assert account.double_binds == 1


def test_load_keeps_to_its_share_of_the_nodes() -> None:
    server = ApiServer(ManualClock())
    load = Load(server, 10, random.Random(1))
    assert len(server.list("nodes")) == 10
    for _ in range(400):
        load.step(1)
    # Nine open nodes of 4000m, 0.6 of it full of pods of 1000m on average.
    assert load.created == 400
    assert 15 <= len(server.list("pods")) <= 22
