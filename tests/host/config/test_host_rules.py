"""The host's own behaviour in each version of kube-scheduler: names of events, rules of the queue,
retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from berth_host.config.emulation import EMULATIONS, NO_EMULATION
from berth_host.config.host_rules import RULES_1_36, RULES_1_37, HostRules
from berth_host.errors.cluster import ConflictError, RepeatableError
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import GateQuestion, QueueConfig
from berth_host.queue.registrations import Registration
from berth_sdk import Pod
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, UNSCHEDULED_POD, ActionType
from berth_sdk.kube_object import ObjectRef
from berth_sdk.results import PermitResult
from berth_sdk.status import SUCCESS, Code, Status
from support.hosts import World, node, pod
from support.queue_parts import Plugins, QueueBench, a_pod

HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
BOTH = pytest.mark.parametrize(
    ("rules", "version"), [(RULES_1_37, ""), (RULES_1_36, "1.36")], ids=["1.37", "1.36"]
)


def test_each_version_has_its_rules() -> None:
    assert NO_EMULATION.rules == RULES_1_37
    # The rows of the table of differences switch these.
    assert EMULATIONS["1.37"].rules == replace(
        RULES_1_37, counts_empty_budgets=False, looks_before_binding=False
    )
    assert EMULATIONS["1.36"].rules == replace(
        RULES_1_36,
        counts_totals_of_resizes=False,
        ends_count_at_broken_budget=False,
        counts_empty_budgets=False,
        looks_before_binding=False,
    )


# --- names of events -----------------------------------------------------------------------------------


def test_labels_of_arrivals_are_those_of_the_version() -> None:
    assert (RULES_1_37.pod_add, RULES_1_37.late_pod_add) == ("UnscheduledPodAdd", "UnscheduledPodAdd")
    assert (RULES_1_36.pod_add, RULES_1_36.late_pod_add) == ("UnschedulablePodAdd", "UnschedulablePodUpdate")


@pytest.mark.parametrize(
    ("resource", "matched"),
    [
        ("Pod", {ASSIGNED_POD, UNSCHEDULED_POD, TARGET_POD}),
        (ASSIGNED_POD, {ASSIGNED_POD}),
        (UNSCHEDULED_POD, {UNSCHEDULED_POD}),
        (TARGET_POD, {TARGET_POD}),
        ("Node", set()),
    ],
)
def test_registration_for_pods_matches_all_their_parts_and_a_narrow_one_its_own(
    resource: str, matched: set[str]
) -> None:
    registration = Registration(resource=resource, action=int(ActionType.ALL))
    parts = (ASSIGNED_POD, UNSCHEDULED_POD, TARGET_POD)
    found = {part for part in parts if registration.matches(QueueEvent(part, ActionType.UPDATE_POD_LABEL))}
    assert found == matched


def test_registration_for_any_update_matches_a_pod_that_grows_and_one_for_growth_nothing_else() -> None:
    grows = QueueEvent(TARGET_POD, ActionType.UPDATE_POD_SCALE_UP)
    assert Registration(resource="Pod", action=int(ActionType.UPDATE)).matches(grows)
    narrow = Registration(resource=TARGET_POD, action=int(ActionType.UPDATE_POD_SCALE_UP))
    assert narrow.matches(grows)
    assert not narrow.matches(QueueEvent(TARGET_POD, ActionType.UPDATE))
    assert not narrow.matches(QueueEvent(TARGET_POD, ActionType.UPDATE_POD_SCALE_DOWN))


@BOTH
async def test_labels_reach_metrics_and_history(rules: HostRules, version: str) -> None:
    async with World([node("n1"), pod("big", cpu="40")], emulated_version=version) as world:
        await world.settle()
        ref = ObjectRef(name="big", namespace="default")
        world.server.patch("pods", ref, {"metadata": {"labels": {"a": "1"}}})
        await world.settle()
        handled = {labels[0] for labels, _ in world.host.metrics.event_durations.items()}
        found = world.host.diagnoses.find("default/big")
        entered = {labels[0] for labels, _ in world.host.metrics.incoming_pods.items()}
    assert found is not None
    assert found.history[0][1:] == ("active", rules.pod_add)
    assert rules.pod_add in entered
    # The handling of an update does not tell the waiting pod itself from others.
    assert f"{rules.unscheduled_pod}UpdatePodLabel" in handled
    assert not any(label.startswith("TargetPod") for label in handled)


# --- nominations and flushes ------------------------------------------------------------------------------


def closed(question: GateQuestion) -> Status:
    return Status.unresolvable("closed")


def gated_bench(rules: HostRules) -> QueueBench:
    plugins = Plugins(registrations={"Gate": []}, gates={"Gate": closed})
    return QueueBench(plugins, QueueConfig(rules=rules))


@BOTH
def test_nomination_of_a_gated_pod_counts_at_once_since_1_37(rules: HostRules, version: str) -> None:
    bench = gated_bench(rules)
    bench.queue.add(bench.pods.put(a_pod("a", nominated_node="n1")))
    assert bench.pool == ["a"]
    nominated = {name: [one.name for one in pods] for name, pods in bench.queue.nominated_pods().items()}
    assert nominated == ({} if version == "1.36" else {"n1": ["a"]})


def test_cleared_nomination_is_kept_under_no_name() -> None:
    bench = QueueBench()
    given = bench.pods.put(a_pod("a", nominated_node="n1"))
    bench.queue.add(given)
    bench.queue.nominate(given, "")
    assert bench.queue.nominated_pods() == {}
    assert bench.queue.nominated_to("") == []


@BOTH
def test_gated_pod_is_flushed_every_five_minutes_since_1_37_and_every_time_before(
    rules: HostRules, version: str
) -> None:
    bench = gated_bench(rules)
    bench.add("a")
    bench.clock.advance(301)
    flushed = []
    for _ in range(12):  # as often as the timer does
        flushed.append(bench.queue.flush_leftover())
        bench.clock.advance(30)
    assert flushed == ([1] * 12 if version == "1.36" else [1, *[0] * 10, 1])


def test_pod_that_was_flushed_waits_a_whole_period_after_its_attempt() -> None:
    bench = QueueBench()
    info = bench.parked("a", "Fit")
    bench.clock.advance(301)
    assert bench.queue.flush_leftover() == 1
    assert info.was_flushed_from_unschedulable
    bench.reject(bench.pop(), "Fit")
    assert info.flushed_at_us is None
    bench.clock.advance(299)
    assert bench.queue.flush_leftover() == 0
    bench.clock.advance(2)
    assert bench.queue.flush_leftover() == 1


# --- victims and Bindings ---------------------------------------------------------------------------------


class Hold:
    """Holds pods with the label `hold` at Permit."""

    def permit(self, state: Any, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult(Status(Code.WAIT), 600.0) if pod.labels.get("hold") else SUCCESS


@BOTH
async def test_preemptor_whose_victim_lost_only_its_reservation_is_activated_since_1_37(
    rules: HostRules, version: str
) -> None:
    cluster = [HIGH, node("n1", cpu="4"), pod("low", cpu="3", labels={"hold": "1"})]
    async with World(cluster, [Hold], emulated_version=version) as world:
        await world.until_waiting(1)
        activated: list[str] = []
        activate = world.host.queue.activate

        def noted(pods: Iterable[Pod]) -> None:
            found = list(pods)
            activated.extend(one.name for one in found)
            activate(found)

        world.host.queue.activate = noted  # type: ignore[method-assign]
        world.server.create(pod("high", cpu="3", priorityClassName="high"))
        await world.settle()
        assert activated == (["high"] if rules.activates_after_undone_victim else [])
        (event,) = (one for one in world.server.events.recent if one.reason == "Preempted")
        assert (event.related is not None) is rules.relates_victims
        world.clock.advance(15)
        await world.settle()
        assert world.node_of("high") == "n1"


class Flaky:
    """Fails the first `count` Bindings of the cluster."""

    def __init__(self, world: World, count: int, kind: type[Exception]) -> None:
        self.calls = 0
        bind = world.cluster.bind

        async def failing(pod: ObjectRef, node_name: str) -> None:
            self.calls += 1
            if self.calls <= count:
                raise kind("pods", pod.key, "not now")
            await bind(pod, node_name)

        world.cluster.bind = failing  # type: ignore[method-assign]


@BOTH
@pytest.mark.parametrize("kind", [RepeatableError, ConflictError])
async def test_binding_is_sent_again_in_the_same_attempt_since_1_37(
    rules: HostRules, version: str, kind: type[Exception]
) -> None:
    async with World([node("n1")], emulated_version=version) as world:
        flaky = Flaky(world, 2, kind)
        world.server.create(pod("a"))
        await world.settle()
        found = world.host.diagnoses.find("default/a")
        assert found is not None
        is_repeated = rules.retries_bind and kind is RepeatableError
        assert (flaky.calls, world.node_of("a")) == (3, "n1")
        assert found.attempt == (1 if is_repeated else 3)
