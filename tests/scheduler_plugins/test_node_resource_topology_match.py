"""NodeResourceTopologyMatch: zones with gaps, containers that run together, pods that no topology counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from berth_scheduler_plugins.node_resource_topology_match import STALE, NodeResourceTopologyMatch
from berth_scheduler_plugins.numa.fingerprint import fingerprint, xxh64
from berth_scheduler_plugins.numa.topology import FINGERPRINT, RESOURCE
from berth_sdk.errors import PluginArgsError
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_time
from berth_sdk.status import Code, Status
from berth_sdk.testing import PluginHost, make_node, make_pod, make_table
from support.asking import NO_HANDLE, Ask, Plug

Json = dict[str, Any]
NIC = "vendor.com/nic"
NODE = make_node("a", cpu=64, memory="256Gi", allocatable={NIC: 8})
STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
STARTED = {"startTime": format_time(time.time() - 3600)}


def topology(
    zones: Mapping[int, Mapping[str, str]],
    policy: str = "single-numa-node",
    scope: str = "container",
    counted: Sequence[tuple[str, str]] | None = None,
) -> Json:
    """Return the object of node a. `zones`: amounts by the zones' numbers, in the order of the object."""
    annotations = {} if counted is None else {FINGERPRINT: fingerprint(counted)}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "a", "annotations": annotations},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [{"name": name, "available": amount} for name, amount in free.items()],
                "costs": [
                    {"name": f"node-{other}", "value": 10 + 5 * abs(number - other)} for other in zones
                ],
            }
            for number, free in zones.items()
        ],
    }


def container(cpu: str, memory: str = "1Gi", **more: Any) -> Json:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}, **more}


def pod(name: str, *cpus: str, node: str = "", inits: Sequence[Json] = (), **fields: Any) -> Pod:
    """Return a guaranteed pod with a container of each amount of cpu."""
    containers = [container(cpu) for cpu in cpus]
    if node:
        fields["node"] = node
    return make_pod(name, containers=containers, init_containers=list(inits), **fields)


def plug(item: Json, **args: Any) -> Plug:
    return Plug(NodeResourceTopologyMatch, args, {RESOURCE: [item]})


def by(strategy: str) -> Json:
    return {"scoringStrategy": {"type": strategy}}


TWO = {0: {"cpu": "8", "memory": "16Gi"}, 1: {"cpu": "8", "memory": "16Gi"}}
MISALIGNED = [Status.unschedulable("cannot align container")]
FITS = [Status.success()]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_numbers_of_zones_may_have_gaps_and_any_order(strategy: str, ask: Ask) -> None:
    table = make_table([NODE])
    zones = {
        0: {"cpu": "2", "memory": "8Gi"},
        1: {"cpu": "4", "memory": "8Gi"},
        2: {"cpu": "6", "memory": "8Gi"},
    }
    turned = dict(reversed(zones.items()))
    gaps = {4 * number: free for number, free in zones.items()}
    web = pod("web", "2", "2", "3")
    scores = [
        await ask.score(plug(topology(given), **by(strategy)), web, table) for given in (zones, turned, gaps)
    ]
    assert scores[0] == scores[1] == scores[2]
    assert scores[0] != [0]
    for given in (zones, turned, gaps):
        assert await ask.filter(plug(topology(given)), web, table) == FITS


async def test_container_gets_the_lowest_zone_by_number(ask: Ask) -> None:
    table = make_table([NODE])
    zones = {5: {"cpu": "4", "memory": "8Gi"}, 3: {"cpu": "4", "memory": "8Gi"}}
    assert await ask.filter(plug(topology(zones)), pod("web", "2", "4", "2"), table) == FITS
    zones[3] = {"cpu": "2", "memory": "8Gi"}
    assert await ask.filter(plug(topology(zones)), pod("web", "2", "4"), table) == FITS
    zones[3] = {"cpu": "6", "memory": "8Gi"}
    assert await ask.filter(plug(topology(zones)), pod("web", "2", "5"), table) == MISALIGNED


async def test_sidecar_takes_room_and_an_init_container_gives_it_back(ask: Ask) -> None:
    table = make_table([NODE])
    item = topology({0: {"cpu": "8", "memory": "16Gi"}})
    sidecar = container("4", restartPolicy="Always")
    assert await ask.filter(plug(item), pod("web", "5", inits=[sidecar]), table) == MISALIGNED
    assert await ask.filter(plug(item), pod("web", "5", inits=[container("4")]), table) == FITS
    large = pod("web", "1", inits=[container("9", restartPolicy="Always")])
    assert await ask.filter(plug(item), large, table) == [
        Status.unschedulable("cannot align sidecar container")
    ]


async def test_device_may_be_in_one_of_the_zones_of_a_set(ask: Ask) -> None:
    item = topology(
        {0: {"cpu": "4", "memory": "8Gi", NIC: "2"}, 1: {"cpu": "4", "memory": "8Gi"}}, "restricted"
    )
    amounts = {"cpu": "6", "memory": "1Gi", NIC: "1"}
    web = make_pod("web", containers=[{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])
    assert await ask.score(plug(item, **by("LeastNUMANodes")), web, make_table([NODE])) == [82]


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_pod_whose_containers_ask_for_nothing_has_a_score(strategy: str, scope: str, ask: Ask) -> None:
    amounts = {"cpu": "2", "memory": "1Gi"}
    web = make_pod(
        "web",
        containers=[{"name": "c"}],
        spec={"resources": {"requests": amounts, "limits": amounts}},
    )
    item = topology(TWO, scope=scope)
    assert await ask.filter(plug(item), web, make_table([NODE])) == FITS
    assert await ask.score(plug(item, **by(strategy)), web, make_table([NODE])) != [0]


async def test_pod_that_did_not_start_takes_its_zone(ask: Ask) -> None:
    web = pod("web", "6", "6")
    running = pod("running", "4", node="a", status=STARTED)
    new = pod("new", "4", node="a")
    assert await ask.filter(plug(topology(TWO)), web, make_table([NODE], [running])) == FITS
    assert await ask.filter(plug(topology(TWO)), web, make_table([NODE], [new])) == MISALIGNED
    # The other zone still has room for a whole container.
    assert await ask.filter(plug(topology(TWO)), pod("web", "8"), make_table([NODE], [new])) == FITS
    burstable = make_pod("new", cpu=4, memory="4Gi", node="a")
    assert await ask.filter(plug(topology(TWO)), web, make_table([NODE], [burstable])) == FITS


async def test_fingerprint_tells_which_pods_a_topology_counts(ask: Ask) -> None:
    web = pod("web", "6", "6")
    older = {"startTime": format_time(time.time() - 7200)}
    table = make_table(
        [NODE], [pod("late", "4", node="a", status=STARTED), pod("early", "4", node="a", status=older)]
    )
    both = topology(TWO, counted=[("default", "late"), ("default", "early")])
    early = topology(TWO, counted=[("default", "early")])
    assert await ask.filter(plug(both), web, table) == FITS
    assert await ask.filter(plug(early), web, table) == MISALIGNED


def test_updated_topology_counts_the_pods_that_started_before() -> None:
    host = PluginHost(NodeResourceTopologyMatch, nodes=[NODE], objects={RESOURCE: [topology(TWO)]})
    web = pod("web", "6", "6")
    assert host.attempt(web).filter() == {"a": FITS[0]}
    host.put_pod(pod("new", "4", node="a"))
    assert host.attempt(web).filter() == {"a": MISALIGNED[0]}
    started = {"startTime": format_time(time.time() - 1)}
    host.put_pod(pod("new", "4", node="a", status=started))
    host.put_object(RESOURCE, topology({0: {"cpu": "8", "memory": "16Gi"}, 1: {"cpu": "7", "memory": "9Gi"}}))
    assert host.attempt(web).filter() == {"a": FITS[0]}
    host.close()


@pytest.mark.parametrize("args", [{}, {"cacheResyncPeriodSeconds": 5}], ids=["own", "cache"])
def test_topology_that_comes_later_is_used(args: Json) -> None:
    host = PluginHost(NodeResourceTopologyMatch, args, nodes=[NODE])
    web = pod("web", "9")
    assert host.attempt(web).filter() == {"a": FITS[0]}
    assert host.attempt(web).score() == {"a": 0}
    host.put_object(RESOURCE, topology(TWO))
    assert host.attempt(web).filter() == {"a": MISALIGNED[0]}
    host.close()


def test_cache_takes_a_pod_off_every_zone_until_a_topology_counts_it() -> None:
    host = PluginHost(
        NodeResourceTopologyMatch,
        {"cacheResyncPeriodSeconds": 5},
        nodes=[NODE],
        objects={RESOURCE: [topology(TWO)]},
    )
    web = pod("web", "6")
    host.put_pod(pod("new", "4", node="a"))
    assert host.attempt(web).filter() == {"a": MISALIGNED[0]}
    less = {0: {"cpu": "4", "memory": "15Gi"}, 1: TWO[1]}
    host.put_object(RESOURCE, topology(less, counted=[("default", "another")]))
    assert host.attempt(web).filter() == {"a": MISALIGNED[0]}
    host.put_object(RESOURCE, topology(less, counted=[("default", "new")]))
    assert host.attempt(web).filter() == {"a": FITS[0]}
    host.close()


@pytest.mark.parametrize(
    ("detected", "cpu", "verdict"),
    [
        ("All", "1500m", Status.unschedulable(STALE)),
        ("OnlyExclusiveResources", "1500m", Status.success()),
        ("OnlyExclusiveResources", "2", Status.unschedulable(STALE)),
        ("None", "2", Status.success()),
    ],
)
def test_pod_of_another_scheduler_blocks_its_node_in_the_cache(
    detected: str, cpu: str, verdict: Status
) -> None:
    args = {"cacheResyncPeriodSeconds": 5, "cache": {"foreignPodsDetect": detected}}
    host = PluginHost(NodeResourceTopologyMatch, args, nodes=[NODE], objects={RESOURCE: [topology(TWO)]})
    host.put_pod(pod("foreign", cpu, node="a", scheduler="other"))
    assert host.attempt(pod("web", "2")).filter() == {"a": verdict}
    host.close()


async def test_pods_that_the_kubelet_does_not_align_pass_with_100(ask: Ask) -> None:
    table = make_table([NODE])
    burstable = make_pod("web", cpu=20)
    assert await ask.filter(plug(topology(TWO)), burstable, table) == FITS
    assert await ask.score(plug(topology(TWO)), burstable, table) == [100]


def test_unknown_policy_is_named() -> None:
    host = PluginHost(NodeResourceTopologyMatch, nodes=[NODE], objects={RESOURCE: [topology(TWO, "strict")]})
    attempt = host.attempt(pod("web", "2"))
    attempt.filter()
    assert attempt.pre_score() == Status(
        Code.SUCCESS,
        ("nodes with an unknown policy, which counts as none: a (topologyManagerPolicy 'strict')",),
    )
    host.close()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (by("Bogus"), 'scoringStrategy.type: Invalid value: "Bogus": invalid ScoringStrategyType'),
        ({"preemptionMode": "Often"}, 'preemptionMode: Invalid value: "Often": invalid PreemptionMode'),
        ({"cacheResyncPeriodSeconds": -1}, "cacheResyncPeriodSeconds: Invalid value: -1: must be at least 0"),
        ({"cache": {"informerMode": "Own"}}, 'cache.informerMode: Unsupported value: "Own"'),
        ({"discardReservedNodes": "yes"}, "discardReservedNodes: Invalid value"),
        ({"strategy": {}}, "strategy: Forbidden: is no argument"),
    ],
)
def test_invalid_arguments_are_refused(args: Json, text: str) -> None:
    with pytest.raises(PluginArgsError, match=text):
        NodeResourceTopologyMatch(args, NO_HANDLE)


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", "ef46db3751d8e999"),
        (b"abc", "44bc2cf5ad770999"),
        (b"Nobody inspects the spammish repetition", "fbcea83c8a378bf1"),
    ],
)
def test_hash_is_xxh64(data: bytes, hashed: str) -> None:
    assert f"{xxh64(data):016x}" == hashed
