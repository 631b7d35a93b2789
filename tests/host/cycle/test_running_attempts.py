"""The deletion of a pod reaches the attempt that runs for it, at every step, and no other attempt."""

from __future__ import annotations

from typing import ClassVar

from berth_host.attempt.cycle import POD_DELETED
from berth_host.cycle.running_attempts import RunningAttempts
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from support.hosts import World, node, pod


def running(world: World) -> RunningAttempts:
    """Return the attempts of the world's host."""
    host = world.host
    return RunningAttempts(host.waiting_pods, host.scheduler, host.binding)


class Holds(Plugin):
    """Holds every pod at Permit."""

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait(600.0)


async def test_a_wait_on_permit_is_rejected_once() -> None:
    async with World([node("n0"), pod("web")], [Holds]) as world:
        await world.until_waiting(1)
        (waiting,) = world.host.waiting_pods.list()
        attempts = running(world)
        assert not attempts.reject_waiting("nobody")
        assert attempts.reject_waiting(waiting.pod.uid)
        assert not attempts.reject_waiting(waiting.pod.uid)


async def test_the_binding_cycle_of_the_pod_is_aborted_while_no_cycle_runs() -> None:
    async with World([node("n0"), pod("web")], [Holds]) as world:
        await world.until_waiting(1)
        (attempt,) = world.host.binding.attempts()
        assert world.host.scheduler.in_cycle is None
        running(world).abort("nobody")
        assert not attempt.aborted
        running(world).abort(attempt.pod.uid)
        assert attempt.aborted == POD_DELETED


class Deletes(Plugin):
    """Aborts from within the cycle of the pod: another pod first, then this one."""

    world: ClassVar[World]
    aborted: ClassVar[list[str]] = []

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        attempt = self.world.host.scheduler.in_cycle
        assert attempt is not None
        for uid in ("nobody", pod.uid):
            running(self.world).abort(uid)
            self.aborted.append(attempt.aborted)
        return Status.success()


async def test_the_scheduling_cycle_is_aborted_for_its_own_pod_alone() -> None:
    Deletes.aborted.clear()
    Deletes.world = World([node("n0"), pod("web")], [Deletes])
    async with Deletes.world as world:
        await world.settle()
        assert Deletes.aborted[:2] == ["", POD_DELETED]
