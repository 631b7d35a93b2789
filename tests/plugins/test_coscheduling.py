"""Coscheduling under the whole host: the groups of scheduler-plugins' own examples, whole or not at all.

With the plugin in the host's process, and served by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from berth_plugins.coscheduling import Coscheduling
from berth_sdk.errors import PluginArgsError
from berth_sdk.gang_policy import TIMEOUT_ANNOTATION
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sdk.pod_group import COSCHEDULING, PodGroup, group_key
from berth_sdk.results import QueuedPod
from berth_sdk.testing import PluginHost, make_pod
from berth_sdk.testing.handle import RecordingHandle
from support.coscheduling import COSCHEDULING_PROFILE, served_coscheduling, their_group
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.waiting import until

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort:
      enabled: [{name: Coscheduling}]
      disabled: [{name: "*"}]
    preFilter: {enabled: [{name: Coscheduling}]}
    postFilter: {enabled: [{name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: Coscheduling
    args: {permitWaitingTimeSeconds: 10, podGroupBackoffSeconds: 0}
"""
"""As the documentation of coscheduling enables it."""


@pytest.fixture(params=["in_process", "socket"])
def cluster(request: pytest.FixtureRequest) -> Callable[..., World]:
    """Return a function that makes a `World` whose host schedules the groups."""
    more = ""
    if request.param == "socket":
        more = served_coscheduling(request.getfixturevalue("plugin_server"))

    def make(objects: Sequence[dict[str, Any]], configuration: str = COSCHEDULING_PROFILE) -> World:
        return World(objects, configuration=configuration + more)

    return make


def members(count: int, of: str = "nginx", **more: Any) -> list[dict[str, Any]]:
    """Return the pods of coscheduling's example: 3 cpus each."""
    return [pod(f"{of}-{i}", cpu="3", labels={COSCHEDULING_LABEL: of}, **more) for i in range(count)]


def placed(world: World) -> list[str]:
    return sorted(item.ref.name for item in world.server.list("pods") if item.get("spec.nodeName"))


@pytest.mark.parametrize(
    "configuration", [PROFILE, COSCHEDULING_PROFILE], ids=["point by point", "multiPoint"]
)
@pytest.mark.parametrize(("minimum", "want"), [(3, 3), (4, 0)])
async def test_group_of_the_example_starts_with_its_minimum_or_not_at_all(
    cluster: Callable[..., World], configuration: str, minimum: int, want: int
) -> None:
    objects = [
        node("n1", cpu="9"),
        their_group("nginx", scheduleTimeoutSeconds=10, minMember=minimum),
        *members(6),
    ]
    async with cluster(objects, configuration) as world:
        await world.settle()
        assert len(placed(world)) == want
        assert world.everything_is_accounted_for()
        stored = world.server.get(
            "scheduling.x-k8s.io/podgroups", ObjectRef(name="nginx", namespace="default")
        )
        assert stored is not None
        assert stored.get("status.phase") == "Scheduling"


async def test_members_wait_for_the_group_and_for_enough_of_them(cluster: Callable[..., World]) -> None:
    async with cluster([node("n1", cpu="9"), *members(2)]) as world:
        await world.settle()
        assert placed(world) == []
        world.server.create(their_group("nginx", minMember=3))
        await world.settle()
        assert placed(world) == []
        world.server.create(pod("late", cpu="3", labels={COSCHEDULING_LABEL: "nginx"}))
        await world.settle()
        assert placed(world) == ["late", "nginx-0", "nginx-1"]


async def test_group_whose_min_resources_are_not_there_is_not_tried(cluster: Callable[..., World]) -> None:
    wanted = their_group("nginx", minMember=1, minResources={"cpu": "12", "memory": "1Gi"})
    async with cluster([node("n1", cpu="9"), wanted, *members(2)]) as world:
        await world.settle()
        assert placed(world) == []
        assert "resource gap: cpu 3000m" in world.message_of("nginx-0")
        world.server.create(node("n2", cpu="3"))
        await world.settle()
        assert placed(world) == ["nginx-0", "nginx-1"]


async def test_two_groups_that_each_need_more_than_half_do_not_block_each_other(
    cluster: Callable[..., World],
) -> None:
    one, two = members(4, "one"), members(4, "two")
    mixed = [item for pair in zip(one, two, strict=True) for item in pair]
    objects = [node("n1", cpu="15"), their_group("one", minMember=4), their_group("two", minMember=4), *mixed]
    async with cluster(objects) as world:
        await world.settle()
        assert placed(world) == [f"one-{i}" for i in range(4)]
        for i in range(4):
            world.server.delete("pods", ObjectRef(name=f"one-{i}", namespace="default"))
        await world.settle()
        assert placed(world) == [f"two-{i}" for i in range(4)]


async def test_group_has_the_priority_of_its_members(cluster: Callable[..., World]) -> None:
    objects = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
            "preemptionPolicy": "Never",  # so that the order in the queue alone decides
        },
        node("n1", cpu="6"),
        their_group("low", minMember=2),
        their_group("high", minMember=2),
        *members(2, "low"),
        *members(2, "high", priorityClassName="high"),
    ]
    async with cluster(objects) as world:
        await world.settle()
        assert placed(world) == ["high-0", "high-1"]


async def test_pods_without_a_label_are_plain_pods(cluster: Callable[..., World]) -> None:
    async with cluster([node("n1", cpu="9"), pod("web")]) as world:
        await world.settle()
        assert placed(world) == ["web"]


@pytest.mark.parametrize("name", ["permitWaitingTimeSeconds", "podGroupBackoffSeconds"])
@pytest.mark.parametrize("value", [-1, "soon", True], ids=str)
def test_malformed_arguments_are_refused(name: str, value: object) -> None:
    with pytest.raises(PluginArgsError, match=name):
        PluginHost(Coscheduling, {name: value})


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(PluginArgsError, match="deniedPGExpirationTimeSeconds: Forbidden: is no argument"):
        PluginHost(Coscheduling, {"deniedPGExpirationTimeSeconds": 3})


@pytest.mark.parametrize(
    ("spec", "annotations", "want_s"),
    [
        pytest.param({}, {}, 10.0, id="argument"),
        pytest.param({"scheduleTimeoutSeconds": 20}, {}, 20.0, id="field"),
        pytest.param({"scheduleTimeoutSeconds": 20}, {TIMEOUT_ANNOTATION: "30s"}, 30.0, id="annotation"),
        pytest.param({"scheduleTimeoutSeconds": 20}, {TIMEOUT_ANNOTATION: "-1s"}, 20.0, id="refused"),
    ],
)
def test_wait_at_permit_is_that_of_the_annotation_then_of_the_field(
    spec: dict[str, Any], annotations: dict[str, str], want_s: float
) -> None:
    raw = their_group("nginx", **spec)
    raw["metadata"]["annotations"] = annotations
    handle = RecordingHandle(lambda: None, {})  # type: ignore[arg-type, return-value]  # reads no nodes
    plugin = Coscheduling({"permitWaitingTimeSeconds": 10}, handle)
    assert plugin.waiting_s(PodGroup.of(raw)) == want_s


def test_arguments_of_gang_scheduling_are_taken_from_the_host() -> None:
    handle = RecordingHandle(lambda: None, {})  # type: ignore[arg-type, return-value]  # reads no nodes
    plugin = Coscheduling({"gangPolicy": {"timeoutSeconds": 7, "repair": "Evict"}}, handle)
    assert plugin.waiting_s(PodGroup.of(their_group("g", minMember=1))) == 60.0, "its own wait"
    with pytest.raises(PluginArgsError, match="repair: Invalid value"):
        Coscheduling({"gangPolicy": {"repair": "evict"}}, handle)
    with pytest.raises(PluginArgsError, match="gangPolicy: Invalid value"):
        Coscheduling({"gangPolicy": "Evict"}, handle)


def test_older_groups_of_equal_priority_come_first() -> None:
    host = PluginHost(Coscheduling)
    old, new = (
        QueuedPod(
            pod=make_pod(name),
            added_at_s=added_s,
            group=PodGroup.of(their_group(name) | {"metadata": {"name": name, "creationTimestamp": made}}),
        )
        for name, added_s, made in (
            ("old", 9.0, "2026-01-01T00:00:00Z"),
            ("new", 1.0, "2026-01-02T00:00:00Z"),
        )
    )
    plain = QueuedPod(pod=make_pod("plain", priority=1), added_at_s=1e10)
    assert [found.name for found in host.order([new, old, plain])] == ["plain", "old", "new"]


async def test_served_plugin_that_comes_late_takes_the_pods_that_are_there_as_members(tmp_path: Path) -> None:
    socket = tmp_path / "late.sock"
    objects = [node("n1", cpu="9"), their_group("nginx", minMember=3), *members(3)]
    text = COSCHEDULING_PROFILE + served_coscheduling(f"unix://{socket}")
    async with World(objects, configuration=text) as world:
        await world.settle()
        assert placed(world) == []
        async with plugin_process(socket, "berth_plugins.coscheduling:Coscheduling"):
            await until(lambda: not world.host.absent_plugins())
            await world.settle()
            assert placed(world) == ["nginx-0", "nginx-1", "nginx-2"]
            state = world.host.cache.groups.state(group_key(COSCHEDULING, "default", "nginx"))
            assert state is not None
            assert len(state.assigned) == 3
            stored = world.server.get(
                "scheduling.x-k8s.io/podgroups", ObjectRef(name="nginx", namespace="default")
            )
            assert stored is not None
            assert stored.get("status.phase") == "Scheduling"
