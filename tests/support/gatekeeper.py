"""A Filter that waits for a file before it answers, and a counter of pods seen: for tests of timing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy import full, int64
from numpy.typing import NDArray
from support.waiting import PATIENCE_S


class Gatekeeper(Plugin):
    """`arrived`: written when Filter is asked; `gate`: the file it waits for; `seen`: what it saw then."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["folder"])

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        before = sorted((node.name, node.pod_count) for node in nodes)
        (self._folder / "arrived").write_text(pod.name)
        ends_s = time.monotonic() + PATIENCE_S
        while not (self._folder / "gate").exists() and time.monotonic() < ends_s:
            time.sleep(0.005)
        after = sorted((node.name, node.pod_count) for node in nodes)
        with (self._folder / "seen").open("a") as file:
            file.write(f"{pod.name} {before == after} {after}\n")
        return Status.success()


class Steady(Plugin):
    """Filter and Score over the table, with scores that come with the verdicts."""

    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.has_label("bad", "yes"), Status.unschedulable("bad node"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[int64]:
        return full(len(nodes), 50, dtype=int64)


class Holdfast(Plugin):
    """Reserves at once, then waits in Permit for a file; every call leaves a line in `calls`."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["folder"])

    def _note(self, call: str) -> None:
        with (self._folder / "calls").open("a") as file:
            file.write(f"{call}\n")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._note("reserve")
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        (self._folder / "arrived").write_text(pod.name)
        ends_s = time.monotonic() + PATIENCE_S
        while not (self._folder / "gate").exists() and time.monotonic() < ends_s:
            time.sleep(0.005)
        return Status.success()


class ClaimKeeper(Plugin):
    """PreEnqueue that lets a pod in once the claim of its name exists."""

    needs: Sequence[Need] = (Need.objects("persistentvolumeclaims"),)
    events: Sequence[EventInterest] | None = (
        EventInterest("PersistentVolumeClaim", ("add",), Hint.ASK_PLUGIN),
    )

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        found = self.handle.objects("persistentvolumeclaims").get(pod.pod.name, pod.pod.namespace)
        return Status.success() if found else Status.unresolvable("its claim is missing")

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        return self.handle.objects("persistentvolumeclaims").get(pod.name, pod.namespace) is not None
