"""Node objects of requests: read once, kept for preempt, and without a usage that nobody knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sdk.pod import HostPort
from berth_sdk.serve.extender import messages, request_nodes
from berth_sdk.serve.extender.messages import BadRequestError, SentNode
from berth_sdk.serve.extender.request_nodes import NodeCache, PodsUnknownError, named

from sdk.serve.extender.serving import Json, about_nodes, node, sent


@pytest.fixture
def cache() -> NodeCache:
    return NodeCache(with_objects=False)


def read(cache: NodeCache, *nodes: Json, compact: bool = True) -> tuple[SentNode, ...]:
    """Return the nodes of one request."""
    body = sent(about_nodes(*nodes)) if compact else json.dumps(about_nodes(*nodes)).encode()
    return messages.node_args(body, cache).nodes or ()


@pytest.mark.parametrize("compact", [True, False])
def test_equal_nodes_are_one_table(cache: NodeCache, compact: bool) -> None:
    first = cache.found(read(cache, node("n1"), node("n2"), compact=compact))
    again = cache.found(read(cache, node("n1"), node("n2"), compact=compact))
    assert again.whole is first.whole
    assert again.candidates is first.whole
    assert cache.found(read(cache, node("n2"), compact=compact)).candidates.names == ["n2"]
    assert cache.reads == 2


def test_node_with_the_same_text_is_not_parsed_again(
    cache: NodeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = read(cache, {"metadata": {"name": "n1"}})

    def refuse(*_: object) -> None:
        raise AssertionError("a node is parsed")

    monkeypatch.setattr(cache, "read", refuse)
    assert read(cache, {"metadata": {"name": "n1"}}) == (first,)
    with pytest.raises(AssertionError, match="a node is parsed"):
        read(cache, {"metadata": {"name": "n1"}, "spec": {}})


def test_node_with_another_uid_or_version_is_read_again(cache: NodeCache) -> None:
    read(cache, node("n1"))
    read(cache, node("n1", labels={"a": "b"}))
    assert cache.known(["n1"]).candidates.node(0).labels.get("a") is None  # it claims to be the same
    read(cache, node("n1", "2", labels={"a": "b"}))
    read(cache, node("n1", "2", uid="other", labels={"a": "c"}))
    assert cache.known(["n1"]).candidates.node(0).labels["a"] == "c"
    assert cache.reads == 3


def test_objects_are_kept_where_the_plugin_reads_them() -> None:
    for with_objects in (False, True):
        cache = NodeCache(with_objects=with_objects)
        item = cache.found(read(cache, node("n1"))).candidates.node(0).object
        assert (item is not None) == with_objects
        assert item is None or item.get("metadata.name") == "n1"


def test_number_of_nodes_is_bounded(cache: NodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_nodes, "MAX_NODES", 2)
    read(cache, node("n1"), node("n2"))
    read(cache, node("n1"))
    read(cache, node("n3"))
    found = cache.known(["n1", "n2", "n3"])
    assert (found.candidates.names, found.unknown) == (["n1", "n3"], ("n2",))
    many = [node(f"m{i}") for i in range(5)]
    assert cache.found(read(cache, *many)).candidates.names == [f"m{i}" for i in range(5)]


@pytest.mark.parametrize("compact", [True, False])
def test_malformed_node_is_named(cache: NodeCache, compact: bool) -> None:
    with pytest.raises(BadRequestError, match="node n1: status: must be a map"):
        read(cache, {"metadata": {"name": "n1"}, "status": []}, compact=compact)
    with pytest.raises(BadRequestError, match=r"Nodes\.items\[1\]\.metadata\.name must be a string"):
        read(cache, node("n1"), {"metadata": {"name": 3}}, compact=compact)


@pytest.mark.parametrize(
    "look",
    [
        lambda nodes: nodes.requested("cpu"),
        lambda nodes: nodes.requested_of(("cpu", "memory")),
        lambda nodes: nodes.non_zero_requested("cpu"),
        lambda nodes: nodes.non_zero_requested_of_both,
        lambda nodes: nodes.pod_count,
        lambda nodes: nodes.port_taken(HostPort("", "TCP", 80)),
        lambda nodes: nodes.node(0).requested.get("cpu"),
        lambda nodes: nodes.node(0).requested["cpu"],
        lambda nodes: nodes.node(0).pod_count > 1,
        lambda nodes: len(nodes.node(0).host_ports),
        lambda nodes: nodes.take([1]).pod_count,
    ],
)
def test_usage_cannot_be_read(cache: NodeCache, look: Any) -> None:
    nodes = cache.found(read(cache, node("n1"), node("n2"))).whole
    assert nodes.allocatable("cpu").tolist() == [4000, 4000]
    with pytest.raises(PodsUnknownError, match="with --server or --in-cluster"):
        look(nodes)


def test_names_are_a_table_in_their_order() -> None:
    assert named(["n2", "n1"]).candidates.names == ["n2", "n1"]
    assert len(named([]).candidates) == 0
