"""A plugin that asks the other filters from PostFilter, also about new nodes, and notes the answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PostFilterResult
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod

DAEMON = make_pod("daemon", uid="uid-daemon", cpu="3", host_ports=[{"containerPort": 1, "hostPort": 80}])


def new(name: str, cpu: str = "4", zone: str = "b", **fields: Any) -> Node:
    return make_node(name, cpu=cpu, labels={"zone": zone, "kubernetes.io/hostname": name}, **fields)


def questions(old: Pod) -> list[list[Scenario]]:
    """Return the scenarios of each call. `old`: a pod on n0."""
    return [
        [
            Scenario("n0"),
            Scenario("n0", removed=(old,)),
            Scenario(node=new("new")),
            Scenario(node=new("small", cpu="1")),
            Scenario(node=new("same-zone", zone="a")),
            Scenario(node=new("tainted", taints=["t:NoSchedule"])),
            Scenario(node=new("crowded"), added=(DAEMON,)),
            Scenario("n0", removed=(old,), added=(DAEMON,)),
        ],
        [],
        [Scenario("nowhere")],
        [Scenario("n0", removed=(DAEMON,))],
        [Scenario(node=new("n0"))],
        [Scenario(node=new("new"), added=(make_pod("old", uid=old.uid),))],
        [Scenario(node=new("new"), added=(DAEMON, DAEMON))],
        [Scenario("n0", removed=(old, old))],
        [Scenario("n0", added=(DAEMON, DAEMON))],
    ]


class AsksForFilters(Plugin):
    """Rejects every node itself, which RunFilters leaves out. `args`: `folder` of the notes."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"

    def filter(self, state: CycleState, pod: Pod, node: object) -> Status:
        """Reject."""
        return Status.unschedulable("never")

    async def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        """Ask all the questions; then those about nodes that exist, once more."""
        (old,) = (pod for pod in self.handle.snapshot().pods.on_node(0) if pod.name == "old")
        asked = questions(old)
        notes = [await self._answer(state, one) for one in (*asked, asked[0][:2])]
        with self._path.open("w") as file:
            json.dump(notes, file)
        return PostFilterResult(Status.unschedulable("asked"))

    async def _answer(self, state: CycleState, asked: list[Scenario]) -> Any:
        try:
            found = self.handle.run_filters(state, asked)
            statuses = await found if inspect.isawaitable(found) else found
        except HandleError as err:
            return str(err).rpartition("INVALID_ARGUMENT: ")[2]  # the prefix of a served plugin's error
        return [[status.code.name, status.message] for status in statuses]
