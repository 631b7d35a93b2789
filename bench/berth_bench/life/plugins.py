"""The plugins of a life, beside kube-scheduler's own: one reserves, one holds pods at Permit.

`keeper` makes a class for one life. `SoakGate` holds one pod of five, as in a soak.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Status


class Ledger:
    """The reservations of one host's keeper. `held`: the pods with one, by uid. `broken`: what was wrong."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.broken: list[str] = []


def keeper(chance: random.Random, error_share: float) -> tuple[type[Plugin], list[Ledger]]:
    """Return the plugin LifeKeeper, and the ledgers of its instances, the newest last.

    `error_share`: the share of Reserve and PreBind calls that answer with an error.
    """
    ledgers: list[Ledger] = []

    def fails() -> Status:
        return Status.error("drawn by the life") if chance.random() < error_share else SUCCESS

    class LifeKeeper(Plugin):
        """Reserve, PreBind, Unreserve and PostBind."""

        def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
            super().__init__(args, handle)
            self._ledger = Ledger()
            ledgers.append(self._ledger)

        def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
            """Reserve for a pod."""
            if pod.uid in self._ledger.held:
                self._ledger.broken.append(f"Reserve of {pod.key} twice, without Unreserve")
            self._ledger.held[pod.uid] = pod.key
            return fails()

        def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """Undo the reservation."""
            self._ledger.held.pop(pod.uid, None)

        def pre_bind(
            self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
        ) -> PreBindResult:
            """Check that the pod has a reservation."""
            if pod.uid not in self._ledger.held:
                self._ledger.broken.append(f"PreBind of {pod.key} without Reserve")
            return PreBindResult(fails())

        def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
            """End the reservation of a bound pod."""
            if self._ledger.held.pop(pod.uid, None) is None:
                self._ledger.broken.append(f"PostBind of {pod.key} without Reserve")

    return LifeKeeper, ledgers
