"""The JSON of extender/v1: requests of kube-scheduler as it sends them, and answers with every field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sdk.serve.extender import messages
from berth_sdk.serve.extender.messages import BadRequestError, BindingArgs, NodeArgs, Victims
from berth_sdk.serve.extender.request_nodes import NodeCache

from sdk.serve.extender.serving import about_names, about_nodes, about_victims, node, pod, sent


def node_args(body: Any) -> NodeArgs:
    return messages.node_args(sent(body), NodeCache(with_objects=False))


def test_names_win_over_nodes_and_count_once() -> None:
    request = {**about_nodes(node("n3")), "NodeNames": ["n2", "n1", "n2"]}
    args = node_args(request)
    assert (args.nodes, args.names) == (None, ("n2", "n1"))
    assert node_args(about_names()).names == ()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_nodes_are_the_same_however_the_request_is_written(separators: tuple[str, str]) -> None:
    body = json.dumps(about_nodes(node("n1"), node("n2"), node("n1", "2")), separators=separators).encode()
    cache = NodeCache(with_objects=False)
    for reads in (3, 5):  # n1 is two nodes in each request
        args = messages.node_args(body, cache)
        assert args.names == ("n1", "n2")
        assert [json.loads(one.text) for one in args.nodes or ()] == [node("n1", "2"), node("n2")]
        assert cache.reads == reads


def test_nodes_inside_of_the_pod_are_not_the_nodes_of_the_request() -> None:
    hidden = {"Nodes": {"metadata": {}, "items": [node("n9")]}}
    for of in (pod(annotations={"a": json.dumps(hidden, separators=(",", ":"))}), {**pod(), **hidden}):
        request = {"Pod": of, "NodeNames": None}
        assert node_args({**request, "Nodes": {"metadata": {}, "items": [node("n1")]}}).names == ("n1",)
        assert node_args({**request, "nodes": {"items": [node("n1")]}}).names == ("n1",)
        assert node_args({**request, "NodeNames": ["n2"]}).names == ("n2",)


@pytest.mark.parametrize(
    "broken",
    [
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"}}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"}},]}}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"}}{"metadata":{}}]}}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1}}]}}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"\xff"}}]}}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[]}',
        b'{"Pod":{},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n2"},"deep":%b%b}]}}'
        % (b"[" * 3000, b"]" * 3000),
    ],
)
def test_request_that_is_cut_off_or_broken_is_refused(broken: bytes) -> None:
    cache = NodeCache(with_objects=False)
    messages.node_args(sent(about_nodes({"metadata": {"name": "n1"}})), cache)
    with pytest.raises(BadRequestError, match="the request is not JSON"):
        messages.node_args(broken, cache)


def test_pod_is_that_of_the_scheduler() -> None:
    args = node_args(about_nodes(node("n1"), of=pod("web", labels={"a": "b"})))
    assert (args.pod.name, args.pod.namespace, args.pod.uid) == ("web", "default", "default/web")
    assert args.pod.object is not None
    assert (args.pod.object.api_version, args.pod.object.kind) == ("v1", "Pod")


def test_exact_key_wins_over_another_spelling() -> None:
    request = {"podname": "other", "PodName": "p", "podNamespace": "d", "PODUID": "u", "node": "n"}
    assert messages.binding_args(sent(request)) == BindingArgs("p", "d", "u", "n")


def test_victims_are_read_as_objects_and_as_uids() -> None:
    victims = {"n1": [pod("a"), pod("b")], "n2": []}
    whole = messages.preemption_args(sent(about_victims(victims))).victims
    meta = messages.preemption_args(sent(about_victims(victims, meta=True))).victims
    assert whole["n1"].uids == meta["n1"].uids == ("default/a", "default/b")
    assert [one.name for one in whole["n1"].pods or ()] == ["a", "b"]
    assert (meta["n1"].pods, meta["n2"]) == (None, Victims((), 1))


def test_nil_lists_of_go_are_empty() -> None:
    request = {"Pod": pod(), "NodeNameToMetaVictims": {"n1": {"Pods": None}}}
    assert messages.preemption_args(sent(request)).victims == {"n1": Victims((), 0)}
    assert node_args({"Pod": pod(), "Nodes": {"items": None}}).names == ()


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_binding_needs_every_field(field: str) -> None:
    request = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n", field: 3}
    with pytest.raises(BadRequestError, match=f"{field} must be a string"):
        messages.binding_args(sent(request))


def test_answers_have_every_field() -> None:
    answer = json.loads(messages.filter_result(["n1"], ['{"a":1}'], {"n2": 'a "b"'}, {"n3": "c"}))
    assert answer == {
        "Nodes": {"metadata": {}, "items": [{"a": 1}]},
        "NodeNames": None,
        "FailedNodes": {"n2": 'a "b"'},
        "FailedAndUnresolvableNodes": {"n3": "c"},
        "Error": "",
    }
    assert json.loads(messages.filter_result(["n1"], None, {}, {}))["NodeNames"] == ["n1"]
    assert json.loads(messages.binding_result()) == {"Error": ""}
    assert json.loads(messages.host_priorities(["n1"], [7])) == [{"Host": "n1", "Score": 7}]
    assert json.loads(messages.preemption_result({"n1": Victims(("u",), 2)})) == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}
    }
