"""The served plugin of a life: it keeps pods off some nodes, reserves, and prepares each binding.

`guard` makes the class of one process. `GuardLedger` knows what all processes of a life have answered, so
that laws can compare it with what the host binds.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeMode, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PatchResult, PreBindResult, ReserveResult
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeView

GUARD: Final = "LifeGuard"
PLUGIN: Final = "plugin"
"""The kind of acts of the guard's processes."""
POINTS: Final = ("filter", "score", "reserve", "preBind", "postBind")
"""The extension points of the guard, as the configuration spells them."""
FORBIDDEN: Final = "forbidden"
"""The begin of the names of nodes on which the guard allows no pod. Lives without a guard have none."""


def forbids(node_name: str) -> bool:
    """Return True for a node on which the guard allows no pod."""
    return node_name.startswith(FORBIDDEN)


class GuardLedger:
    """The answers of the guard so far, in all its processes.

    `allowed`: the nodes that Filter accepted, by the pod's uid. `reserved`, `prepared`: the uids and nodes
    that Reserve and PreBind accepted. `keeps` True: some process let the host keep the answers of Filter, so
    that not every pod is asked about.
    """

    def __init__(self) -> None:
        self.allowed: dict[str, set[str]] = {}
        self.reserved: set[tuple[str, str]] = set()
        self.prepared: set[tuple[str, str]] = set()
        self.keeps = False

    def why_not(self, pod_uid: str, node_name: str) -> str:
        """Return which answer the binding of a pod lacks; "" for none."""
        bound = pod_uid, node_name
        if forbids(node_name):
            return "although the guard forbids the node"
        if not self.keeps and node_name not in self.allowed.get(pod_uid, ()):
            return "without an answer of the guard to Filter"
        if bound not in self.reserved:
            return "without an answer of the guard to Reserve"
        return "" if bound in self.prepared else "without an answer of the guard to PreBind"

    def forget(self, pod_uid: str) -> None:
        """Drop what is known about a pod that is gone."""
        self.allowed.pop(pod_uid, None)


class Memory:
    """The memory of one process. `held`: the keys of the pods with a reservation, by uid."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}


def guard(
    ledger: GuardLedger, memory: Memory, chance: random.Random, number: int, error_share: float
) -> type[Plugin]:
    """Return the class of the guard in its process `number`.

    What the class declares is drawn. `error_share`: the share of Reserve and PreBind calls that fail.
    """
    makes: dict[str, dict[str, Any]] = {
        "snapshot": {"needs": (Need.nodes(), Need.pods())},
        "names": {"node_mode": NodeMode.NAMES, "needs": ()},
        "kept": {"depends_on": DependsOn.NODE},
    }
    made = chance.choice(tuple(makes))
    ledger.keeps = ledger.keeps or made == "kept"

    def fails() -> Status:
        drawn = chance.random()
        if drawn < error_share / 4:
            raise RuntimeError("raised by the life")
        return Status.error("drawn by the life") if drawn < error_share else SUCCESS

    class LifeGuard(Plugin):
        """Filter, Score, Reserve, Unreserve, PreBind, PostBind and Reconcile."""

        version = f"1.{number}"

        def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
            super().__init__(args, handle)

        def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
            """Reject the nodes that the guard forbids."""
            if forbids(node.name):
                return Status.unschedulable("the guard forbids the node")
            ledger.allowed.setdefault(pod.uid, set()).add(node.name)
            return SUCCESS

        def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
            """Return a score that follows from the node's name."""
            return zlib.crc32(node.name.encode()) % 101

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult:
            """Reserve for a pod; leave a token, so that the next process knows the reservation."""
            memory.held[pod.uid] = pod.key
            state.token = node_name.encode()
            status = fails()
            if status.is_success:
                ledger.reserved.add((pod.uid, node_name))
            return ReserveResult(status)

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """Undo the reservation, if there is one."""
            memory.held.pop(pod.uid, None)

        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            """Prepare the binding."""
            status = fails()
            if status.is_success:
                ledger.prepared.add((pod.uid, node_name))
            return PreBindResult(status)

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """End the reservation of a bound pod."""
            memory.held.pop(pod.uid, None)

        def reconcile(self, live: Sequence[LiveReservation]) -> None:
            """Take up the live reservations, also those of a process before, and drop all others."""
            memory.held.clear()
            memory.held.update((one.pod.uid, one.pod.key) for one in live)

    for name, value in makes[made].items():
        setattr(LifeGuard, name, value)
    return LifeGuard
