"""NodeResourcesFit: the resources that a node lacks, the codes, and the hints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_plugins.node_resources.fit import MAX_BITS, Demand, NodeResourcesFit
from berth_plugins.objects.resource_names import is_extended, is_scalar
from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.slices import at_once
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_node, make_pod, make_table
from numpy.typing import NDArray
from support.asking import IN_PROCESS, Ask, Plug

PLUG = Plug(NodeResourcesFit)
OK = Status.success()
GPU = "example.com/gpu"


async def test_every_missing_resource_is_named(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a", cpu=4, memory="8Gi"),
            make_node("b", cpu=2, memory="8Gi"),
            make_node("c", cpu=4, memory="4Gi", allocatable={GPU: 1, "ephemeral-storage": "1Gi"}),
        ],
        [
            make_pod("p1", cpu=2, memory="6Gi", node="a"),
            make_pod("p2", cpu=1, node="b"),
            make_pod("p3", cpu=3, memory="3Gi", requests={GPU: 1}, node="c"),
        ],
    )
    got = await ask.filter(PLUG, make_pod("web", cpu="1500m", memory="2Gi"), nodes)
    assert got == [OK, Status.unschedulable("Insufficient cpu"), _short("cpu", "memory")]
    pod = make_pod("web", cpu=2, memory="2Gi", requests={GPU: 1, "ephemeral-storage": "1Gi"})
    got = await ask.filter(PLUG, pod, nodes)
    assert got == [
        Status.unresolvable("Insufficient ephemeral-storage", f"Insufficient {GPU}"),
        Status.unresolvable("Insufficient cpu", "Insufficient ephemeral-storage", f"Insufficient {GPU}"),
        _short("cpu", "memory", GPU),
    ]


def _short(*resources: str) -> Status:
    return Status.unschedulable(*(f"Insufficient {name}" for name in resources))


@pytest.mark.parametrize("nodes", [1, 7, 200])
@pytest.mark.parametrize("resources", [0, 1, 4, 12, MAX_BITS, MAX_BITS + 1, 200])
def test_each_combination_of_reasons_is_one_group(nodes: int, resources: int) -> None:
    random = np.random.default_rng(nodes + resources)
    names = [f"example.com/r{i}" for i in range(resources)]
    full, never = random.random(nodes) < 0.3, random.random(nodes) < 0.3
    lacking = random.random((resources, nodes)) < (0.2 if resources <= MAX_BITS else 0.01)
    never &= lacking.any(axis=0)
    demand = Demand(tuple((name, 1) for name in names))
    if resources <= MAX_BITS:
        got = demand.grouped(full, lacking, never)
    else:
        got = at_once(demand.judged(_table(names, full, lacking, never)))
    want = []
    for row in range(nodes):
        reasons = ["Too many pods"] if full[row] else []
        reasons += [
            f"Insufficient {name}" for name, short in zip(names, lacking[:, row], strict=True) if short
        ]
        rejected = Status.unresolvable(*reasons) if never[row] else Status.unschedulable(*reasons)
        want.append(rejected if reasons else OK)
    assert got.to_list() == want
    assert got.statuses[0] == OK
    assert set(got.statuses) == {OK, *want}
    assert len(set(got.statuses)) == len(got.statuses)


def _table(
    names: list[str], full: NDArray[np.bool_], lacking: NDArray[np.bool_], never: NDArray[np.bool_]
) -> NodeTable:
    """Return nodes where a request of 1 for each name has these outcomes."""
    nodes, pods = [], []
    for row in range(len(full)):
        short = [name for name, lacks in zip(names, lacking[:, row], strict=True) if lacks]
        offers = dict.fromkeys(names, 1) | dict.fromkeys(short if never[row] else (), 0)
        nodes.append(make_node(f"n{row}", allocatable={**offers, "pods": 1 if full[row] else 2}))
        taken = {} if never[row] else dict.fromkeys(short, 1)
        pods.append(make_pod(f"p{row}", node=f"n{row}", uid=f"u{row}", requests=taken))
    return make_table(nodes, pods)


async def test_request_above_the_whole_node_cannot_be_resolved(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=4), make_node("b", cpu=8)], [make_pod("p", cpu=6, node="b")])
    got = await ask.filter(PLUG, make_pod("web", cpu=5), nodes)
    assert got == [Status.unresolvable("Insufficient cpu"), Status.unschedulable("Insufficient cpu")]


async def test_too_many_pods_is_resolvable_and_the_first_reason(ask: Ask) -> None:
    nodes = make_table(
        [make_node("a", pods=1), make_node("b", pods=0), make_node("c", cpu=1, pods=0)],
        [make_pod("p", node="a")],
    )
    got = await ask.filter(PLUG, make_pod("web", cpu=2), nodes)
    assert got == [
        Status.unschedulable("Too many pods"),
        Status.unschedulable("Too many pods"),
        Status.unresolvable("Too many pods", "Insufficient cpu"),
    ]


async def test_pod_without_requests_fits_on_an_overcommitted_node(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=1)], [make_pod("p", cpu=3, node="a")])
    assert await ask.filter(PLUG, make_pod("web"), nodes) == [OK]
    assert await ask.filter(PLUG, make_pod("web", cpu=0, requests={GPU: 0}), nodes) == [OK]
    assert await ask.filter(PLUG, make_pod("web", memory="1Gi"), nodes) == [OK]


async def test_request_for_exactly_the_free_amount_fits(ask: Ask) -> None:
    nodes = make_table([make_node("a", cpu=4)], [make_pod("p", cpu="2500m", node="a")])
    assert await ask.filter(PLUG, make_pod("web", cpu="1500m"), nodes) == [OK]
    assert await ask.filter(PLUG, make_pod("web", cpu="1501m"), nodes) == [_short("cpu")]


async def test_names_that_no_node_counts_are_left_out(ask: Ask) -> None:
    nodes = make_table([make_node("a")])
    pod = make_pod("web", requests={"pods": 5000, "storage": "1Ei", "requests.example.com/x": 1})
    assert await ask.filter(PLUG, pod, nodes) == [OK]


@pytest.mark.parametrize(
    ("args", "left"),
    [
        pytest.param({}, ["example.com/gpu", "hugepages-2Mi", "vendor.io/nic"], id="none"),
        pytest.param({"ignoredResources": [GPU]}, ["hugepages-2Mi", "vendor.io/nic"], id="by name"),
        pytest.param(
            {"ignoredResourceGroups": ["vendor.io"]}, ["example.com/gpu", "hugepages-2Mi"], id="by group"
        ),
        pytest.param(
            {"ignoredResources": ["hugepages-2Mi"], "ignoredResourceGroups": ["hugepages-2Mi"]},
            ["example.com/gpu", "hugepages-2Mi", "vendor.io/nic"],
            id="only extended resources can be ignored",
        ),
    ],
)
async def test_ignored_resources_are_not_checked(ask: Ask, args: dict[str, Any], left: list[str]) -> None:
    pod = make_pod("web", requests={GPU: 1, "vendor.io/nic": 1, "hugepages-2Mi": "2Mi"})
    got = await ask.filter(Plug(NodeResourcesFit, args), pod, make_table([make_node("a")]))
    assert got == [Status.unresolvable(*(f"Insufficient {name}" for name in left))]


async def test_many_reasons_are_grouped_without_a_pattern_table() -> None:
    names = [f"example.com/r{i:02}" for i in range(15)]
    pod = make_pod("web", requests=dict.fromkeys(names, 1))
    nodes = make_table(
        [make_node("a"), make_node("b", allocatable=dict.fromkeys(names, 1))],
        [make_pod("p", requests=dict.fromkeys(names[:-1], 1), node="b")],
    )
    got = await IN_PROCESS.filter(PLUG, pod, nodes)
    reasons = [f"Insufficient {name}" for name in names]
    assert got == [Status.unresolvable(*reasons), Status.unschedulable(*reasons[:-1])]


async def test_what_if_counts_the_changed_usage(ask: Ask) -> None:
    held = make_pod("p", cpu=3, node="a")
    nodes = make_table([make_node("a", cpu=4)], [held])
    scenarios = Scenarios(
        nodes, [Scenario("a"), Scenario("a", removed=(held,)), Scenario("a", added=(make_pod("q", cpu=1),))]
    )
    got = await ask.scenarios(PLUG, make_pod("web", cpu=1), scenarios)
    assert got == [OK, OK, _short("cpu")]


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("cpu", False, False),
        ("example.com/gpu", True, True),
        ("gpu", False, False),
        ("kubernetes.io/batch", False, True),
        ("requests.example.com/x", False, False),
        ("example.com/-bad", False, False),
        ("hugepages-1Gi", False, True),
        ("attachable-volumes-csi-x", False, True),
        ("deviceclass.resource.kubernetes.io/gpu", False, True),
        (f"{'a' * 250}.b/gpu", False, False),
    ],
)
def test_resource_names_are_classified_as_counted_or_not(name: str, extended: bool, scalar: bool) -> None:
    assert (is_extended(name), is_scalar(name)) == (extended, scalar)


WAITING = make_pod("web", cpu=2, requests={GPU: 1, "memory": 0})


@pytest.mark.parametrize(
    ("gone", "want"),
    [
        pytest.param(make_pod("p", node="a"), True, id="bound"),
        pytest.param(make_pod("p", nominated="a"), True, id="nominated"),
        pytest.param(make_pod("p", cpu=2), False, id="neither"),
    ],
)
async def test_hint_for_a_deleted_pod(ask: Ask, gone: Pod, want: bool) -> None:
    assert await ask.hint(PLUG, ClusterEvent(resource="Pod", action="delete", old=gone), WAITING) is want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(make_pod("web"), make_pod("web"), True, id="the pod itself"),
        pytest.param(make_pod("p", cpu=2), make_pod("p", cpu=1), False, id="another pod that waits"),
        pytest.param(make_pod("p", cpu=2, node="a"), make_pod("p", cpu=1, node="a"), True, id="less cpu"),
        pytest.param(make_pod("p", cpu=1, node="a"), make_pod("p", cpu=2, node="a"), False, id="more cpu"),
        pytest.param(
            make_pod("p", memory="2Gi", node="a"),
            make_pod("p", memory="1Gi", node="a"),
            False,
            id="less of what the pod does not ask for",
        ),
        pytest.param(
            make_pod("p", requests={GPU: 1}, node="a"), make_pod("p", node="a"), True, id="vanished"
        ),
    ],
)
async def test_hint_for_a_pod_that_shrank(ask: Ask, old: Pod, new: Pod, want: bool) -> None:
    event = ClusterEvent(resource="Pod", action="update.scaleDown", old=old, new=new)
    assert await ask.hint(PLUG, event, WAITING) is want


FITTING = make_node("a", cpu=4, allocatable={GPU: 1})


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, FITTING, True, id="added and large enough"),
        pytest.param(None, make_node("a", cpu=1, allocatable={GPU: 1}), False, id="added, too small"),
        pytest.param(None, make_node("a", cpu=4, pods=0, allocatable={GPU: 1}), False, id="no room for pods"),
        pytest.param(FITTING, make_node("a", cpu=5, allocatable={GPU: 1}), True, id="more cpu"),
        pytest.param(FITTING, make_node("a", cpu=4, memory="9Gi", allocatable={GPU: 1}), False, id="unasked"),
        pytest.param(FITTING, make_node("a", cpu=4, pods=111, allocatable={GPU: 1}), True, id="more pods"),
        pytest.param(FITTING, make_node("a", cpu=4, allocatable={GPU: 2}), True, id="more devices"),
        pytest.param(FITTING, make_node("a", cpu=3, allocatable={GPU: 1}), False, id="less"),
        pytest.param(make_node("a", cpu=1), make_node("a", cpu="1500m"), False, id="grew, still too small"),
    ],
)
async def test_hint_for_changes_of_nodes(ask: Ask, old: Node | None, new: Node, want: bool) -> None:
    event = ClusterEvent(resource="Node", action="update.allocatable", old=old, new=new)
    assert await ask.hint(PLUG, event, WAITING) is want


@pytest.mark.parametrize(
    ("new", "want"),
    [
        pytest.param(make_node("a", cpu=1, allocatable={GPU: 1}), True, id="too small"),
        pytest.param(make_node("b", cpu=1, allocatable={GPU: 1}), False, id="another node"),
        pytest.param(make_node("a", cpu=3, allocatable={GPU: 1}), False, id="large enough"),
        pytest.param(make_node("a", cpu=4), False, id="devices may come back"),
    ],
)
async def test_nominated_node_that_shrank_requeues_since_1_38(ask: Ask, new: Node, want: bool) -> None:
    old = make_node(new.name, cpu=4, allocatable={GPU: 1})
    event = ClusterEvent(resource="Node", action="update.allocatable", old=old, new=new)
    nominated = make_pod("web", cpu=2, requests={GPU: 1, "memory": 0}, nominated="a")
    assert await ask.hint(PLUG, event, nominated) is want
    before = Plug(NodeResourcesFit, args={"featureGates": {"ShrunkNominatedNodes": False}})
    assert not await ask.hint(before, event, nominated)


async def test_pod_without_requests_waits_only_for_room_for_pods(ask: Ask) -> None:
    event = ClusterEvent(
        resource="Node", action="update", old=make_node("a", cpu=1), new=make_node("a", cpu=2)
    )
    assert await ask.hint(PLUG, event, make_pod("web")) is False


def _device_class(name: str, provides: str | None) -> KubeObject:
    spec = {} if provides is None else {"extendedResourceName": provides}
    return KubeObject.of(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, _device_class("gpus", GPU), True, id="provides it"),
        pytest.param(None, _device_class("gpus", "example.com/nic"), False, id="provides another"),
        pytest.param(None, _device_class("gpus", None), False, id="provides none"),
        pytest.param(None, _device_class("fast", None), True, id="implicit name"),
        pytest.param(_device_class("fast", None), _device_class("fast", None), False, id="implicit, update"),
        pytest.param(_device_class("gpus", GPU), _device_class("gpus", GPU), False, id="unchanged"),
        pytest.param(_device_class("gpus", None), _device_class("gpus", GPU), True, id="now provides it"),
    ],
)
async def test_hint_for_changes_of_device_classes(
    ask: Ask, old: KubeObject | None, new: KubeObject, want: bool
) -> None:
    pod = make_pod("web", requests={GPU: 1, "deviceclass.resource.kubernetes.io/fast": 1})
    event = ClusterEvent(resource="resource.k8s.io/DeviceClass", action="update", old=old, new=new)
    assert await ask.hint(PLUG, event, pod) is want
