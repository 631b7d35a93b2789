"""Seats that a plugin gives out with `Reservations`, and writes to its pods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.request import urlopen

from berth_sdk import (
    CycleState,
    DependsOn,
    Handle,
    LiveReservation,
    Need,
    ObjectPatch,
    PatchResult,
    Plugin,
    Pod,
    PreBindResult,
    Refresher,
    Reservations,
    Status,
)

SEAT = "example.com/seat"


def seat_of(pod: Pod) -> int | None:
    return int(pod.annotations[SEAT]) if SEAT in pod.annotations else None


class Seats(Plugin):
    """Gives one of `seats` to each pod, and writes it to the pod."""

    depends_on = DependsOn.OTHER
    needs: Sequence[Need] = (Need.nodes(), Need.pods(annotation_prefixes=(SEAT,)))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.count = int(args["seats"])
        self.held = Reservations(handle, seat_of, per_node=bool(args.get("perNode")))

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        def free(used: list[int]) -> int | None:
            return min(set(range(self.count)).difference(used), default=None)

        seat = self.held.take(state, pod, node_name, free)
        return Status.success() if seat is not None else Status.unschedulable("no seat is free")

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        body = {"metadata": {"annotations": {SEAT: str(self.held[state.cycle_id].value)}}}
        patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=body)
        return PreBindResult(Status.success(), (patch,), done_when_applied=True)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.held.give_back(state)

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        return self.held.take_over(live)


class SeatsWithPostBind(Seats):
    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.held.give_back(state)


class SeatsOfServer(SeatsWithPostBind):
    """Has as many seats as a server tells."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__({"seats": 0}, handle)
        self._server = args["server"]
        self.told = Refresher(
            self._read,
            every_s=0.05,
            limit_s=5,
            changed=lambda: handle.requeue(reason="the number of seats changed"),
        )

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.count = self.told.value or 0
        return super().reserve(state, pod, node_name)

    def _read(self) -> int:
        with urlopen(self._server, timeout=2) as answer:
            return int(json.load(answer))


class SeatsAndLockers(SeatsWithPostBind):
    """Gives each pod a seat, and one of as many lockers, the highest first. Both are in one token."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.held = Reservations(handle, seat_of, name="seats")
        self.lockers = Reservations[str](handle, name="lockers")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        answer = super().reserve(state, pod, node_name)
        if answer.is_success:
            free = {f"locker-{number}" for number in range(self.count)}
            self.lockers.take(state, pod, node_name, lambda used: max(free.difference(used), default=None))
        return answer

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        super().unreserve(state, pod, node_name)
        self.lockers.give_back(state)

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        return self.held.take_over(live, self.lockers)
