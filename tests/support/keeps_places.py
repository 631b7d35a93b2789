"""A plugin that keeps places for the pods of a team: it nominates them from their leader's PostFilter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PostFilterResult, QueuedPod
from berth_sdk.status import Status

HELD, LEADER = "held", "leader"
"""Labels: of a member that is not let into the queue yet, and of the pod whose PostFilter keeps places."""


class KeepsPlaces(Plugin):
    """The member called as the label `leader` says gets the nodes named there, one after the other.

    `args`: `folder`, where what was asked and answered is written down.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"
        self._members: dict[str, Pod] = {}

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Members wait until they are let in."""
        self._members[pod.pod.name] = pod.pod
        return Status.unschedulable("waits for its team") if HELD in pod.pod.labels else Status.success()

    async def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Leaders alone know what to do: `<member>.<node>.<node>...`, and none to take it back."""
        if LEADER in pod.labels:
            member, *nodes = pod.labels[LEADER].split(".")
            await asyncio.to_thread(self._keep, self._members[member], nodes)
        return PostFilterResult(Status.unschedulable("has no place itself"))

    def _keep(self, member: Pod, nodes: list[str]) -> None:
        self._write("before", self._nominated())
        for name in nodes or [""]:
            self._write(f"{member.name} to {name or 'none'}", self.handle.nominate(member, name).name)
        self._write("nobody", self.handle.nominate(Pod(name="nobody", uid="nobody"), "n0").name)
        self._write("after", self._nominated())
        self._write("on n0", len(self.handle.list_nominated_pods(["n0", "nowhere", "n0"])))
        self._write("on none", len(self.handle.list_nominated_pods([])))

    def _nominated(self) -> str:
        items = self.handle.list_nominated_pods()
        return " ".join(f"{item.pod.name}@{item.node_name}/{item.pod.nominated_node}" for item in items)

    def _write(self, *words: object) -> None:
        with self._path.open("a") as log:
            log.write(": ".join(str(word) for word in words).rstrip() + "\n")


class TakesStatus(KeepsPlaces):
    """The same, where the member's status says which node, after it was promised another one."""

    def _keep(self, member: Pod, nodes: list[str]) -> None:
        self._write("before", self._nominated())
        for name in (*nodes, None, "", None):
            self._write(f"{member.name} to {name!r}", self.handle.nominate(member, name).name)
            self._write("so", self._nominated())
