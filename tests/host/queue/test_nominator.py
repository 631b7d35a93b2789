"""Pods that are nominated to a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.queue.nominator import Nominator
from support.queue_parts import KnownPods, a_pod


@pytest.fixture
def pods() -> KnownPods:
    return KnownPods()


@pytest.fixture
def nominator(pods: KnownPods) -> Nominator:
    return Nominator(pods)


def names(nominator: Nominator) -> dict[str, list[str]]:
    return {node: [pod.name for pod in found] for node, found in nominator.by_node().items()}


def test_pods_of_a_node_are_kept_in_the_order_of_nomination(nominator: Nominator, pods: KnownPods) -> None:
    for name in "cab":
        nominator.nominate(pods.put(a_pod(name)), "n1")
    nominator.nominate(pods.put(a_pod("c")), "n1")
    assert names(nominator) == {"n1": ["a", "b", "c"]}


def test_pod_is_nominated_to_one_node_at_most(nominator: Nominator, pods: KnownPods) -> None:
    pod = pods.put(a_pod("a"))
    nominator.nominate(pod, "n1")
    nominator.nominate(pod, "n2")
    assert names(nominator) == {"n2": ["a"]}
    assert nominator.node_of(pod.uid) == "n2"


def test_without_a_node_the_status_counts_and_the_empty_name_clears(
    nominator: Nominator, pods: KnownPods
) -> None:
    pod = pods.put(a_pod("a", nominated_node="n1"))
    nominator.nominate(pod)
    assert names(nominator) == {"n1": ["a"]}
    nominator.nominate(pod, "")
    assert names(nominator) == {}


def test_popped_member_claims_nothing_until_it_returns(nominator: Nominator, pods: KnownPods) -> None:
    first = pods.put(a_pod("first", 5, requests={"cpu": 1000}, group_key="podgroup/default/g"))
    other = pods.put(a_pod("other", 7, requests={"cpu": 500}))
    nominator.nominate(first, "n1")
    nominator.nominate(other, "n1")

    def claims() -> list[tuple[str, int, int]]:
        rows = nominator.columns.pods.pods_of(0)
        return [(pod.name, pod.priority, pod.requests.get("cpu", 0)) for pod in rows]

    nominator.popped([first.uid])
    assert claims() == [("first", 0, 0), ("other", 7, 500)]
    assert nominator.on_node("n1") == [first, other]
    nominator.remove(first)
    nominator.nominate(first, "n1")
    assert claims() == [("other", 7, 500), ("first", 0, 0)]
    nominator.returned(first.uid)
    assert claims() == [("other", 7, 500), ("first", 5, 1000)]


def test_pod_that_is_gone_or_bound_loses_its_nomination(nominator: Nominator, pods: KnownPods) -> None:
    gone, bound = pods.put(a_pod("gone")), pods.put(a_pod("bound"))
    nominator.nominate(gone, "n1")
    nominator.nominate(bound, "n1")
    del pods.by_key[gone.key]
    pods.put(replace(bound, node_name="n2"))
    nominator.nominate(gone, "n1")
    nominator.nominate(bound, "n1")
    assert names(nominator) == {}


def test_update_without_a_nomination_keeps_the_one_in_memory(nominator: Nominator, pods: KnownPods) -> None:
    old = pods.put(a_pod("a"))
    nominator.nominate(old, "n1")
    new = pods.put(replace(old, resource_version="2", labels={"x": "1"}))
    nominator.update(old, new)
    assert names(nominator) == {"n1": ["a"]}
    assert nominator.by_node()["n1"][0].labels == {"x": "1"}


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param("", "n2", {"n2": ["a"]}, id="set"),
        pytest.param("n1", "n2", {"n2": ["a"]}, id="moved"),
        pytest.param("n1", "", {}, id="cleared"),
    ],
)
def test_update_of_the_status_replaces_the_nomination_in_memory(
    nominator: Nominator, pods: KnownPods, before: str, after: str, want: dict[str, list[str]]
) -> None:
    old = pods.put(a_pod("a", nominated_node=before))
    nominator.nominate(old, "n9")
    nominator.update(old, pods.put(replace(old, nominated_node=after)))
    assert names(nominator) == want
