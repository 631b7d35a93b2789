"""The JSON of extender/v1: requests of kube-scheduler as it sends them, and answers with every field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sdk.serve.extender import messages
from berth_sdk.serve.extender.messages import BadRequestError, BindingArgs, Victims

from sdk.serve.extender.serving import about_names, about_nodes, about_victims, node, pod


def sent(body: Any) -> bytes:
    return json.dumps(body).encode()


def test_names_win_over_nodes_and_count_once() -> None:
    request = {**about_nodes(node("n3")), "NodeNames": ["n2", "n1", "n2"]}
    args = messages.node_args(sent(request))
    assert (args.nodes, args.names) == (None, ("n2", "n1"))
    assert messages.node_args(sent(about_names())).names == ()


def test_pod_is_that_of_the_scheduler() -> None:
    args = messages.node_args(sent(about_nodes(node("n1"), of=pod("web", labels={"a": "b"}))))
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
    assert messages.node_args(sent({"Pod": pod(), "Nodes": {"items": None}})).names == ()


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_binding_needs_every_field(field: str) -> None:
    request = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n", field: 3}
    with pytest.raises(BadRequestError, match=f"{field} must be a string"):
        messages.binding_args(sent(request))


def test_answers_have_every_field() -> None:
    answer = json.loads(messages.filter_result(["n1"], [b'{"a":1}'], {"n2": 'a "b"'}, {"n3": "c"}))
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
