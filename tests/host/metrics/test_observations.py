"""What a host on an embedded cluster shows on `/metrics`, compared with what kube-scheduler showed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from berth_host.config.emulation import METRICS_1_37
from berth_host.metrics import points as points_module
from berth_host.metrics.exposition import Exposition
from berth_host.queue.interfaces import QueueObserver
from berth_host.queue.reports import QueueMetrics, SortReports
from berth_sdk import Pod
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.results import PermitResult
from berth_sdk.status import SUCCESS, Code, Status
from prometheus_client.parser import text_string_to_metric_families
from support.hosts import World, node, pod
from support.served import default_plugin_server
from support.serving import recorded

RECORDED = {family["name"]: family for family in recorded("metrics")["families"]}
RENAMED = {"scheduler_resourceclaim_creates_total"}
"""1.37 has another name."""
NOT_SHOWN = RENAMED | {
    # berth has no opportunistic batch: what equal pods share is exact, and costs no node hint.
    "scheduler_batch_cache_flushed_total",
    "scheduler_get_node_hint_duration_seconds",
    "scheduler_store_schedule_results_duration_seconds",
}
PROFILE = "default-scheduler"
Series = dict[tuple[str, ...], float]


class Samples:
    """Every sample of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.families = {metric.name: metric for metric in text_string_to_metric_families(text)}
        self._samples = [sample for metric in self.families.values() for sample in metric.samples]

    def of(self, name: str, *labels: str) -> Series:
        """Values of a sample's name by the values of some labels, summed over the others."""
        found: Series = {}
        for sample in self._samples:
            if sample.name == name:
                key = tuple(sample.labels[label] for label in labels)
                found[key] = found.get(key, 0) + sample.value
        return found

    def label_values(self, name: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for sample in self.families[name.removesuffix("_total")].samples:
            for label, value in sample.labels.items():
                if label != "le":
                    found.setdefault(label, set()).add(value)
        return found


async def samples(world: World) -> Samples:
    text = await Exposition(lambda: world.host.metrics.sources).text()
    return Samples(text.decode())


class Hold:
    """Holds pods at Permit for as many seconds as their label says; then their time is over."""

    def permit(self, state: Any, pod: Pod, node_name: str) -> PermitResult | Status:
        wait = pod.labels.get("hold")
        return PermitResult(Status(Code.WAIT), float(wait)) if wait else SUCCESS


async def test_a_busy_host_shows_the_series_of_kube_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_module, "SAMPLED_SHARE", 1.0)  # else one cycle in ten, by chance
    cluster = [node("n1"), node("n2", labels={"disk": "ssd"}), pod("a"), pod("b"), pod("big", cpu="40")]
    cluster += [pod("gated", schedulingGates=[{"name": "x"}]), pod("ssd", nodeSelector={"disk": "nvme"})]
    async with World(cluster, [Hold]) as world:
        await world.settle()
        world.server.create(pod("held", labels={"hold": "5"}))
        await world.settle()
        for name in ("low-1", "low-2"):
            world.server.create(pod(name, cpu="3500m"))
        await world.settle()
        world.server.create({**_priority_class(), "metadata": {"name": "high"}, "value": 1000})
        world.server.create(pod("high", cpu="3500m", priorityClassName="high"))
        await world.settle()
        shown = await samples(world)

    for name, family in RECORDED.items():
        if family["seen"] == "default" and not name.startswith(("rest_client", "leader_election")):
            found = name.removesuffix("_total") in shown.families
            assert found != (name in NOT_SHOWN), name
    # Label values are those of kube-scheduler, as far as the same things happened.
    for name, labels in {
        "scheduler_queue_incoming_pods_total": ("event", "queue"),
        "scheduler_pending_pods": ("queue",),
        "scheduler_schedule_attempts_total": ("result",),
        "scheduler_cache_size": ("type",),
        "scheduler_event_handling_duration_seconds": ("event",),
        "scheduler_preemption_goroutines_execution_total": ("result",),
        "scheduler_permit_wait_duration_seconds": ("result",),
        "scheduler_plugin_evaluation_total": ("extension_point",),
    }.items():
        seen = RECORDED[name]["observedValues"]
        for label in labels:
            # The recording is of 1.36, which has one name for all pods without a node.
            known = {
                str(value).replace("UnschedulablePod", pods)
                for value in seen[label]
                for pods in ("UnscheduledPod", "TargetPod")
            }
            if name == "scheduler_pending_pods":
                known |= {"incomplete", "pending"}
            extra = shown.label_values(name)[label] - known
            # The victim that was marked; in the recording no pod waited for such an event. Pods wait for
            # namespaces here, which kube-scheduler does not let requeue them.
            assert extra <= {"AssignedPodUpdate", "NamespaceAdd"}, (name, extra)
    points = shown.label_values("scheduler_framework_extension_point_duration_seconds")["extension_point"]
    recorded_points = set(
        RECORDED["scheduler_framework_extension_point_duration_seconds"]["observedValues"]["extension_point"]
    )
    assert recorded_points - points <= {"Sign", "PreBind"}, recorded_points - points
    assert points <= recorded_points

    scheduled = shown.of("scheduler_schedule_attempts_total", "result")[("scheduled",)]
    assert scheduled == 5
    assert shown.of("scheduler_pod_scheduling_attempts_count")[()] == scheduled
    assert (
        sum(shown.of("scheduler_pod_scheduling_sli_duration_seconds_count", "attempts").values()) == scheduled
    )
    assert shown.of("scheduler_permit_wait_duration_seconds_count", "result").keys() == {("Unschedulable",)}
    assert shown.of("scheduler_preemption_victims_count")[()] == 1
    assert shown.of("scheduler_preemption_goroutines_execution_total", "result") == {("success",): 1}


def _priority_class() -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


async def test_tasks_of_the_loop_are_counted_by_what_they_run() -> None:
    async def lingering() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.ensure_future(lingering()) for _ in range(2)]
    try:
        async with World([node("n1")]) as world:
            shown = await samples(world)
    finally:
        for task in tasks:
            task.cancel()
    found = shown.of("berth_tasks", "coroutine")
    assert found[lingering.__qualname__,] == 2
    assert found["Scheduler.run",] == 1


async def test_size_metrics_equal_the_sizes_of_queue_and_cache() -> None:
    cluster = [node("n1"), pod("a"), pod("big", cpu="40"), pod("gated", schedulingGates=[{"name": "x"}])]
    async with World(cluster) as world:
        await world.settle()
        shown = await samples(world)
    assert shown.of("scheduler_pending_pods", "queue") == {
        ("active",): 0,
        ("backoff",): 0,
        ("gated",): 1,
        ("incomplete",): 0,
        ("pending",): 0,
        ("unschedulable",): 1,
    }
    assert shown.of("scheduler_queued_entities", "queue", "type") == {
        ("gated", "pod"): 1,
        ("unschedulable", "pod"): 1,
    }
    assert shown.of("scheduler_cache_size", "type") == {("assumed_pods",): 0, ("nodes",): 1, ("pods",): 1}
    for kind, size in (("assumed_pods", 0), ("nodes", 1), ("pods", 1)):
        assert shown.of(f"scheduler_cache_size_{kind}") == {(): size}
    assert shown.of("scheduler_unschedulable_pods", "plugin", "profile") == {
        ("NodeResourcesFit", PROFILE): 1,
        ("SchedulingGates", PROFILE): 1,
    }
    assert shown.of("berth_pending_pods", "queue", "plugin") == {
        ("unschedulable", "NodeResourcesFit"): 1,
        ("gated", "SchedulingGates"): 1,
    }
    assert shown.of("scheduler_inflight_events", "event") == {("PodPopped",): 0}
    assert shown.of("scheduler_goroutines", "operation") == {("binding",): 0}


async def test_entities_that_enter_a_queue_are_counted_beside_their_pods() -> None:
    async with World([node("n1"), pod("a"), pod("gated", schedulingGates=[{"name": "x"}])]) as world:
        await world.settle()
        told = QueueMetrics(world.host.metrics, QueueObserver(), SortReports(lambda *_: None))
        told.pod_entered("active", "UnscheduledPodAdd", 3)
        told.entity_entered("active", "UnscheduledPodAdd", "podgroup")
        shown = await samples(world)
    entities = shown.of("scheduler_queue_incoming_entities_total", "queue", "event", "type")
    assert entities == {
        ("active", "UnscheduledPodAdd", "pod"): 1,
        ("active", "UnscheduledPodAdd", "podgroup"): 1,
        ("unschedulable", "UnscheduledPodAdd", "pod"): 1,
    }
    pods = shown.of("scheduler_queue_incoming_pods_total", "queue", "event")
    assert pods["active", "UnscheduledPodAdd"] == 4


async def test_series_of_pod_groups_have_the_labels_of_kube_scheduler() -> None:
    async with World([node("n1")]) as world:
        metrics = world.host.metrics
        metrics.expose(lambda gate: True, METRICS_1_37)
        groups, preemption = metrics.groups, metrics.preemption
        groups.attempted(PROFILE, "waiting_on_preemption", 0.5)
        groups.placed(PROFILE, 0.25, entity="compositepodgroup")
        groups.preempted(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
        groups.placements_generated(PROFILE, 4)
        groups.placement_tried(PROFILE, feasible=True, seconds=0.1)
        groups.placement_tried(PROFILE, feasible=False, seconds=0.1)
        preemption.evaluated(Code.SUCCESS, 0.1, preemptor="podgroup")
        begun_s = preemption.begun(3, preemptor="podgroup", disruptions={"podgroup": 2}, budget_violations=1)
        preemption.ended(begun_s, failed=False, preemptor="podgroup")
        metrics.points(PROFILE).at[ExtensionPoint.POD_GROUP_POST_FILTER][Code.UNSCHEDULABLE].observe(0.1)
        shown = await samples(world)
    waits = {("waiting_on_preemption", PROFILE): 1}
    assert shown.of("scheduler_podgroup_schedule_attempts_total", "result", "profile") == waits
    seconds = "scheduler_podgroup_scheduling_attempt_duration_seconds_sum"
    assert shown.of(seconds, "result", "profile") == {("waiting_on_preemption", PROFILE): 0.5}
    assert shown.of("scheduler_podgroup_scheduling_algorithm_duration_seconds_sum") == {(): 0.25}
    assert shown.of("scheduler_workload_preemption_attempts_total", "result") == {
        ("UnschedulableAndUnresolvable",): 1
    }
    assert shown.of("scheduler_workload_preemption_victims_sum") == {(): 3}
    assert shown.of("scheduler_preemption_victims_count") == {(): 0}
    assert shown.of("scheduler_preemption_workload_disruptions_sum", "preemptor") == {("podgroup",): 2}
    assert shown.of("scheduler_preemption_pdb_violations_total", "preemptor") == {("podgroup",): 1}
    for part, result in (("evaluation", "Success"), ("execution", "success")):
        name = f"scheduler_preemption_{part}_duration_seconds_count"
        assert shown.of(name, "preemptor", "result") == {("podgroup", result): 1}
    assert shown.of("scheduler_generated_placements_total", "profile") == {(PROFILE,): 4}
    assert shown.of("scheduler_placement_evaluations_total", "result", "profile") == {
        ("feasible", PROFILE): 1,
        ("infeasible", PROFILE): 1,
    }
    points = "scheduler_framework_extension_point_duration_seconds_count"
    assert shown.of(points, "extension_point", "status") == {("PodGroupPostFilter", "Unschedulable"): 1}


async def test_pod_that_is_scheduled_later_leaves_no_unschedulable_plugin_and_counts_its_attempts() -> None:
    async with World([node("small", cpu="1"), pod("big", cpu="2")]) as world:
        await world.settle()
        world.server.create(node("large", cpu="8"))
        await world.settle()
        shown = await samples(world)
    assert sum(shown.of("berth_pending_pods", "queue", "plugin").values()) == 0
    assert shown.of("scheduler_unschedulable_pods", "plugin") in ({}, {("NodeResourcesFit",): 0})
    assert shown.of("scheduler_pod_scheduling_sli_duration_seconds_count", "attempts") == {("2",): 1}
    hints = shown.of("scheduler_queueing_hint_execution_duration_seconds_count", "event", "plugin", "hint")
    assert hints["NodeAdd", "NodeResourcesFit", "Queue"] == 1


async def test_plugin_evaluations_and_sampled_calls_are_counted() -> None:
    pods = [pod(f"p{i}") for i in range(20)]
    async with World([node("n1"), node("n2"), *pods]) as world:
        await world.settle()
        shown = await samples(world)
        asked = world.host.plugin_stats()["NodeResourcesFit"].of("PreFilter").calls
    part = shown.of("scheduler_plugin_evaluation_total", "extension_point", "plugin")
    assert part["Filter", "NodeResourcesFit"] == 20
    assert part["PreFilter", "NodeResourcesFit"] == 20
    assert part["Score", "NodeResourcesFit"] == 20
    # Without a preferred affinity it skips in PreScore, and has no part in Score.
    assert part["PreScore", "NodeAffinity"] == 20
    assert ("Score", "NodeAffinity") not in part
    # Equal pods share answers: fewer calls than pods.
    calls = shown.of("berth_plugin_calls_total", "extension_point", "plugin")
    assert calls["PreFilter", "NodeResourcesFit"] == asked < 20
    assert calls["Bind", "DefaultBinder"] == 20
    sampled = shown.of("scheduler_plugin_execution_duration_seconds_count", "extension_point", "plugin")
    assert sampled.get(("Bind", "DefaultBinder"), 0) <= 20


async def test_reset_sets_all_metrics_to_zero_but_gauges() -> None:
    async with World([node("n1"), pod("a"), pod("big", cpu="40")]) as world:
        await world.settle()
        world.host.metrics.clear()
        shown = await samples(world)
        assert shown.of("scheduler_schedule_attempts_total") == {}
        assert shown.of("scheduler_plugin_evaluation_total") == {}
        assert sum(shown.of("berth_plugin_calls_total").values()) == 0
        assert shown.of("scheduler_preemption_attempts_total") == {(): 0}
        assert shown.of("scheduler_pending_pods", "queue")[("unschedulable",)] == 1
        world.server.create(pod("b"))
        await world.settle()
        again = await samples(world)
        assert again.of("scheduler_schedule_attempts_total", "result") == {("scheduled",): 1}
        took_part = again.of("scheduler_plugin_evaluation_total", "plugin", "extension_point")
        assert took_part["NodeName", "Filter"] == 1


async def _hints_of_a_broken_term(emulated_version: str, configuration: str = "") -> tuple[Series, int]:
    """The hints of NodeAffinity after a node was added, and how often the pod was tried."""
    expression = {"key": "size", "operator": "Gt", "values": ["150.1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    tried = 0

    def attempted(_: object) -> None:
        nonlocal tried
        tried += 1

    objects = [node("n1"), pod("broken", affinity=affinity)]
    async with World(
        objects, configuration=configuration, emulated_version=emulated_version, on_attempt=attempted
    ) as world:
        await world.settle()
        world.server.create(node("n2", labels={"size": "200"}))
        await world.settle()
        world.clock.advance(2)
        await world.settle()
        shown = await samples(world)
        hints = shown.of("scheduler_queueing_hint_execution_duration_seconds_count", "plugin", "hint")
        return {key: count for key, count in hints.items() if key[0] == "NodeAffinity"}, tried


@pytest.mark.parametrize("emulated_version", ["", "1.36"])
async def test_hint_that_ends_in_an_error_is_shown_as_one_and_the_pod_is_tried_again(
    emulated_version: str,
) -> None:
    assert await _hints_of_a_broken_term(emulated_version) == ({("NodeAffinity", "Error"): 1}, 2)


@pytest.mark.slow
@pytest.mark.parametrize("emulated_version", ["", "1.36"])
async def test_served_hint_that_ends_in_an_error_is_shown_as_one_too(
    emulated_version: str, tmp_path: Path
) -> None:
    with default_plugin_server(tmp_path) as endpoint:
        served = (
            "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins: [{{name: NodeAffinity, endpoint: '{endpoint}'}}]\n"
        )
        hints, tried = await _hints_of_a_broken_term(emulated_version, served)
    assert hints == {("NodeAffinity", "Deferred"): 1, ("NodeAffinity", "Error"): 1}
    assert tried == 2
