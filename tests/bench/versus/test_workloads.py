"""The pods and nodes of each workload, and the choice of workloads."""

from __future__ import annotations

from collections import Counter

import pytest
from berth_bench.versus.contenders import Beside
from berth_bench.versus.label_rank import CLOSED, RANK
from berth_bench.versus.workloads import (
    APPS,
    RUNNING,
    WORKLOADS,
    Versus,
    chosen,
    node_manifests,
    running_manifests,
)

ZONE = "topology.kubernetes.io/zone"


def named(name: str) -> Versus:
    (workload,) = chosen([name])
    return workload


def test_all_are_chosen_without_a_name_and_in_their_own_order_with_some() -> None:
    assert chosen([]) == list(WORKLOADS)
    names = [WORKLOADS[2].name, WORKLOADS[0].name]
    assert chosen(names) == [WORKLOADS[0], WORKLOADS[2]]
    with pytest.raises(KeyError, match="Plane"):
        chosen(["Plane/1000Nodes"])


def test_berth_is_the_first_contender_and_has_others_to_compare_with() -> None:
    for workload in WORKLOADS:
        ours, *others = workload.contenders
        assert ours.is_berth
        assert others
        # Beside a served plugin, the same class may run in berth's process; beside berth, a shadow may run.
        inside = [other for other in others if other.is_berth]
        assert not others[-1].is_berth
        assert all(
            other.beside is Beside.SHADOW or (other.plugin is not None and other.beside is Beside.NOTHING)
            for other in inside
        )


def test_only_given_numbers_replace_those_of_a_workload() -> None:
    workload = named("Plain/1000Nodes")
    assert workload.resized(None, None) == workload
    small = workload.resized(20, 7)
    assert (small.nodes, small.pods) == (20, 7)
    assert workload.resized(None, 7).nodes == 1000
    restart = named("Restart/5000Nodes")
    assert (restart.running, restart.resized(20, 7).running, restart.resized(20, 7, 0).running) == (
        100_000,
        100_000,
        0,
    )


def test_running_pods_are_spread_over_the_nodes_and_have_room_there() -> None:
    pods = list(running_manifests(90, 20))
    assert len({pod["metadata"]["name"] for pod in pods}) == 90
    assert {pod["metadata"]["namespace"] for pod in pods} == {RUNNING}
    names = {node["metadata"]["name"] for node in node_manifests(20)}
    counts = Counter(pod["spec"]["nodeName"] for pod in pods)
    assert set(counts) == names
    assert max(counts.values()) - min(counts.values()) == 1


def test_pods_of_a_gang_name_their_group_and_the_last_group_needs_those_that_are_left() -> None:
    workload = named("PodGroups/5000Nodes")
    groups = {one["metadata"]["name"]: one for one in workload.groups("p", 120)}
    least = {name: one["spec"]["schedulingPolicy"]["gang"]["minCount"] for name, one in groups.items()}
    assert least == {"p-0": 50, "p-1": 50, "p-2": 20}
    pods = workload.manifests("p", 120)
    assert Counter(one["spec"]["schedulingGroup"]["podGroupName"] for one in pods) == least
    assert list(named("Plain/5000Nodes").groups("p", 120)) == []
    for contender in workload.contenders:
        assert contender.flags == ("--feature-gates=GenericWorkload=true",)


def test_pods_are_equal_or_have_a_label_of_their_own_or_belong_to_sixty_apps() -> None:
    def label_sets(name: str) -> int:
        pods = named(name).manifests("p", 2 * APPS)
        return len({tuple(sorted(pod["metadata"]["labels"].items())) for pod in pods})

    assert label_sets("Plain/5000Nodes") == 1
    assert label_sets("SixtyKinds/5000Nodes") == APPS
    assert label_sets("OwnLabels/5000Nodes") == 2 * APPS
    assert label_sets("ZoneSpread/5000Nodes") == APPS
    assert label_sets("AntiAffinity/5000Nodes") == APPS


def test_pods_of_sixty_kinds_ask_for_sixty_amounts_about_the_usual_one() -> None:
    def amounts(name: str) -> list[int]:
        pods = named(name).manifests("p", 2 * APPS)
        requests = (pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in pods)
        return sorted({int(amount.removesuffix("m")) for amount in requests})

    assert amounts("Plain/5000Nodes") == [100]
    assert amounts("SixtyKinds/5000Nodes") == list(range(70, 130))


@pytest.mark.parametrize("name", ["ZoneSpread/5000Nodes", "AntiAffinity/5000Nodes"])
def test_pods_prefer_nodes_without_pods_of_their_app(name: str) -> None:
    for pod in named(name).manifests("p", 3):
        spec = pod["spec"]
        if "affinity" in spec:
            (term,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            selector = term["podAffinityTerm"]["labelSelector"]
        else:
            (constraint,) = spec["topologySpreadConstraints"]
            assert constraint["whenUnsatisfiable"] == "DoNotSchedule"
            selector = constraint["labelSelector"]
        assert selector["matchLabels"] == pod["metadata"]["labels"]


def test_names_are_those_of_the_turn() -> None:
    assert [pod["metadata"]["name"] for pod in named("Plain/1000Nodes").manifests("pod-7", 2)] == [
        "pod-7-0",
        "pod-7-1",
    ]


def test_each_zone_has_open_nodes_of_every_rank() -> None:
    nodes = [node["metadata"]["labels"] for node in node_manifests(1000)]
    assert sum(CLOSED in labels for labels in nodes) == 100
    seen = {(labels[ZONE], labels[RANK]) for labels in nodes if CLOSED not in labels}
    assert len(seen) == 10 * 11
