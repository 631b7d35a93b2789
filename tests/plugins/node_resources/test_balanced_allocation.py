"""NodeResourcesBalancedAllocation: the change of balance, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from berth_sdk.errors import PluginArgsError
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import NO_HANDLE, Ask, Plug

PLUG = Plug(NodeResourcesBalancedAllocation)
GPU = "example.com/gpu"


def over(*names: str) -> Plug:
    resources = [{"name": name, "weight": 1} for name in names]
    return Plug(NodeResourcesBalancedAllocation, {"resources": resources})


async def test_balanced_score_equals_a_worked_example(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=4, memory="8Gi")], [make_pod("p", cpu=1, memory="2Gi", node="a")])
    assert await ask.score(PLUG, make_pod("web", cpu="500m", memory="1Gi"), nodes) == [75]


async def test_pod_that_improves_the_balance_scores_higher(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a", cpu=10, memory=10),
            make_node("b", cpu=10, memory=10),
            make_node("c", cpu=10, memory=10),
        ],
        [make_pod("p1", cpu=0, memory=4, node="a"), make_pod("p2", cpu=4, memory=0, node="b")],
    )
    # std .2 -> 0, .2 -> .4, 0 -> .2
    assert await ask.score(PLUG, make_pod("web", cpu=4), nodes) == [85, 65, 65]


async def test_pod_without_any_of_the_resources_skips(ask: Ask) -> None:
    nodes = make_table([make_node("a")])
    assert await ask.score(PLUG, make_pod("web"), nodes) == Status.skip()
    assert await ask.score(PLUG, make_pod("web", cpu=0, requests={GPU: 1}), nodes) == Status.skip()
    assert await ask.score(over(GPU), make_pod("web", cpu=1, requests={GPU: 1}), nodes) == [75]


async def test_defaults_for_containers_do_not_count_and_overhead_does(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=10, memory=10)], [make_pod("p", node="a")])
    assert await ask.score(PLUG, make_pod("web", overhead={"cpu": 4}), nodes) == [65]


async def test_usage_above_allocatable_counts_as_full(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=2, memory=10)], [make_pod("p", cpu=3, node="a")])
    assert await ask.score(PLUG, make_pod("web", cpu=3, memory=5), nodes) == [87]  # std .5 -> .25


async def test_resource_that_a_node_lacks_is_left_out_there(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a", cpu=10, memory=10, allocatable={GPU: 10}),
            make_node("b", cpu=10, memory=10),
            make_node("c", cpu=10, memory=0, allocatable={GPU: 10}),
            make_node("d", cpu=0, memory=0),
        ]
    )
    plug = over("cpu", "memory", GPU)
    pod = make_pod("web", cpu=4, memory=4, requests={GPU: 4})
    assert await ask.score(plug, pod, nodes) == [75, 75, 75, 75]
    pod = make_pod("web", cpu=4, requests={GPU: 4})
    # a: (.4, 0, .4) -> 81, b: (.4, 0) -> 80, c: (.4, .4) -> 100
    assert await ask.score(plug, pod, nodes) == [65, 65, 75, 75]


async def test_fractions_are_added_in_configured_order(ask: Ask) -> None:
    """The last bit of the sum of these three fractions depends on the order."""
    nodes = make_table([make_node("a", cpu=10, memory=10, allocatable={GPU: 10})])
    pod = make_pod("web", cpu=1, memory=2, requests={GPU: 3})
    fractions = {"cpu": 0.1, "memory": 0.2, GPU: 0.3}
    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    for names in (("cpu", "memory", GPU), (GPU, "memory", "cpu")):
        total = 0.0
        for name in names:
            total += fractions[name]
        mean = total / 3
        squares = 0.0
        for name in names:
            squares += (fractions[name] - mean) * (fractions[name] - mean)
        with_pod = int((1 - (squares / 3) ** 0.5) * 100)
        assert await ask.score(over(*names), pod, nodes) == [50 + (50 + with_pod - 100) // 2]


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        pytest.param(
            [{"name": "cpu", "weight": 2}], "resources[0].weight: Invalid value: 2: must be 1", id="weight"
        ),
        pytest.param(
            [{"name": "cpu", "weight": 1}, {"name": "cpu", "weight": 1}],
            'resources[1].name: Duplicate value: "cpu"',
            id="duplicate",
        ),
    ],
)
def test_invalid_arguments_are_refused(resources: list[dict[str, Any]], text: str) -> None:
    with pytest.raises(PluginArgsError) as caught:
        NodeResourcesBalancedAllocation({"resources": resources}, NO_HANDLE)
    assert str(caught.value) == text
