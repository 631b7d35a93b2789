"""NodeResourcesFit's strategies: worked examples, missing resources, and invalid arguments."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.args.findings import Findings
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.node_resources.strategies import percent, ratio_of_shape, read_strategy
from berth_sdk.errors import PluginArgsError
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import NO_HANDLE, Ask, Plug

GPU = "example.com/gpu"
LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
NODES = make_table([make_node("a", cpu=4, memory="8Gi")], [make_pod("p", cpu=1, memory="2Gi", node="a")])
POD = make_pod("web", cpu="500m", memory="1Gi")


def strategy(kind: str, resources: dict[str, int] | None = None, shape: dict[int, int] | None = None) -> Plug:
    raw: dict[str, Any] = {"type": kind}
    if resources is not None:
        raw["resources"] = [{"name": name, "weight": weight} for name, weight in resources.items()]
    if shape is not None:
        points = [{"utilization": used, "score": score} for used, score in shape.items()]
        raw["requestedToCapacityRatio"] = {"shape": points}
    return Plug(NodeResourcesFit, {"scoringStrategy": raw})


@pytest.mark.parametrize(
    ("plug", "want"),
    [
        pytest.param(Plug(NodeResourcesFit), 62, id="default"),
        pytest.param(strategy(LEAST), 62, id="least"),
        pytest.param(strategy(MOST), 37, id="most"),
        pytest.param(strategy(RATIO, shape={0: 0, 100: 10}), 37, id="ratio"),
        pytest.param(strategy(RATIO, shape={0: 10, 100: 0}), 63, id="ratio, falling"),
    ],
)
async def test_strategies_equal_worked_examples(ask: Ask, plug: Plug, want: int) -> None:
    assert await ask.score(plug, POD, NODES) == [want]


async def test_weights_of_resources_weigh_the_mean(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=4, memory="8Gi")])
    pod = make_pod("web", cpu=1, memory="4Gi")  # 75 and 50 are free
    assert await ask.score(strategy(LEAST, {"cpu": 3, "memory": 1}), pod, nodes) == [68]
    assert await ask.score(strategy(LEAST, {"memory": 7}), pod, nodes) == [50]


async def test_containers_without_requests_count_with_defaults(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=1, memory="2000Mi")], [make_pod("p", images=["x", "y"], node="a")])
    # Three containers: 300m of 1000m, 600Mi of 2000Mi.
    assert await ask.score(strategy(MOST), make_pod("web"), nodes) == [30]
    assert await ask.score(strategy(MOST), make_pod("web", cpu=0, memory=0), nodes) == [20]


async def test_pod_level_requests_are_left_aside_for_the_new_pod_alone(ask: Ask) -> None:
    level = {"resources": {"requests": {"cpu": "500m", "memory": "1000Mi"}}}
    nodes = make_table([make_node("a", cpu=1, memory="2000Mi")], [make_pod("p", spec=level, node="a")])
    # On the node 500m and 1000Mi; the new pod counts as a container that asks for nothing.
    assert await ask.score(strategy(MOST), make_pod("web", spec=level), nodes) == [60]


async def test_more_than_the_node_has_scores_zero_or_the_end_of_the_shape(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=1, memory="8Gi")], [make_pod("p", cpu=3, node="a")])
    pod = make_pod("web", cpu=0, memory=0)
    cpu = {"cpu": 1}
    assert await ask.score(strategy(LEAST, cpu), pod, nodes) == [0]
    assert await ask.score(strategy(MOST, cpu), pod, nodes) == [100]
    assert await ask.score(strategy(RATIO, cpu, {0: 9, 50: 8, 100: 3}), pod, nodes) == [30]


async def test_resource_that_a_node_lacks_or_the_pod_does_not_ask_for_is_left_out(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a", cpu=4, allocatable={GPU: 4}),
            make_node("b", cpu=4),
            make_node("c", cpu=0, allocatable={GPU: 4}),
            make_node("d", cpu=0),
        ]
    )
    plug = strategy(LEAST, {"cpu": 1, GPU: 3})
    assert await ask.score(plug, make_pod("web", cpu=1, requests={GPU: 2}), nodes) == [56, 75, 50, 0]
    assert await ask.score(plug, make_pod("web", cpu=1), nodes) == [75, 75, 0, 0]


async def test_names_that_no_node_counts_are_left_out(ask: Ask) -> None:
    plug = strategy(LEAST, {"cpu": 1, "pods": 100, "gpu": 50})
    assert await ask.score(plug, make_pod("web", cpu=1, requests={"gpu": 1}), NODES) == [50]


async def test_ratio_counts_only_resources_that_score_and_rounds(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=200, memory=200, allocatable={GPU: 200})])
    shape = {0: 0, 100: 10}

    def pod(cpu: int, memory: int, gpu: int) -> Any:
        return make_pod("web", cpu=cpu, memory=memory, requests={GPU: gpu})

    even = strategy(RATIO, {"cpu": 1, "memory": 1, GPU: 1}, shape)
    assert await ask.score(even, pod(100, 0, 1), nodes) == [50]  # memory and gpu score 0
    assert await ask.score(even, pod(100, 50, 0), nodes) == [38]  # (50 + 25) / 2 = 37.5
    weighted = strategy(RATIO, {"cpu": 1, "memory": 2}, shape)
    assert await ask.score(weighted, pod(20, 40, 0), nodes) == [17]  # (10 + 40) / 3 = 16.67


def test_falling_line_is_truncated_towards_the_left_point() -> None:
    import numpy as np

    scores = ratio_of_shape([(0, 100), (3, 0)])
    used = np.array([0, 1, 2, 3, 50])
    assert scores(percent, used, np.full(5, 100)).tolist() == [100, 67, 34, 0, 0]


MAX = 2**63 - 1
HUGE = 2**60


@pytest.mark.parametrize(
    ("kind", "used", "requested", "allocatable", "want"),
    [
        pytest.param(LEAST, 0, HUGE, 4 * HUGE, 75, id="a product beyond int64"),
        pytest.param(MOST, HUGE, HUGE, 4 * HUGE, 50, id="both beyond int64"),
        pytest.param(LEAST, 7 * HUGE, 7 * HUGE, MAX, 0, id="a sum beyond int64 is full"),
        pytest.param(MOST, 7 * HUGE, 7 * HUGE, MAX, 100, id="a sum beyond int64 is the most"),
        pytest.param(RATIO, HUGE, HUGE, 4 * HUGE, 50, id="ratio"),
    ],
)
async def test_scores_of_huge_amounts_are_exact(
    ask: Ask, kind: str, used: int, requested: int, allocatable: int, want: int
) -> None:
    placed = [make_pod("there", memory=used, node="n1")] if used else []
    nodes = make_table([make_node("n1", cpu=4, memory=allocatable, pods=10)], placed)
    plug = strategy(kind, {"memory": 1}, {0: 0, 100: 10} if kind == RATIO else None)
    assert await ask.score(plug, make_pod("web", memory=requested), nodes) == [want]


@pytest.mark.parametrize("kind", [LEAST, MOST, RATIO])
@pytest.mark.parametrize("part", range(1, 8))
def test_wrapping_amounts_give_a_score_all_the_same(kind: str, part: int) -> None:
    import numpy as np

    args = {"featureGates": {"ExactScores": False}, "scoringStrategy": {"type": kind}}
    if kind == RATIO:
        points = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
        args["scoringStrategy"]["requestedToCapacityRatio"] = {"shape": points}  # type: ignore[index]
    wrapping = read_strategy(args, Findings())
    assert wrapping.wraps
    used = np.array([[part * HUGE]])
    (score,) = wrapping.combine(used, np.array([[HUGE // 3]]), np.array([[7 * HUGE]]), (1,), 1).tolist()
    assert 0 <= score <= 100


@pytest.mark.parametrize(
    ("args", "text"),
    [
        pytest.param(
            {"scoringStrategy": {"type": "Best"}},
            'scoringStrategy.type: Unsupported value: "Best": supported values: "LeastAllocated",'
            ' "MostAllocated", "RequestedToCapacityRatio"',
            id="type",
        ),
        pytest.param(
            {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 1}]}},
            'scoringStrategy.type: Unsupported value: "": supported values: "LeastAllocated",'
            ' "MostAllocated", "RequestedToCapacityRatio"',
            id="no type",
        ),
        pytest.param(
            {"scoringStrategy": {"type": LEAST, "resources": [{"name": "cpu", "weight": 101}]}},
            "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid"
            " range (0, 100]",
            id="weight",
        ),
        pytest.param(
            {"scoringStrategy": {"type": LEAST, "requestedToCapacityRatio": {"shape": []}}},
            "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not"
            " RequestedToCapacityRatio",
            id="shape without need",
        ),
        pytest.param(
            {"scoringStrategy": {"type": RATIO}},
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is"
            " RequestedToCapacityRatio",
            id="no shape",
        ),
        pytest.param(
            {"scoringStrategy": {"type": RATIO, "requestedToCapacityRatio": {"shape": []}}},
            "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be"
            " specified",
            id="empty shape",
        ),
        pytest.param(
            {
                "scoringStrategy": {
                    "type": RATIO,
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 40, "score": 1}, {"utilization": 20, "score": 11}]
                    },
                }
            },
            "[scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 20: values must"
            " be sorted in increasing order, scoringStrategy.requestedToCapacityRatio.shape[1].score: Invalid"
            " value: 11: not in valid range [0, 10]]",
            id="shape, two faults",
        ),
        pytest.param(
            {
                "scoringStrategy": {
                    "type": RATIO,
                    "requestedToCapacityRatio": {"shape": [{"utilization": 101, "score": 1}]},
                }
            },
            "scoringStrategy.requestedToCapacityRatio.shape[0].utilization: Invalid value: 101: not in valid"
            " range [0, 100]",
            id="utilization",
        ),
        pytest.param(
            {"ignoredResourceGroups": ["example.com/x"]},
            'ignoredResourceGroups[0]: Invalid value: "example.com/x":'
            " resource group name can't contain '/'",
            id="group",
        ),
    ],
)
def test_invalid_arguments_are_refused(args: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginArgsError) as caught:
        NodeResourcesFit(args, NO_HANDLE)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({"ignoredResources": "gpu"}, id="text for a list"),
        pytest.param({"ignoredResources": [7]}, id="number for a name"),
        pytest.param({"ignoredResources": ["a b"]}, id="not a name"),
        pytest.param({"scoringStrategy": []}, id="list for a map"),
        pytest.param({"scoringStrategy": {"type": LEAST, "resources": ["cpu"]}}, id="name for a resource"),
        pytest.param(
            {"scoringStrategy": {"type": LEAST, "resources": [{"name": "cpu", "weight": "2"}]}},
            id="text weight",
        ),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(PluginArgsError, match="Invalid value"):
        NodeResourcesFit(args, NO_HANDLE)


async def test_arguments_from_the_wire_have_whole_floats_for_integers(ask: Ask) -> None:
    raw = {"type": LEAST, "resources": [{"name": "memory", "weight": 3.0}]}
    assert await ask.score(Plug(NodeResourcesFit, {"scoringStrategy": raw}), POD, NODES) == [62]
