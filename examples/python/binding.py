"""Slots, with the SDK: limits how many pods are bound at one time, and lets pods wait for company.

slots.example.com/use: "true"     on the pod: it takes one of the slots until it is bound
slots.example.com/wait: "true"    on the pod: it waits until another pod of its namespace takes a slot
slots.example.com/slot: "2"       on the pod, before it is bound: the number of its slot, from 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk import (
    Handle,
    LiveReservation,
    ObjectPatch,
    PatchResult,
    PermitResult,
    Plugin,
    PluginArgsError,
    Pod,
    PreBindResult,
    Reservations,
    Scope,
    Status,
)
from berth_sdk.cycle_state import CycleState

USE: Final = "slots.example.com/use"
WAIT: Final = "slots.example.com/wait"
SLOT: Final = "slots.example.com/slot"
WAIT_S: Final = 30.0


class Slots(Plugin):
    """Holds one of `slots` slots for each cycle, from Reserve to PostBind. `Reservations` makes the number of
    the slot the token of the cycle, so that PreBind needs no memory, and a restarted process takes it up.
    """

    scope = Scope(annotation_keys=(USE, WAIT))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        slots = args.get("slots")
        if not isinstance(slots, int | float) or isinstance(slots, bool) or slots < 1 or slots != int(slots):
            raise PluginArgsError("slots: must be a whole number above 0")
        self._slots = frozenset(range(1, int(slots) + 1))
        self._held = Reservations[int](handle)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Take the lowest free slot, then allow the pods of the namespace that wait."""
        if pod.annotations.get(USE) != "true":
            return Status.skip()
        slot = self._held.take(state, pod, node_name, lambda used: min(self._slots - {*used}, default=None))
        if slot is None:
            return Status.unschedulable("no slot is free")
        for waiting in self.handle.waiting_pods(only_mine=True):
            if waiting.pod.namespace == pod.namespace and waiting.pod.uid != pod.uid:
                self.handle.allow(waiting)
        return Status.success()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Let a pod wait that asks for it."""
        return PermitResult.wait(WAIT_S) if pod.annotations.get(WAIT) == "true" else Status.success()

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        """Write the number of the slot to the pod."""
        if patched:
            return Status.error(f"the slot could not be written to the pod: {patched[0].message}")
        if not state.token:
            return Status.success()
        told = {"metadata": {"annotations": {SLOT: state.token.decode()}}}
        patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=told)
        return PreBindResult(Status.success(), (patch,), done_when_applied=True)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Free the slot."""
        self.unreserve(state, pod, node_name)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Free the slot, if the cycle has one."""
        self._held.give_back(state)

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        """Hold the slots of exactly the live reservations."""
        return self._held.take_over(live)
