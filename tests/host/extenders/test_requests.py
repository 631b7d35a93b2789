"""The bodies of requests: kube-scheduler's fields and nulls, over nodes that change, go and come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.extenders.requests import Bodies
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

Json = dict[str, Any]


def node_object(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "managedFields": [{"manager": "kubelet"}]},
        "status": {"allocatable": {"cpu": "4"}},
    }


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels=labels, object=KubeObject("v1", "Node", parsed=node_object(name, **labels)))


def pod_object(name: str, node_name: str = "") -> Json:
    spec = {"containers": [{"name": "c", "image": "a"}], **({"nodeName": node_name} if node_name else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def pod(name: str, node_name: str = "") -> Pod:
    raw = KubeObject("v1", "Pod", parsed=pod_object(name, node_name))
    return Pod(name=name, namespace="ns", uid=f"uid-{name}", node_name=node_name, object=raw)


def sent(raw: Json) -> Json:
    """Return an object as a request has it."""
    return {key: value for key, value in raw.items() if key not in ("kind", "apiVersion")}


class Setup:
    """A cache with a snapshot, and the bodies of requests about it."""

    def __init__(self, *nodes: Node) -> None:
        objects = ObjectStores()
        self.cache = Cache(objects.generations)
        self.snapshot = Snapshot(objects)
        self.bodies = Bodies()
        for each in nodes:
            self.cache.add_node(each)
        self.update()

    def update(self) -> None:
        self.snapshot.update(self.cache)

    def body(self, *names: str, by_name: bool = False) -> Json:
        """Return the body of a question about these nodes; about all of them without names."""
        table = self.snapshot.nodes
        rows = [table.position(name) for name in names] if names else list(range(len(table)))
        body: Json = orjson.loads(
            self.bodies.about_nodes(pod("p"), table, np.asarray(rows, dtype=np.intp), by_name=by_name)
        )
        return body

    def listed(self, *names: str) -> list[Json]:
        items: list[Json] = self.body(*names)["Nodes"]["items"]
        return items


def test_question_with_whole_nodes_has_them_as_a_list_and_no_names() -> None:
    setup = Setup(node("a", zone="x"), node("b"))
    assert setup.body() == {
        "Pod": sent(pod_object("p")),
        "Nodes": {"metadata": {}, "items": [sent(node_object("a", zone="x")), sent(node_object("b"))]},
        "NodeNames": None,
    }


def test_question_by_name_has_no_nodes() -> None:
    setup = Setup(node("a"), node("b"))
    assert setup.body(by_name=True) == {"Pod": sent(pod_object("p")), "Nodes": None, "NodeNames": ["a", "b"]}


def test_question_is_about_the_given_rows_in_their_order() -> None:
    setup = Setup(*(node(name) for name in "abcd"))
    for names in (("b", "d"), ("d", "a"), ("c",), ("a", "b", "c", "d"), ("b", "d")):
        assert setup.body(*names, by_name=True)["NodeNames"] == list(names)
        assert [item["metadata"]["name"] for item in setup.listed(*names)] == list(names)


def test_nodes_are_sent_as_they_are_now() -> None:
    setup = Setup(node("a"), node("b"))
    assert [item["metadata"]["labels"] for item in setup.listed()] == [{}, {}]
    setup.cache.update_node(node("b", zone="new"))
    assert [item["metadata"]["labels"] for item in setup.listed()] == [{}, {}], "the snapshot is held"
    setup.update()
    assert [item["metadata"]["labels"] for item in setup.listed()] == [{}, {"zone": "new"}]
    assert [item["metadata"]["labels"] for item in setup.listed("b")] == [{"zone": "new"}]


def test_place_of_a_node_that_is_gone_is_used_for_another_one() -> None:
    setup = Setup(node("a"), node("b"), node("c"))
    assert setup.body(by_name=True)["NodeNames"] == ["a", "b", "c"]
    setup.listed()
    setup.cache.remove_node("b")
    setup.update()
    assert setup.body(by_name=True)["NodeNames"] == ["a", "c"]
    setup.cache.add_node(node("d", zone="d"))
    setup.update()
    assert sorted(setup.body(by_name=True)["NodeNames"]) == ["a", "c", "d"]
    by_name = {item["metadata"]["name"]: item["metadata"]["labels"] for item in setup.listed()}
    assert by_name == {"a": {}, "c": {}, "d": {"zone": "d"}}


def test_node_that_comes_back_is_the_new_one() -> None:
    setup = Setup(node("a"))
    setup.listed()
    setup.cache.remove_node("a")
    setup.cache.add_node(node("a", zone="again"))
    setup.update()
    assert setup.listed() == [sent(node_object("a", zone="again"))]


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["put", "remove", "ask", "ask some"])),
        max_size=40,
    )
)
def test_requests_have_the_current_nodes_whatever_happened_before(steps: list[tuple[str, str]]) -> None:
    setup = Setup()
    there: dict[str, Json] = {}
    for number, (name, what) in enumerate(steps):
        if what == "put":
            setup.cache.add_node(node(name, step=str(number)))
            there[name] = sent(node_object(name, step=str(number)))
        elif what == "remove" and name in there:
            setup.cache.remove_node(name)
            del there[name]
        if not what.startswith("ask") or not there:
            continue
        setup.update()
        names = [one for one in sorted(there) if what == "ask" or one >= name] or sorted(there)
        assert {item["metadata"]["name"]: item for item in setup.listed(*names)} == {
            one: there[one] for one in names
        }
        assert setup.body(*names, by_name=True)["NodeNames"] == names


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "ü", "\N{GRINNING FACE}", "\x01"])
def test_names_are_encoded(name: str) -> None:
    setup = Setup(node(name))
    assert setup.body(by_name=True)["NodeNames"] == [name]
    assert setup.listed() == [sent(node_object(name))]
    victims = {name: ([pod(name, name)], 0)}
    body = orjson.loads(setup.bodies.about_victims(pod("p"), victims, by_uid=True))
    assert body["NodeNameToMetaVictims"] == {name: {"Pods": [{"UID": f"uid-{name}"}], "NumPDBViolations": 0}}


def test_victims_are_named_by_uid_or_sent_whole() -> None:
    victims = {"a": ([pod("v", "a"), pod("w", "a")], 2), "b": ([pod("x", "b")], 0)}
    bodies = Bodies()
    assert orjson.loads(bodies.about_victims(pod("p"), victims, by_uid=True)) == {
        "Pod": sent(pod_object("p")),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {
            "a": {"Pods": [{"UID": "uid-v"}, {"UID": "uid-w"}], "NumPDBViolations": 2},
            "b": {"Pods": [{"UID": "uid-x"}], "NumPDBViolations": 0},
        },
    }
    assert orjson.loads(bodies.about_victims(pod("p"), victims, by_uid=False)) == {
        "Pod": sent(pod_object("p")),
        "NodeNameToVictims": {
            "a": {"Pods": [sent(pod_object("v", "a")), sent(pod_object("w", "a"))], "NumPDBViolations": 2},
            "b": {"Pods": [sent(pod_object("x", "b"))], "NumPDBViolations": 0},
        },
        "NodeNameToMetaVictims": None,
    }


def test_victim_that_is_assumed_is_sent_with_its_node() -> None:
    assumed = pod("v").on_node("a")
    body = orjson.loads(Bodies().about_victims(pod("p"), {"a": ([assumed], 0)}, by_uid=False))
    assert body["NodeNameToVictims"]["a"]["Pods"] == [sent(pod_object("v", "a"))]


def test_binding_names_the_pod_and_its_node() -> None:
    assert orjson.loads(Bodies().binding(pod("p"), "a")) == {
        "PodName": "p",
        "PodNamespace": "ns",
        "PodUID": "uid-p",
        "Node": "a",
    }


def test_every_pod_is_sent_as_itself() -> None:
    bodies = Bodies()
    first, second = pod("p"), pod("q")
    for each in (first, second, first, pod("p")):
        assert orjson.loads(bodies.pod(each)) == sent(pod_object(each.name))


def test_objects_that_were_not_parsed_before_are_not_kept_parsed() -> None:
    raw = KubeObject("v1", "Pod", raw=orjson.dumps(pod_object("p")))
    assert orjson.loads(Bodies().pod(Pod(name="p", uid="u", object=raw))) == sent(pod_object("p"))
    assert not raw.is_parsed
