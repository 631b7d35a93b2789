"""From Permit to the Binding: pods that wait, patches, binds, and how a failure undoes all of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    Cancellation,
    ObjectPatch,
    PatchOutcome,
    PatchResult,
    PermitResult,
    PreBindResult,
)
from berth_sdk.status import Status
from support.hosts import World, node, pod
from support.ledger import Ledger
from support.waiting import PATIENCE_S, until


@pytest.fixture(autouse=True)
def empty_ledger() -> None:
    Ledger.empty()


class Gang(Plugin):
    """Holds pods at Permit until three of them wait; the third lets them go."""

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        siblings = self.handle.waiting_pods(only_mine=True)
        if len(siblings) < 2:
            return PermitResult.wait(30.0, "waiting for the gang")
        for waiting in siblings:
            self.handle.allow(waiting)
        return Status.success()


@pytest.mark.slow
async def test_gang_waits_at_permit_until_its_last_member_lets_it_go() -> None:
    async with World([node("n0"), *(pod(f"p{i}") for i in range(3))], [Gang, Ledger]) as world:
        await world.settle()
        assert [world.node_of(f"p{i}") for i in range(3)] == ["n0"] * 3
        assert Ledger.unreserved == []
        assert world.clock.monotonic_s() == 0.0


async def test_incomplete_gang_times_out_is_unreserved_and_counts_nowhere() -> None:
    async with World([node("n0"), pod("p0"), pod("p1")], [Gang, Ledger]) as world:
        await world.settle()
        assert (world.node_of("p0"), world.node_of("p1")) == ("", "")
        want = "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin Gang."
        assert world.message_of("p0") == want
        await world.host.stop()
        assert len(Ledger.reserved) == len(Ledger.unreserved)
        assert world.host.cache.pod_count == 0


async def test_pod_deleted_while_it_waits_at_permit_is_unreserved_and_gone() -> None:
    class Holds(Plugin):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
            return PermitResult.wait(600.0)

    async with World([node("n0"), pod("web")], [Holds, Ledger]) as world:
        await world.until_waiting(1)
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="web"))
        await world.settle()
        assert Ledger.unreserved == ["web"]
        assert world.host.cache.pod_count == 0
        assert len(world.host.waiting_pods) == 0
        assert world.everything_is_accounted_for()


def statuses_written(world: World, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list of the patches of the pod's status from now on."""
    sent: list[dict[str, Any]] = []
    patch = world.cluster.patch

    async def noted(resource: str, ref: ObjectRef, body: dict[str, Any], **more: Any) -> KubeObject:
        if resource == "pods" and more.get("subresource") == "status":
            sent.append(body["status"])
        return await patch(resource, ref, body, **more)

    monkeypatch.setattr(world.cluster, "patch", noted)
    return sent


@pytest.mark.parametrize("finalizers", [[], ["example.com/hold"]])
async def test_status_of_a_pod_deleted_at_permit_is_written_as_kube_scheduler_does(
    finalizers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holds(Plugin):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
            return PermitResult.wait(600.0)

    web = pod("web")
    web["metadata"]["finalizers"] = finalizers
    async with World([node("n0"), web], [Holds]) as world:
        ref = ObjectRef(namespace="default", name="web")
        await until(lambda: shown(world.pod("web"), "status.nominatedNodeName") == "n0")
        await world.until_waiting(1)
        sent = statuses_written(world, monkeypatch)
        await world.cluster.delete("pods", ref)
        await world.settle()
        (status,) = sent
        (condition,) = status["conditions"]
        # Of a pod that is gone, kube-scheduler has the version that it popped, of one that stays the newest.
        assert condition["observedGeneration"] == (2 if finalizers else 1)
        if not finalizers:
            assert condition["reason"] == "Unschedulable"
            assert condition["message"] == "0/1 nodes are available: 1 removed."
        assert ("nominatedNodeName" in status) == bool(finalizers)
        left = world.pod("web")
        assert (left is not None) == bool(finalizers)
        assert shown(left, "status.nominatedNodeName") is None
        assert shown(left, "metadata.generation") == (2 if finalizers else None)


def shown(item: KubeObject | None, path: str) -> Any:
    return None if item is None else item.get(path)


async def test_binder_that_claims_success_without_binding_is_found_out() -> None:
    class Liar(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> Status:
            return Status.success()

    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    bind:
      enabled: [{name: Liar}]
      disabled: [{name: "*"}]
    reserve:
      enabled: [{name: Ledger}]
"""
    async with World([node("n0"), pod("web")], [Liar, Ledger], configuration=configuration) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert "the pod is not bound to n0" in world.message_of("web")
        stats = world.host.plugin_stats()["Liar"]
        assert stats.violations == stats.of("Bind").failures["violation"] == 5
        assert len(Ledger.reserved) == len(Ledger.unreserved) == 5
        assert world.everything_is_accounted_for()


async def test_binder_may_be_ahead_of_the_cluster() -> None:
    worlds: list[World] = []

    class Late(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> Status:
            cluster, clock = worlds[0].host.cluster, worlds[0].clock
            due_s = clock.monotonic_s() + 3.0
            clock.call_at(
                due_s, lambda: tasks.append(asyncio.ensure_future(cluster.bind(pod.ref, node_name)))
            )
            return Status.success()

    tasks: list[asyncio.Future[None]] = []
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {bind: {enabled: [{name: Late}], disabled: [{name: "*"}]}}
"""
    async with World([node("n0"), pod("web")], [Late], configuration=configuration) as world:
        worlds.append(world)
        await world.settle()
        assert world.node_of("web") == "n0"
        assert world.message_of("web") == ""
        assert len(tasks) == world.host.binding.bound_count == 1


async def test_all_binders_that_skip_leave_the_pod_unbound_and_retried() -> None:
    class Passes(Plugin):
        def bind(self, state: object, pod: Pod, node_name: str) -> BindResult:
            return BindResult(Status.skip())

    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {bind: {enabled: [{name: Passes}], disabled: [{name: "*"}]}}
"""
    async with World([node("n0"), pod("web")], [Passes], configuration=configuration) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert world.message_of("web") == ""
        diagnosis = world.host.diagnoses.find("default/web")
        assert diagnosis is not None
        assert diagnosis.message == "every Bind plugin skipped the pod"
        assert world.everything_is_accounted_for()


@pytest.mark.slow
async def test_pre_bind_patches_are_applied_in_rounds_until_it_is_satisfied() -> None:
    class Annotates(Plugin):
        needs: Sequence[Need] = (Need.nodes(),)
        rounds: ClassVar[list[list[PatchOutcome]]] = []

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            self.rounds.append([item.outcome for item in patched])
            if patched:
                return PreBindResult(Status.success())
            patch = {"metadata": {"annotations": {"example.com/gpu": "3"}}}
            mine = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=patch)
            return PreBindResult(Status.success(), patches=(mine,))

    async with World([node("n0"), pod("web")], [Annotates]) as world:
        await world.settle()
        found = world.pod("web")
        assert found is not None
        assert found.get("metadata.annotations") == {"example.com/gpu": "3"}
        assert world.node_of("web") == "n0"
        assert Annotates.rounds == [[], [PatchOutcome.APPLIED]]


async def test_patch_on_an_undeclared_kind_never_reaches_the_cluster() -> None:
    class Meddles(Plugin):
        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            ref = ObjectRef(namespace="default", name="claim")
            patch = ObjectPatch(resource="persistentvolumeclaims", ref=ref, merge_patch={"x": 1})
            return PreBindResult(Status.success(), patches=(patch,))

    async with World([node("n0"), pod("web")], [Meddles, Ledger]) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert "persistentvolumeclaims" in world.message_of("web")
        assert len(Ledger.reserved) == len(Ledger.unreserved)


async def test_pre_bind_that_asks_to_be_called_again_waits_on_the_hosts_clock() -> None:
    class Patient(Plugin):
        calls: ClassVar[list[str]] = []

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            self.calls.append(pod.name)
            return PreBindResult(Status.success(), ask_again_after_s=5.0 if len(self.calls) < 3 else None)

    async with World([node("n0"), pod("web")], [Patient]) as world:
        await world.settle()
        assert (world.node_of("web"), len(Patient.calls)) == ("n0", 3)
        assert world.clock.monotonic_s() == 10.0


async def test_stop_in_the_middle_of_binding_cycles_undoes_them() -> None:
    class Holds(Plugin):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
            return PermitResult.wait(600.0)

    async with World([node("n0"), pod("a"), pod("b")], [Holds, Ledger]) as world:
        await world.until_waiting(2)
    assert sorted(Ledger.unreserved) == ["a", "b"]
    assert world.host.cache.pod_count == 0


class HoldsPreBind(Plugin):
    """PreBind does not return until the test says so."""

    arrived: ClassVar[asyncio.Event]
    goes_on: ClassVar[asyncio.Event]

    @classmethod
    def hold(cls) -> None:
        """Before a test: no call has arrived."""
        cls.arrived, cls.goes_on = asyncio.Event(), asyncio.Event()

    async def pre_bind(
        self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        self.arrived.set()
        await self.goes_on.wait()
        return PreBindResult(Status.success())


@pytest.fixture
async def in_pre_bind() -> AsyncIterator[World]:
    """Yield a pod in PreBind."""
    HoldsPreBind.hold()
    async with World([node("n0"), pod("web")], [HoldsPreBind, Ledger]) as world:
        await HoldsPreBind.arrived.wait()
        yield world
        HoldsPreBind.goes_on.set()


async def test_cancellation_of_a_cycle_that_is_over_has_no_effect(in_pre_bind: World) -> None:
    (attempt,) = in_pre_bind.host.binding.attempts()
    binding, uid = in_pre_bind.host.binding, attempt.pod.uid
    assert binding.cancel(uid, "an earlier one", "made room") is Cancellation.STALE_CYCLE
    assert binding.cancel("nobody", "", "made room") is Cancellation.NOT_IN_PRE_BIND
    HoldsPreBind.goes_on.set()
    await in_pre_bind.settle()
    assert in_pre_bind.node_of("web") == "n0"
    assert Ledger.unreserved == []


async def test_a_pod_in_pre_bind_can_be_preempted_once(in_pre_bind: World) -> None:
    (attempt,) = in_pre_bind.host.binding.attempts()
    binding, uid = in_pre_bind.host.binding, attempt.pod.uid
    cycle_id = attempt.cycle_id
    assert binding.cancel(uid, cycle_id, "made room") is Cancellation.CANCELLED
    assert not binding.preempt_pod(uid, "made room")
    HoldsPreBind.goes_on.set()
    await in_pre_bind.settle()
    assert Ledger.unreserved == ["web"]
    assert in_pre_bind.node_of("web") == "n0"  # at the next attempt


async def test_a_binding_cycle_counts_as_active_unless_it_waits_for_a_decision(in_pre_bind: World) -> None:
    binding = in_pre_bind.host.binding
    assert (len(binding), binding.active_count) == (1, 1)
    assert [queued.pod.name for queued in binding.queued()] == ["web"]


@pytest.mark.parametrize("point", ["permit", "pre_bind"])
async def test_a_binding_cycle_that_is_undone_after_its_wait_counts_as_active(point: str) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Waits(Plugin):
        def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
            return Status.success()

        def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
            begun.set()
            assert goes_on.wait(PATIENCE_S)

        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
            return PermitResult.wait(600.0) if point == "permit" else Status.success()

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            return PreBindResult(Status.success(), ask_again_after_s=600.0)

    async with World([node("n0"), pod("web")], [Waits]) as world:
        binding = world.host.binding
        await until(lambda: len(binding) == 1 and binding.active_count == 0)
        binding.attempts()[0].abort("made room")
        await until(begun.is_set)
        assert binding.active_count == 1
        goes_on.set()


async def test_pod_deleted_while_its_attempt_is_undone_is_unreserved_at_every_plugin() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()
    undone: list[str] = []

    class SlowToUndo(Plugin):
        def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
            return Status.success()

        async def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
            begun.set()
            await goes_on.wait()
            undone.append(pod.name)

        def pre_bind(
            self, state: object, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            return PreBindResult(Status.error("cannot prepare"))

    async with World([node("n0"), pod("web")], [Ledger, SlowToUndo]) as world:
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        world.server.delete("pods", ObjectRef(name="web", namespace="default"))
        await until(lambda: world.host.objects.pod("default/web") is None)
        goes_on.set()
        await world.settle()
    assert undone == ["web"]
    assert Ledger.unreserved == ["web"]


async def test_a_drain_sends_back_a_pod_that_waits_and_awaits_one_that_binds(in_pre_bind: World) -> None:
    binding = in_pre_bind.host.binding
    assert not await binding.drain(0.0)
    HoldsPreBind.goes_on.set()
    assert await binding.drain(PATIENCE_S)
    assert (binding.bound_count, len(binding)) == (1, 0)


async def test_a_pod_without_a_binding_cycle_has_nothing_to_abort(in_pre_bind: World) -> None:
    binding = in_pre_bind.host.binding
    (attempt,) = binding.attempts()
    assert not binding.abort_pod("nobody")
    assert binding.abort_pod(attempt.pod.uid)
    assert attempt.aborted


async def test_pod_is_bound_after_the_condition_of_its_last_failure_is_written() -> None:
    """Written after the Binding, the condition would say for ever that the pod has no node."""
    world = World([pod("web")], faults=Faults(turns=0, reorder=False))
    assert world.faulty is not None
    gate = world.faulty.gate("patch")
    async with world:
        await gate.arrived.wait()
        world.server.create(node("n0"))

        def is_binding() -> bool:
            world.clock.advance(1.0)  # the pod backs off
            return bool(world.host.binding.active_count or world.node_of("web"))

        await until(is_binding)
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.node_of("web") == ""
        gate.open.set()
        await world.settle()
        assert world.node_of("web") == "n0"
        bound = world.pod("web")
        assert bound is not None
        scheduled = {one["type"]: one["status"] for one in bound.get("status.conditions")}
        assert scheduled["PodScheduled"] == "True"
        assert [call for call, key in world.faulty.done if key == "default/web"] == ["patch", "bind"]
