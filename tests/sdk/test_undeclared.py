"""Every use of an undeclared part raises; declared keys and fields read as usual."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from berth_sdk.errors import UndeclaredError
from berth_sdk.kube_object import KubeObject
from berth_sdk.testing import make_node, make_pod
from berth_sdk.undeclared import DeclaredKeys, Drops, Undeclared, trimmed

PART: Any = Undeclared("node.annotations", "Need.nodes(annotation_prefixes=('...',))")
OBJECT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
    "spec": {"nodeName": "n1", "containers": [{"name": "a", "env": ["secret"]}, {"name": "b"}]},
    "status": {"phase": "Running"},
}

USES: dict[str, Callable[[], object]] = {
    "attribute": lambda: PART.get("x"),
    "condition": lambda: not PART,
    "length": lambda: len(PART),
    "loop": lambda: list(PART),
    "membership": lambda: "x" in PART,
    "item": lambda: PART["x"],
    "text": lambda: f"{PART}",
    "comparison": lambda: PART == {},
    "comparison with another undeclared part": lambda: operator.eq(PART, Undeclared(PART.part, PART.need)),
    "comparison from the other side": lambda: operator.ne({}, PART),
    "key of a cache": lambda: {PART: 1},
    "membership in a set": lambda: PART in {"x"},
    "order": lambda: PART > 3,
    "order from the other side": lambda: PART < 3,
    "number": lambda: int(PART),
    "sum": lambda: sum([PART]),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_of_an_undeclared_part_raises(use: str) -> None:
    with pytest.raises(UndeclaredError, match=r"reads node\.annotations, .* add Need\.nodes\(annotation_pre"):
        USES[use]()


def test_undeclared_part_can_be_printed_copied_and_pickled_and_records_with_it_compare() -> None:
    assert repr(PART) == "<undeclared node.annotations>"
    for same in (copy.copy(PART), copy.deepcopy(PART), pickle.loads(pickle.dumps(PART))):
        assert (same.part, same.need, same.cure) == (PART.part, PART.need, PART.cure)
    pod = make_pod("web")
    assert pod.as_summary() == pod.as_summary() != make_pod("db").as_summary()


def test_undeclared_keys_raise_and_absent_declared_keys_do_not() -> None:
    keys = DeclaredKeys({"a/x": "1", "b/x": "2"}, ("a/",), "pod.labels", "Need.pods(label_prefixes=({},))")
    assert dict(keys) == {"a/x": "1"}
    assert keys["a/x"] == keys.get("a/x") == "1"
    assert {"a/x": "1"}.items() <= keys.items() and not {"a/x": "2"}.items() <= keys.items()
    assert keys == {"a/x": "1"} == keys.copy() and keys != {"a/x": "2"} and keys != {}
    assert keys.keys() == {"a/x"} and {"a/x"} <= keys.keys() and not keys.keys() > {"a/x"}
    assert {**keys} == {"a/x": "1"} and json.dumps(keys) == '{"a/x": "1"}'
    assert keys.get("a/y", "none") == "none" and "a/y" not in keys
    with pytest.raises(KeyError):
        keys["a/y"]
    other = {"b/x": "2"}
    reads: tuple[Callable[[], object], ...] = (
        lambda: keys["b/x"],
        lambda: keys.get("b/x"),
        lambda: "b/x" in keys,
        lambda: "b/x" in keys.keys(),  # noqa: SIM118  # the view is what is tried
        lambda: ("b/x", "2") in keys.items(),
        lambda: other.items() <= keys.items(),
        lambda: {"a/x": "1", **other}.items() <= keys.items(),
        lambda: other.keys() < keys.keys(),
        lambda: {"b/x"} == keys.keys(),
        lambda: keys.keys() & {"b/x"},
        lambda: other == keys,
        lambda: keys != other,
        lambda: keys.pop("b/x", ""),
        lambda: keys.copy().get("b/x"),
        lambda: copy.deepcopy(keys).get("b/x"),
        lambda: pickle.loads(pickle.dumps(keys)).get("b/x"),
    )
    for read in reads:
        with pytest.raises(UndeclaredError, match=r"pod\.labels\['b/x'\].*label_prefixes=\('b/x',\)"):
            read()


def test_object_without_dropped_fields_raises_where_they_were() -> None:
    drops = Drops(("status", "spec.containers.env", "metadata"), "pod.object", "Need.pod_objects")
    item = KubeObject("v1", "Pod", raw=json.dumps(OBJECT).encode())
    seen = trimmed(item, drops)
    assert not item.is_parsed
    assert seen.get("spec.nodeName") == "n1"
    assert [one["name"] for one in seen.parsed["spec"]["containers"]] == ["a", "b"]
    assert not item.is_parsed  # of many pods, only the bytes are kept
    assert seen.ref == item.ref
    assert json.loads(seen.raw) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
    }
    reads: dict[str, Callable[[], object]] = {
        "status": lambda: seen.get("status.phase"),
        "metadata": lambda: "metadata" in seen.parsed,
        "spec.containers.env": lambda: seen.parsed["spec"]["containers"][1].get("env"),
    }
    for field, read in reads.items():
        with pytest.raises(UndeclaredError) as refused:
            read()
        assert str(refused.value) == (
            f"this plugin reads {field!r} of pod.object, which it did not declare:"
            f" do not drop {field!r} in Need.pod_objects of `needs`"
        )
    with pytest.raises(KeyError):
        seen.parsed["spec"]["volumes"]
    seen.release()
    assert seen.get("spec.nodeName") == "n1"


def test_object_of_which_nothing_is_dropped_is_the_object_itself() -> None:
    item = KubeObject.of(OBJECT)
    assert trimmed(item, Drops((), "pod.object", "Need.pod_objects")) is item


@pytest.mark.parametrize(
    ("path", "touched"),
    [("status", "status.phase"), ("status.phase", "status.phase"), ("status.phase.x", "status.phase")],
)
def test_dropped_field_touches_its_parents_and_its_children(path: str, touched: str) -> None:
    drops = Drops(("status.phase",), "pod.object", "Need.pod_objects")
    assert drops.touch(path) == touched
    assert drops.touch("status.phases") == drops.touch("spec") == ""


def test_records_with_the_same_stand_ins_are_equal_and_others_are_not_compared() -> None:
    pod = make_pod("web", cpu="1")
    summary = pod.as_summary()
    assert summary == summary
    assert summary == make_pod("web", cpu="1").as_summary()
    assert summary != make_pod("other", cpu="1").as_summary()
    other: object = "web"
    assert summary != other
    bare = pod.bare(lambda field: Undeclared(f"pod.{field}", "Need.pods()"))
    assert bare == bare
    with pytest.raises(UndeclaredError, match=r"pod\.labels"):
        bare == pod.bare(lambda field: Undeclared(f"pod.{field}", "Need.pods()"))  # noqa: B015
    node = replace(make_node("n1"), labels=PART)
    assert node == node
    assert node == replace(node)
    assert node != replace(node, unschedulable=True)
    with pytest.raises(UndeclaredError, match=r"node\.annotations"):
        node == replace(node, labels={})  # noqa: B015
