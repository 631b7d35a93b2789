"""NodeResourcesAllocatable: the size of nodes, weighted and normalised."""

from __future__ import annotations

from typing import Any

import pytest
from berth_scheduler_plugins.node_resources_allocatable import NodeResourcesAllocatable
from berth_sdk.errors import PluginArgsError
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import NO_HANDLE, Ask, Plug

GPU = "example.com/gpu"
NODES = [
    make_node("a", cpu=1, memory=0, allocatable={GPU: 7}),
    make_node("b", cpu=30, memory=0),
    make_node("c", cpu=101, memory=0),
]


def by(mode: str, **weights: int) -> Plug:
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    return Plug(NodeResourcesAllocatable, {"mode": mode, "resources": resources})


async def test_highest_is_100_and_lowest_0_and_the_rest_is_rounded_down(ask: Ask) -> None:
    table = make_table(NODES)
    assert await ask.score(by("Most", cpu=1), make_pod("web"), table) == [1000, 30000, 101000]
    # 29 of 100; by floating point, 100 * (29000 / 100000) is a little less.
    assert await ask.final_scores(by("Most", cpu=1), make_pod("web"), table) == [0, 29, 100]
    assert await ask.final_scores(by("Least", cpu=1), make_pod("web"), table) == [100, 71, 0]


async def test_pods_on_nodes_change_nothing(ask: Ask) -> None:
    used = make_table(NODES, [make_pod("p", cpu=100, node="c")])
    assert await ask.final_scores(by("Most", cpu=1), make_pod("web"), used) == [0, 29, 100]


async def test_mean_is_weighted_and_rounded_toward_zero(ask: Ask) -> None:
    table = make_table(NODES[:1])
    both = Plug(
        NodeResourcesAllocatable,
        {"mode": "Least", "resources": [{"name": "cpu", "weight": 2}, {"name": GPU, "weight": 1}]},
    )
    assert await ask.score(both, make_pod("web"), table) == [-(2007 // 3)]


async def test_enormous_weights_and_amounts_are_exact(ask: Ask) -> None:
    nodes = make_table([make_node(name, memory=size) for name, size in (("a", 2**61), ("b", 2**62))])
    plug = by("Most", memory=2**40)
    assert await ask.score(plug, make_pod("web"), nodes) == [2**61, 2**62]
    assert await ask.final_scores(plug, make_pod("web"), nodes) == [0, 100]


async def test_last_weight_of_a_resource_counts_and_pods_do_not(ask: Ask) -> None:
    resources = [
        {"name": "cpu", "weight": 9},
        {"name": "cpu", "weight": 1},
        {"name": "pods", "weight": 1},
    ]
    plug = Plug(NodeResourcesAllocatable, {"mode": "Most", "resources": resources})
    assert await ask.score(plug, make_pod("web"), make_table(NODES[:1])) == [500]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            {"resources": [{"name": "cpu", "weight": 0}]},
            "resources[0].weight: Invalid value: 0: resource weight of cpu should be a positive value, "
            "got :0",
        ),
        ({"resources": [{"weight": 1}]}, "resources[0].name: Required value: name the resource, such as cpu"),
        ({"mode": "More"}, 'mode: Invalid value: "More": invalid support ModeType: use Least or Most'),
        ({"modes": "Most"}, "modes: Forbidden: is no argument: leave it out, or use one of mode, resources"),
    ],
)
def test_invalid_arguments_are_refused(args: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginArgsError) as caught:
        NodeResourcesAllocatable(args, NO_HANDLE)
    assert str(caught.value) == text
