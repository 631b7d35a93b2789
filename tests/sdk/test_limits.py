"""Which parts of nodes and pods a plugin may read, by its needs. Each part, with and without its need, in
process, served and in an author's tests: `host/rpc/test_declared_parts.py`.
"""

from __future__ import annotations

import pytest
from berth_sdk.errors import UndeclaredError
from berth_sdk.limits import CALL_PODS, NodeLimits, PodLimits, node_limits, pod_limits
from berth_sdk.needs import Need
from berth_sdk.selection import StateSelection
from berth_sdk.testing import make_node, make_pod

NODE = make_node("n1", labels={"zone": "a"}, annotations={"note/a": "1"}, images={"web": 5}, uid="u1")


def of_nodes(*needs: Need) -> NodeLimits:
    return node_limits(StateSelection.of(needs), True)


def of_pods(*needs: Need) -> PodLimits:
    return pod_limits(StateSelection.of(needs))


def test_limits_are_shared_by_plugins_whose_needs_differ_elsewhere() -> None:
    assert of_nodes(Need.nodes()) is of_nodes(Need.nodes(), Need.pods(), Need.objects("secrets"))
    assert of_pods(Need.pods()) is of_pods(Need.pods(), Need.nodes(images=True))
    assert of_pods(Need.pods()) is not of_pods(Need.pods(), Need.pod_objects())


def test_node_record_comes_from_the_object_when_only_the_object_is_declared() -> None:
    limits = of_nodes(Need.node_objects("status.images"))
    seen = limits.limit(NODE)
    assert (seen.labels, seen.annotations, seen.allocatable) == (
        NODE.labels,
        NODE.annotations,
        NODE.allocatable,
    )
    assert seen.uid == "u1"
    with pytest.raises(UndeclaredError, match=r"reads node\.images"):
        len(seen.images)
    assert not limits.has("usage")


def test_empty_prefix_declares_all_annotations() -> None:
    seen = of_nodes(Need.nodes(annotation_prefixes=("",))).limit(NODE)
    assert seen.annotations is NODE.annotations


def test_record_of_an_undeclared_pod_has_only_its_reference() -> None:
    pod = make_pod("web", labels={"app": "x"}, priority=5)
    seen = of_pods(Need.nodes()).limit(pod)
    assert (seen.key, seen.uid) == (pod.key, pod.uid)
    for part in ("labels", "priority", "requests", "object", "node_name"):
        with pytest.raises(UndeclaredError, match=rf"reads pod\.{part}, .*add Need\.pods\(\)"):
            bool(getattr(seen, part))


def test_pods_of_calls_are_whole_or_summaries() -> None:
    pod = make_pod("web")
    assert CALL_PODS[True].limit(pod) is pod
    assert CALL_PODS[False].limit(pod) is pod.as_summary()
