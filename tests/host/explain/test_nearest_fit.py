"""The resources that nodes lack for a pod, in words."""

from __future__ import annotations

import pytest
from berth_host.config.loading import load_configuration
from berth_host.explain.nearest_fit import Shortage, counted_in, shortages, shown_amount
from berth_sdk.testing import make_node, make_pod


def test_nodes_that_lack_the_same_are_one_line_and_the_nearest_comes_first() -> None:
    nodes = [make_node(name, cpu=cpu) for name, cpu in (("a", "1"), ("b", "3"), ("c", "3"), ("d", "8"))]
    found = shortages(make_pod("web", cpu="4"), nodes, [])
    assert [item.text for item in found] == ["2 nodes lack 1 CPU", "node a lacks 3 CPU"]


def test_nearest_fit_counts_the_pods_on_the_node() -> None:
    node = make_node("a", cpu="4", memory="8Gi")
    there = make_pod("there", cpu="3", memory="7Gi", node="a")
    elsewhere = make_pod("elsewhere", cpu="3", node="b")
    (found,) = shortages(make_pod("web", cpu="2", memory="2Gi"), [node], [there, elsewhere])
    assert found.text == "node a lacks 1 CPU and 1Gi memory"


def test_node_that_is_full_of_pods_lacks_room() -> None:
    node = make_node("a", cpu="4", allocatable={"cpu": "4", "pods": "1"})
    (found,) = shortages(make_pod("web", cpu="1"), [node], [make_pod("there", node="a")])
    assert found.text == "node a lacks room for 1 pod"


def test_resource_that_the_pod_does_not_ask_for_is_not_lacking() -> None:
    assert shortages(make_pod("web", cpu="1"), [make_node("a", cpu="1")], []) == []


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ("{}", "node a lacks 2 a.b/gpu and 3 c.d/nic and 1 CPU"),
        ("{ignoredResources: [a.b/gpu, cpu]}", "node a lacks 3 c.d/nic and 1 CPU"),
        ("{ignoredResourceGroups: [c.d]}", "node a lacks 2 a.b/gpu and 1 CPU"),
    ],
)
def test_resource_that_node_resources_fit_leaves_out_is_not_lacking(args: str, want: str) -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {args}}}]}}]\n"
    )
    profile = load_configuration(text, source="f.yaml").profiles[0]
    web = make_pod("web", requests={"cpu": "2", "a.b/gpu": "2", "c.d/nic": "3"})
    (found,) = shortages(web, [make_node("a", cpu="1")], [], counted_in(profile))
    assert found.text == want
    (all_of_it,) = shortages(web, [make_node("a", cpu="1")], [], counted_in(None))
    assert all_of_it.text == "node a lacks 2 a.b/gpu and 3 c.d/nic and 1 CPU"


@pytest.mark.parametrize(
    ("resource", "amount", "want"),
    [
        ("cpu", 2000, "2 CPU"),
        ("cpu", 1500, "1500m CPU"),
        ("memory", 3 * 2**30, "3Gi memory"),
        ("memory", 3 * 2**29, "1536Mi memory"),
        ("memory", 1_500_000_000, "1430.5Mi memory"),
        ("memory", 500, "500 memory"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi hugepages-2Mi"),
        ("example.com/gpu", 2, "2 example.com/gpu"),
        ("pods", 2, "room for 2 pods"),
    ],
)
def test_amounts_are_shown_as_people_write_them(resource: str, amount: int, want: str) -> None:
    assert shown_amount(resource, amount) == want


def test_shortage_of_one_node_names_it() -> None:
    assert Shortage((("cpu", 1000),), ("a",)).text == "node a lacks 1 CPU"
    assert Shortage((("cpu", 1000),), ("a", "b")).text == "2 nodes lack 1 CPU"
