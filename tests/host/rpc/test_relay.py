"""What is the same for every call: policy, deadline, threads, counting, and which instance is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from berth_host.attempt.call_record import CycleRecord
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.client import OWN_WORKLOAD_LABEL, PluginClient
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.hint_answer import NO_HINT
from berth_host.rpc.route import ClientSettings
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    PreBindResult,
    QueuedPod,
)
from berth_sdk.slices import Work, in_slices
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_pod
from support.relays import PROFILE, Facts, local_client, make_cycle, some_nodes


class Breaks:
    """Raises as long as `broken`."""

    broken = True

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if self.broken:
            raise ValueError("boom")
        return SUCCESS


class Slow:
    """Plain methods that wait for the test, async ones that never end."""

    def __init__(self, *_made_with: object) -> None:
        self.threads: list[str] = []
        self.both = threading.Barrier(2, timeout=60)

    async def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        await asyncio.Event().wait()
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        self.threads.append(threading.current_thread().name)
        return Verdicts.feasible(len(nodes))

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.threads.append(threading.current_thread().name)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> PreBindResult:
        self.both.wait()
        self.threads.append(threading.current_thread().name)
        return PreBindResult(SUCCESS)

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        self.threads.append(threading.current_thread().name)
        return BindResult(SUCCESS, host_binds=True)


async def test_async_method_is_cut_off_at_its_deadline() -> None:
    client = local_client(Slow(), points={"preFilter": PointPolicy(0.02)})
    got = (await client.pre_filter(make_cycle(), some_nodes())).status
    assert got == Status(Code.ERROR, ('plugin "Slow" did not answer within 20 ms at PreFilter',), "Slow")


async def test_plain_method_that_overruns_counts_and_is_named_once_it_returned() -> None:
    client = local_client(Slow(), points={"filter": PointPolicy(0.0)})
    cycle = make_cycle()
    assert (await client.filter(cycle, some_nodes())).all_passed
    assert client.stats.of("Filter").overruns == 1
    assert 'plugin "Slow" took' in cycle.account.notes[0]


async def test_plain_binding_calls_run_beside_each_other_in_threads() -> None:
    plugin = Slow()
    client = local_client(plugin)
    await asyncio.gather(client.pre_bind(make_cycle(), "n0"), client.pre_bind(make_cycle(), "n0"))
    assert all(name.startswith("berth-Slow") for name in plugin.threads)


async def test_scheduling_calls_and_async_binding_calls_stay_on_the_loop() -> None:
    plugin = Slow()
    client, cycle = local_client(plugin), make_cycle()
    await client.filter(cycle, some_nodes())
    await client.bind(cycle, "n0")
    await client.unreserve(cycle, "n0", "permit was denied")
    assert plugin.threads == ["MainThread"] * 3


async def test_unreserve_of_a_binding_cycle_runs_in_a_thread() -> None:
    plugin, cycle = Slow(), make_cycle()
    cycle.binding = True
    await local_client(plugin).unreserve(cycle, "n0", "bind failed")
    assert plugin.threads[0].startswith("berth-Slow")


class Rounds:
    """Is never satisfied."""

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> PreBindResult:
        return PreBindResult(SUCCESS, ask_again_after_s=0.0)


@pytest.mark.slow
async def test_one_deadline_covers_all_rounds_of_pre_bind() -> None:
    client = local_client(Rounds(), points={"preBind": PointPolicy(1.0)})
    cycle, rounds = make_cycle(), 0
    while (await client.pre_bind(cycle, "n0")).status.is_success:
        rounds += 1
        await asyncio.sleep(0)
    assert rounds > 1
    assert cycle.part("Rounds").rounds > rounds


def test_scope_decides_which_pods_concern_the_plugin() -> None:
    client = local_client(Breaks(), scope=lambda pod: "gpu" in pod.labels)
    assert client.in_scope(make_pod("a", labels={"gpu": "1"}))
    assert not client.in_scope(make_pod("b"))


def test_a_local_plugin_is_available_and_reachable_without_the_relay() -> None:
    client = local_client(Breaks())
    assert client.available
    assert not client.is_served
    assert client.local is not None
    assert client.local.descriptor is client.descriptor


async def test_calls_are_timed_per_plugin_and_cycle() -> None:
    client, cycle = local_client(Slow()), make_cycle()
    await client.filter(cycle, some_nodes())
    await client.filter(cycle, some_nodes())
    assert cycle.account.timings_s[("Slow", "Filter")] == pytest.approx(client.stats.of("Filter").times.total)
    assert client.stats.of("Filter").calls == 2


@pytest.mark.parametrize(("policy", "want"), [(Policy.FAIL, Code.ERROR), (Policy.IGNORE, Code.SUCCESS)])
async def test_the_policy_that_stood_in_is_counted_and_noted_where_it_hides_the_fault(
    policy: Policy, want: Code
) -> None:
    client = local_client(Breaks(), points={"reserve": PointPolicy(policy=policy)})
    cycle = make_cycle()
    assert (await client.reserve(cycle, "n0")).code is want
    counted = client.stats.of("Reserve")
    assert (counted.failures, counted.policies) == ({"raised": 1}, {policy.value: 1})
    assert len(cycle.account.notes) == (policy is Policy.IGNORE)


async def test_a_plugin_fails_until_the_call_that_failed_succeeds() -> None:
    plugin = Breaks()
    client = local_client(plugin)
    assert not client.is_failing
    await client.reserve(make_cycle(), "n0")
    assert client.is_failing
    plugin.broken = False
    await client.reserve(make_cycle(), "n0")
    assert not client.is_failing


class Away:
    """The route to a plugin in another process that is not there."""

    transport: Any = None
    absence = "is not attached"

    def __init__(self) -> None:
        self.descriptor = local_client(Breaks()).descriptor

    def for_cycle(self, cycle: CycleRecord) -> Any:
        return self.transport

    def for_batch(self, point: ExtensionPoint) -> Any:
        return self.transport

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Nothing is on trial."""

    def forget(self, asking: str) -> None:
        """Nothing is kept."""


def away(*, required: bool = False) -> PluginClient:
    return PluginClient("Breaks", PROFILE, Away(), Facts(), settings=ClientSettings(required=required))


@pytest.mark.parametrize(("required", "want"), [(True, Code.ERROR), (False, Code.SUCCESS)])
async def test_only_a_required_plugin_that_is_away_stops_the_pod(required: bool, want: Code) -> None:
    client = away(required=required)
    assert (client.available, client.is_served) == (False, True)
    assert (await client.reserve(make_cycle(), "n0")).code is want
    assert "is not attached" in client.absence.message


async def test_a_served_plugin_is_not_asked_about_its_own_workload() -> None:
    own = make_pod("a", labels={OWN_WORKLOAD_LABEL: "Breaks"})
    assert not away().in_scope(own)
    assert away().in_scope(make_pod("b", labels={OWN_WORKLOAD_LABEL: "Other"}))
    assert local_client(Breaks()).in_scope(own)


async def test_a_served_plugin_is_asked_about_its_own_workload_where_nobody_else_counts() -> None:
    own = {OWN_WORKLOAD_LABEL: "Breaks"}
    client = away()
    client.settings = replace(client.settings, left_to_it=lambda pod: "gpu" in pod.labels)
    assert client.in_scope(make_pod("a", labels={**own, "gpu": "1"}))
    assert not client.in_scope(make_pod("b", labels=own))


async def test_a_budget_that_is_spent_ends_the_call_before_it_is_made() -> None:
    class Route(Away):
        def __init__(self) -> None:
            super().__init__()
            # Nothing else on it may be called.
            self.transport = SimpleNamespace(
                conduct=None, codes=CodeLog(), is_open=True, descriptor=self.descriptor
            )

    client = PluginClient("Breaks", PROFILE, Route(), Facts())
    status = await client.reserve(make_cycle(budget_s=0.0), "n0")
    assert status.code is Code.ERROR
    assert client.stats.of("Reserve").failures == {"timeout": 1}


class Queues:
    """Has every point of the queue; `broken`: each raises."""

    broken = False
    events = (EventInterest("Node", ("add",), hint=Hint.ASK_PLUGIN),)

    def _work(self) -> None:
        if self.broken:
            raise RuntimeError("out of order")

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        self._work()
        return Status.unschedulable("not yet")

    def sort_key(self, pod: QueuedPod) -> bytes:
        self._work()
        return b"key"

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        self._work()
        return False


POD = QueuedPod(pod=make_pod("a"))
EVENT = ClusterEvent(resource="Node", action="add")


def asked_at_once(plugin: object) -> tuple[PluginClient, list[object]]:
    client = local_client(plugin)
    return client, [
        client.pre_enqueue_at_once(POD),
        client.sort_key_at_once(POD),
        client.queueing_hint_at_once(EVENT, POD.pod),
    ]


QUEUE_CALLS = ("PreEnqueue", "SortKeys", "QueueingHints")


def test_questions_of_the_queue_are_counted_and_timed_in_the_host() -> None:
    client, answers = asked_at_once(Queues())
    assert [answers[0].code, *answers[1:]] == [Code.UNSCHEDULABLE, b"key", False]  # type: ignore[attr-defined]
    assert [client.stats.of(call).calls for call in QUEUE_CALLS] == [1, 1, 1]


def test_question_of_the_queue_that_raises_follows_the_policy_and_is_counted() -> None:
    plugin = Queues()
    plugin.broken = True
    client, answers = asked_at_once(plugin)
    assert [answers[0].code, *answers[1:]] == [Code.ERROR, b"", NO_HINT]  # type: ignore[attr-defined]
    assert [client.stats.of(call).failures for call in QUEUE_CALLS] == [{"raised": 1}] * 3
    assert client.is_failing


def test_question_of_the_queue_that_overruns_its_deadline_is_counted() -> None:
    client = local_client(Queues(), points={"preEnqueue": PointPolicy(deadline_s=1e-9)})
    client.pre_enqueue_at_once(POD)
    assert client.stats.of("PreEnqueue").overruns == 1


async def test_question_that_has_to_be_awaited_is_asked_once_in_a_batch() -> None:
    class Later(Queues):
        asked = 0

        async def sort_key(self, pod: QueuedPod) -> bytes:  # type: ignore[override]
            self.asked += 1
            return b"later"

    plugin = Later()
    client = local_client(plugin)
    assert client.sort_key_at_once(POD) is None
    assert plugin.asked == 0
    assert await client.sort_keys([POD]) == [b"later"]
    assert client.stats.of("SortKeys").calls == 1


class InSlices:
    """A plain method whose work takes many turns of the loop, and longer than its deadline."""

    def __init__(self, *_made_with: object) -> None:
        self.now_s = 0.0

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts]:
        return in_slices(self._filter(nodes), clock=self._clock)

    def _filter(self, nodes: NodeTable) -> Work[Verdicts]:
        ends_s = time.monotonic() + 0.05
        while time.monotonic() < ends_s:
            yield
        return Verdicts.feasible(len(nodes))

    def _clock(self) -> float:
        self.now_s += 1.0  # every look at the clock ends a slice
        return self.now_s


async def test_deadline_does_not_cut_off_work_in_slices() -> None:
    client = local_client(InSlices(), points={"filter": PointPolicy(deadline_s=0.001)})
    verdicts = await client.filter(make_cycle(), some_nodes())
    assert [status.is_success for status in verdicts.to_list()] == [True, True, True]
    assert client.stats.of("Filter").overruns == 1
