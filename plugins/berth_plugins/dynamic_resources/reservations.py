"""`ClaimReservations`: from the devices found on the chosen node to written claims.

The cycle's token holds the reserved devices, so that they survive the process.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from berth_sdk.clocks import monotonic_s, wall_s
from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PatchResult, PreBindResult
from berth_sdk.slices import Work
from berth_sdk.status import SUCCESS, Status

from berth_plugins.dynamic_resources.allocation import allocation_for
from berth_plugins.dynamic_resources.allocator import Allocator
from berth_plugins.dynamic_resources.attempt import Attempt, FoundDevices, PodClaim
from berth_plugins.dynamic_resources.binding import (
    Binding,
    BindingError,
    ClaimBinding,
    has_conditions,
    is_overdue,
    readiness,
)
from berth_plugins.dynamic_resources.claims import MAX_CONSUMERS
from berth_plugins.dynamic_resources.ledger import ClaimKey, Promise
from berth_plugins.dynamic_resources.reserved import Reserved, decode, encode
from berth_plugins.dynamic_resources.search import AllocationError
from berth_plugins.dynamic_resources.turns import Turns
from berth_plugins.dynamic_resources.wishes import EXTENDED_NAME

Json = dict[str, Any]
_BINDING: Final = "binding"
_RESERVED: Final = "reserved"
_WAITED: Final = "waits for devices"
_POLL_S: Final = 5.0
_TURN_POLL_S: Final = 0.02
_MAX_DOUBLINGS: Final = 5
"""A pod looks after 0.02 s whether it is its turn to write a shared claim, then less and less often."""


class ClaimReservations:
    """The reservations of one plugin instance."""

    def __init__(self, allocator: Allocator, handle: Handle, binding_timeout_s: float) -> None:
        self._allocator = allocator
        self._handle = handle
        self._binding_timeout_s = binding_timeout_s
        self._turns = Turns(monotonic_s)
        self._users: dict[str, dict[str, str]] = {}
        """The pods that will use a claim once they are bound: uid by cycle, by uid of the claim."""
        self._used: dict[str, list[str]] = {}
        """The uids of the claims in `_users`, by cycle."""
        self._users_lock = threading.Lock()

    def is_full(self, one: PodClaim, pod: Pod) -> bool:
        """Return True if the claim has as many users as one claim can have, and the pod is none of them.

        Pods that are being bound count too.
        """
        if one.consumer is not None:
            return False
        with self._users_lock:
            coming = set(self._users.get(one.claim.ref.uid, {}).values())
        present = {who.get("uid") for who in one.claim.get("status.reservedFor") or ()}
        return pod.uid not in present and len(present | coming) >= MAX_CONSUMERS

    def reserve(self, state: CycleState, attempt: Attempt, node_name: str) -> Work[Status]:
        """Count the devices that Filter found for the node as taken. Yields after each claim."""
        found = None if attempt.outcomes is None else attempt.outcomes.on(node_name)
        waiting = attempt.unallocated
        if found is None and waiting:
            return Status.error("claim allocation not found for node")
        chosen = []
        for one in {id(one): one for one in attempt.claims}.values():
            if one.is_allocated or one.promised is not None:
                chosen.append(_reserved(one, one.promised, attempt.group))
                yield
        if found is not None:
            try:
                chosen += yield from self._promised(attempt, found, node_name)
            except AllocationError as err:
                return Status.error(str(err))
        # Unreserve finds what is counted by now, wherever the work is given up.
        reserved: list[Reserved] = []
        state.write(_RESERVED, reserved)
        for each in chosen:
            reserved.append(self._counted(each, state.cycle_id))
            self._use(each, state.cycle_id, attempt.pod)
            yield
        # None replaces the token of an earlier trial of the group, whose devices may be others.
        state.token = encode(reserved)
        return SUCCESS

    def give_back(self, state: CycleState) -> Work[None]:
        """Give the devices back. Allocations that may be written already are left to the claims. Yields
        after each claim.
        """
        binding: Binding | None = state.get(_BINDING)
        # A process that had the cycle before may have sent a write, of which this one does not know.
        unknown = "" if state.get(_RESERVED) is None else None
        seen_from = {(one.namespace, one.name): unknown for one in self._reserved(state) or ()}
        for one in binding.claims if binding is not None else ():
            seen_from[_key(one)] = one.seen_from
            yield
        if binding is not None:
            yield from binding.leave()
        self._end_use(state.cycle_id)
        for key, version in seen_from.items():
            written = version is not None
            self._allocator.ledger.settle(key, state.cycle_id, is_written=written, version=version or "")
            yield

    def take_up(self, live: Sequence[LiveReservation]) -> list[LiveReservation]:
        """Count the live reservations and no others: a new host does not know its predecessor's cycles.
        Returns the reservations whose devices are unknown.
        """
        unknown: list[LiveReservation] = []
        known: dict[ClaimKey, dict[str, Promise]] = {}
        for one in live:
            reserved = self._reserved(one.state)
            if reserved is None:
                unknown.append(one)
                continue
            for promised in reserved:
                if promised.allocation is not None:
                    holders = known.setdefault((promised.namespace, promised.name), {})
                    holders[one.state.cycle_id] = _promise(promised, promised.allocation)
        self._allocator.ledger.take_up(known)
        with self._users_lock:
            self._users.clear()
            self._used.clear()
        for one in live:
            for each in self._reserved(one.state) or ():
                self._use(each, one.state.cycle_id, one.pod)
        return unknown

    def pre_bind(
        self,
        state: CycleState,
        pod: Pod,
        node_name: str,
        patched: Sequence[PatchResult],
    ) -> Work[PreBindResult | Status]:
        """Run one round. Returns patches, a wait, or success. Yields after each claim."""
        try:
            binding: Binding | None = state.get(_BINDING)
            if binding is None:
                binding = yield from self._binding(state, pod)
                state.write(_BINDING, binding)
            for one in binding.take(patched):
                if one.claim is not None:
                    old = one.reserved.namespace, one.reserved.name
                    self._allocator.ledger.rename(old, _key(one), one.claim.ref.uid)
            self._settle(state, binding)
            patches = yield from binding.patches()
            if patches:
                return PreBindResult(SUCCESS, patches)
            if binding.waits:
                doublings = min(binding.waits - 1, _MAX_DOUBLINGS)
                return PreBindResult(SUCCESS, ask_again_after_s=_TURN_POLL_S * 2**doublings)
            self._settle(state, binding)
            answer = yield from self._wait(state, binding, pod, node_name)
            if answer.ask_again_after_s is None:
                # From here on `status.reservedFor` counts the pod.
                self._end_use(state.cycle_id)
            return answer
        except BindingError as err:
            return Status.error(str(err))

    def _use(self, one: Reserved, cycle_id: str, pod: Pod) -> None:
        if one.uid and one.consumer is None:
            with self._users_lock:
                self._users.setdefault(one.uid, {})[cycle_id] = pod.uid
                self._used.setdefault(cycle_id, []).append(one.uid)

    def _end_use(self, cycle_id: str) -> None:
        with self._users_lock:
            for uid in self._used.pop(cycle_id, ()):
                users = self._users.get(uid, {})
                users.pop(cycle_id, None)
                if not users:
                    self._users.pop(uid, None)

    def _binding(self, state: CycleState, pod: Pod) -> Work[Binding]:
        claims = []
        for one in self._reserved(state) or ():
            claim = self._allocator.claims.get(one.name, one.namespace)
            if one.requests is None and (claim is None or claim.ref.uid != one.uid):
                raise BindingError(f"claim {one.namespace}/{one.name} got deleted in the meantime")
            claims.append(ClaimBinding(claim, one, is_watched=claim is not None))
            yield
        return Binding(pod, claims, self._turns, state.cycle_id, self._allocator.rules)

    def _settle(self, state: CycleState, binding: Binding) -> None:
        """Settle the claims that were written since the last call: a claim counts itself as soon as the watch
        shows it.
        """
        for one in binding.newly_bound():
            self._settle_one(state, one)

    def _settle_one(self, state: CycleState, one: ClaimBinding) -> None:
        if one.reserved.allocation is not None:
            version = one.claim.ref.resource_version if one.claim is not None else ""
            self._allocator.ledger.settle(_key(one), state.cycle_id, is_written=True, version=version)

    def _wait(self, state: CycleState, binding: Binding, pod: Pod, node_name: str) -> Work[PreBindResult]:
        """Return SUCCESS when every binding condition of every device is true, else ask for another round."""
        if not self._allocator.rules.binding_conditions:
            return PreBindResult(SUCCESS)
        waiting = []
        for one in binding.claims:
            if one.claim is not None and has_conditions(one.claim):
                waiting.append(one.claim)
                # The devices count until the watch shows the claim, however long the wait lasts.
                self._settle_one(state, one)
            yield
        if not waiting:
            return PreBindResult(SUCCESS)
        if state.get(_WAITED) is None:
            state.write(_WAITED, True)
            self._handle.record_event(
                pod.ref,
                "BindingConditionsPending",
                f"waiting for binding conditions for device on node {node_name}",
                action="Scheduling",
            )
        for claim in waiting:
            yield
            now = self._allocator.claims.get(claim.ref.name, claim.ref.namespace)
            if now is None:
                raise BindingError(f"claim {claim.ref.key} got deleted in the meantime")
            # The written object may be newer than the watched one.
            seen = now if has_conditions(now) else claim
            is_ready, problem = readiness(seen)
            if problem:
                raise BindingError(problem)
            if not is_ready:
                if is_overdue(seen, self._binding_timeout_s, wall_s()):
                    raise BindingError(f"claim {claim.ref.name} binding timeout")
                return PreBindResult(SUCCESS, ask_again_after_s=_POLL_S)
        return PreBindResult(SUCCESS)

    def _promised(self, attempt: Attempt, found: FoundDevices, node_name: str) -> Work[list[Reserved]]:
        """Return the devices of each claim on the node. Raises AllocationError."""
        classes = self._allocator.classes.get
        waiting = attempt.unallocated
        promised = []
        for i, (claim, choices) in enumerate(zip(found.claims, found.choices, strict=True)):
            yield
            allocation = yield from allocation_for(claim, choices, node_name, classes, self._allocator.rules)
            if i < len(waiting):
                promised.append(_reserved(waiting[i], allocation, attempt.group))
                continue
            # A placeholder, until the real claim is made: no claim can have this name.
            name = f"{EXTENDED_NAME}{attempt.pod.uid}"
            requests = claim.spec["devices"]["requests"]
            promised.append(Reserved(attempt.pod.namespace, name, "", allocation, requests, found.mappings))
        return promised

    def _reserved(self, state: CycleState) -> list[Reserved] | None:
        known: list[Reserved] | None = state.get(_RESERVED)
        return known if known is not None else decode(state.token)

    def _counted(self, one: Reserved, holder: str) -> Reserved:
        """Count the devices as taken, and return the reservation with the allocation that counts."""
        if one.allocation is None:
            return one
        key, promise = (one.namespace, one.name), _promise(one, one.allocation)
        return replace(one, allocation=self._allocator.ledger.reserve(key, promise, holder))


def _reserved(one: PodClaim, allocation: Json | None, group: str) -> Reserved:
    shared_by = "" if allocation is None else group
    return Reserved(*one.key, one.claim.ref.uid, allocation, group=shared_by, consumer=one.consumer)


def _promise(one: Reserved, allocation: Json) -> Promise:
    return Promise(one.uid, allocation, one.group)


def _key(one: ClaimBinding) -> ClaimKey:
    ref = one.claim.ref if one.claim is not None else one.reserved
    return ref.namespace, ref.name
