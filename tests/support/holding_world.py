"""A cluster with a pod in each state that a scheduler knows, and a plugin on either transport that holds two.

Used by the tests of `/berth/v1` and of `kubectl berth`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from berth_host.explain.diagnosis import Outcome
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult, QueuedPod
from berth_sdk.status import Status
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.waiting import PATIENCE_S

TRANSPORTS: Final = ("in_process", "socket")
WAIT_S: Final = 60.0
TAINT: Final = {"key": "team", "value": "ml", "effect": "NoSchedule"}


class Holding(Plugin):
    """Keeps pods labelled `gate` out of the queue, and those labelled `hold` at Permit."""

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        return Status.unschedulable("no budget left") if "gate" in pod.pod.labels else Status.success()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait(WAIT_S) if "hold" in pod.labels else Status.success()


def everything() -> list[dict[str, Any]]:
    """Two small nodes and a tainted one, and a pod for each state."""
    return [
        node("small-0", cpu="2"),
        node("small-1", cpu="4"),
        node("tainted", cpu="64", taints=[TAINT]),
        pod("old", nodeName="small-1"),
        pod("web"),
        pod("huge", cpu="6"),
        pod("gated", schedulingGates=[{"name": "example.com/approval"}]),
        pod("elsewhere", schedulerName="other"),
        pod("held", labels={"hold": "yes"}),
        pod("kept-out", labels={"gate": "closed"}),
    ]


@asynccontextmanager
async def holding_world(transport: str, folder: Path) -> AsyncIterator[World]:
    """All of it, scheduled until nothing moves but the pod that waits on Permit."""
    if transport == "in_process":
        async with World(everything(), [Holding]) as world:
            await _until_quiet(world)
            yield world
        return
    async with plugin_process(folder / "p.sock", "support.holding_world:Holding") as process:
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins: {preEnqueue: {enabled: [{name: Holding}]}, permit: {enabled: [{name: Holding}]}}\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
            f"plugins:\n- {{name: Holding, endpoint: '{process.endpoint}', required: true,"
            " points: {preEnqueue: {deadline: 10s}, permit: {deadline: 10s, policy: Fail}}}\n"
        )
        async with World(everything(), configuration=text, is_patient=False) as world:
            await _until_quiet(world)
            yield world


async def _until_quiet(world: World) -> None:
    """Without moving the clock: Permit's time must not run out."""
    async with asyncio.timeout(PATIENCE_S):
        while not (
            world.node_of("web")
            and any(attempt.diagnosis.outcome is Outcome.WAITING for attempt in world.host.binding.attempts())
            and _is_parked(world, "huge")
            and _is_parked(world, "kept-out")
        ):
            await asyncio.sleep(0.001)


def _is_parked(world: World, name: str) -> bool:
    found = world.host.queue.places.find(f"default/{name}")
    # A gate that answers later is closed meanwhile, without a word.
    return found is not None and (not found[1].is_gated or bool(found[1].gating_message))
