"""The plugin of a life, beside kube-scheduler's own: it reserves, and holds some pods at Permit.

`keeper` makes a class for one life.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PatchResult, PermitResult, PreBindResult
from berth_sdk.status import SUCCESS, Status

KEEPER: Final = "LifeKeeper"
_HELD: Final = 5
"""Permit holds one of this many pods."""
_HELD_S: Final = 10.0
_RESERVED_IN: Final = "LifeKeeper/reservedIn"
"""In the state of a cycle: the id of the cycle in which the keeper has reserved last. The tries of a group
share the state of a member.
"""


class Ledger:
    """The records of one host's keeper. `held`: the pods with a reservation, by uid. `waiting`: the pods that
    it holds at Permit, by uid. `permitted`: the uids of those that it was asked about at Permit. `broken`:
    what was wrong.
    """

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.permitted: set[str] = set()
        self.broken: list[str] = []


def keeper(chance: random.Random, error_share: float) -> tuple[type[Plugin], list[Ledger]]:
    """Return the plugin LifeKeeper, and the ledgers of its instances, the newest last.

    `error_share`: the share of Reserve and PreBind calls that answer with an error.
    """
    ledgers: list[Ledger] = []

    def fails() -> Status:
        return Status.error("drawn by the life") if chance.random() < error_share else SUCCESS

    class LifeKeeper(Plugin):
        """Reserve, Permit, PreBind, Unreserve and PostBind."""

        def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
            super().__init__(args, handle)
            self._count = 0
            self._ledger = Ledger()
            ledgers.append(self._ledger)

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
            """Reserve for a pod."""
            if pod.uid in self._ledger.held:
                self._ledger.broken.append(f"Reserve of {pod.key} twice, without Unreserve")
            self._ledger.held[pod.uid] = pod.key
            state.write(_RESERVED_IN, state.cycle_id)
            return fails()

        def reconcile(self, live: Sequence[LiveReservation]) -> None:
            """Take up the reservations of the host before, after a reload."""
            for one in live:
                self._ledger.held[one.pod.uid] = one.pod.key
                self._ledger.permitted.add(one.pod.uid)

        def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
            """Allow the pods that are held. Hold some pods, for 10 s or until the next pod comes."""
            ledger = self._ledger
            ledger.permitted.add(pod.uid)
            for waiting in self.handle.waiting_pods(only_mine=True):
                if waiting.pod.uid != pod.uid:
                    ledger.waiting.pop(waiting.pod.uid, None)
                    self.handle.allow(waiting)
            self._count += 1
            if self._count % _HELD:
                return SUCCESS
            ledger.waiting[pod.uid] = pod.key
            return PermitResult.wait(_HELD_S)

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """Undo the reservation. Without one, Reserve of a plugin before this one has failed."""
            self._ledger.waiting.pop(pod.uid, None)
            self._ledger.permitted.discard(pod.uid)
            held = self._ledger.held.pop(pod.uid, None)
            if held is None and state.get(_RESERVED_IN) == state.cycle_id:
                self._ledger.broken.append(f"Unreserve of {pod.key} twice, or after PostBind")

        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            """Check that the pod has a reservation, and that Permit lets it go."""
            for is_wrong, what in (
                (pod.uid not in self._ledger.held, "without Reserve"),
                (pod.uid not in self._ledger.permitted, "without Permit"),
                (pod.uid in self._ledger.waiting, "while Permit holds it"),
            ):
                if is_wrong:
                    self._ledger.broken.append(f"PreBind of {pod.key} {what}")
            return PreBindResult(fails())

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """End the reservation of a bound pod."""
            self._ledger.permitted.discard(pod.uid)
            if self._ledger.held.pop(pod.uid, None) is None:
                self._ledger.broken.append(f"PostBind of {pod.key} without Reserve")

    return LifeKeeper, ledgers
