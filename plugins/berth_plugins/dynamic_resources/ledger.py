"""`Ledger`: which devices are taken, by the word of the claims in the cluster or by pods on their way.

A reservation counts from Reserve until the claim itself shows the allocation; then the claim counts. Kept up
to date claim by claim. Calls of the binding cycle come from other threads, hence the lock.
Source: `dynamicresources/allocateddevices.go` and `dra_manager.go` (inFlightAllocations), v1.36.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.errors import QuantityError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.quantity import nano_value

from berth_plugins.dynamic_resources.claims import EXTENDED_ANNOTATION, allocation_of, results_of
from berth_plugins.dynamic_resources.devices import DeviceId, PoolId

ClaimKey = tuple[str, str]
"""Namespace and name."""
GRACE_S: Final = 60.0
"""How long a reservation outlives its cycle when it is unknown whether its claim was written."""


@dataclass(frozen=True, slots=True)
class Taking:
    """The devices of one claim: whole devices, and parts of shared ones (amounts in billionths by name)."""

    devices: tuple[DeviceId, ...]
    shares: tuple[tuple[DeviceId, Mapping[str, int]], ...]

    @staticmethod
    def of(allocation: Mapping[str, Any]) -> Taking:
        """Read a claim's allocation. Access for administrators takes nothing."""
        devices: list[DeviceId] = []
        shares: list[tuple[DeviceId, Mapping[str, int]]] = []
        for result in results_of(allocation):
            if result.get("adminAccess"):
                continue
            device = DeviceId(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
            if result.get("shareID"):
                shares.append((device, _amounts(result.get("consumedCapacity") or {})))
            else:
                devices.append(device)
        return Taking(tuple(devices), tuple(shares))

    @property
    def pools(self) -> set[PoolId]:
        """Where it takes something."""
        return {one.pool_id for one in self.devices} | {one.pool_id for one, _ in self.shares}


@dataclass(slots=True)
class _Pending:
    """`ends_s`: when to forget it; `version`: of the claim once it was written, 0: not known. `former`: the
    key before the claim had its name."""

    uid: str
    taking: Taking
    ends_s: float | None = None
    version: int = 0
    former: ClaimKey | None = None


class Ledger:
    """`touched`: told of every pool where something was taken or given back."""

    def __init__(
        self, claims: ObjectReader, touched: Callable[[PoolId], None], now_s: Callable[[], float]
    ) -> None:
        self._claims = claims
        self._touched = touched
        self._now_s = now_s
        self._version: int | None = None
        self._stored: dict[ClaimKey, Taking] = {}
        self._pending: dict[ClaimKey, _Pending] = {}
        self._whole: Counter[DeviceId] = Counter()
        self._shared: dict[DeviceId, Counter[str]] = {}
        self._sharers: Counter[DeviceId] = Counter()
        self._extended: dict[str, ClaimKey] = {}
        self._extended_by: dict[ClaimKey, str] = {}
        self.lock = threading.RLock()

    def refresh(self) -> None:
        """Read the claims that changed since the last time, and drop promises that no pod waits for any
        more."""
        with self.lock:
            version = self._claims.version
            if version != self._version:
                moved = None if self._version is None else self._claims.moved_since(self._version)
                self._version = version
                if moved is None:
                    listed = [(item.ref.namespace, item.ref.name) for item in self._claims.list()]
                    moved = [*self._stored, *self._extended_by, *self._pending, *listed]
                for key in dict.fromkeys(moved):
                    self._read(key)
            if self._pending:
                self._drop_overdue()

    # --- questions -----------------------------------------------------------------------------

    def is_taken(self, device: DeviceId) -> bool:
        """Whether a claim has the whole device."""
        return device in self._whole

    def is_shared(self, device: DeviceId) -> bool:
        """Whether a claim has a part of it."""
        return device in self._sharers

    def shares(self, device: DeviceId) -> Mapping[str, int]:
        """How much of its capacities is given away, in billionths."""
        return self._shared.get(device, {})

    def is_in_flight(self, claim: KubeObject) -> bool:
        """Whether a pod that is being bound allocates the claim."""
        with self.lock:
            pending = self._pending.get((claim.ref.namespace, claim.ref.name))
            return pending is not None and pending.uid == claim.ref.uid

    def extended_claim_of(self, pod_uid: str) -> KubeObject | None:
        """The claim that was made for a pod's extended resources, or None."""
        key = self._extended.get(pod_uid)
        return None if key is None else self._claims.get(key[1], key[0])

    # --- reservations --------------------------------------------------------------------------

    def reserve(self, key: ClaimKey, uid: str, taking: Taking) -> None:
        """The devices are on their way to this claim."""
        with self.lock:
            self._release(key)
            self._pending[key] = _Pending(uid, taking)
            if key not in self._stored:
                self._add(taking)

    def settle(self, key: ClaimKey, *, is_written: bool, version: str = "") -> None:
        """The cycle is over. `is_written`: the claim may soon show the allocation, or nothing came of it.
        `version`: the claim's once it was written; from there on the claim speaks for itself.
        """
        with self.lock:
            pending = self._pending.get(key)
            if pending is None:
                return
            if is_written:
                pending.ends_s = self._now_s() + GRACE_S
                pending.version = _number(version)
                self._read_if_shown(key)
            else:
                self._release(key)

    def rename(self, key: ClaimKey, new: ClaimKey, uid: str) -> None:
        """A claim that was to be made now exists: the reservation is for that one."""
        with self.lock:
            pending = self._pending.get(key)
            if pending is not None:
                self._release(key)
                self.reserve(new, uid, pending.taking)
                self._pending[new].former = key
                self._read_if_shown(new)

    def take_up(self, live: Mapping[ClaimKey, tuple[str, Taking]]) -> None:
        """Count the reservations of `live` (by claim: its uid, its devices), and release all others: their
        pods exist no more, or their claims show the devices. A claim that may have been written keeps its
        devices until its time is over.
        """
        with self.lock:
            formers = {pending.former for pending in self._pending.values()}
            for key, pending in list(self._pending.items()):
                if pending.ends_s is None and key not in live and pending.former not in live:
                    self._release(key)
            for key, (uid, taking) in live.items():
                if key not in formers:
                    self.reserve(key, uid, taking)

    # --- bookkeeping ---------------------------------------------------------------------------

    def _read_if_shown(self, key: ClaimKey) -> None:
        # A claim that was just made is not gone because the watch does not show it yet.
        if self._claims.get(key[1], key[0]) is not None:
            self._read(key)

    def _read(self, key: ClaimKey) -> None:
        claim = self._claims.get(key[1], key[0])
        allocation = None if claim is None else allocation_of(claim)
        old = self._stored.pop(key, None)
        pending = self._pending.get(key)
        if pending is not None and _is_over(pending, key, claim):
            if old is None:
                self._remove(pending.taking)
            del self._pending[key]
            pending = None
        if old is not None:
            self._remove(old)
        elif pending is not None:
            self._remove(pending.taking)
        if allocation is not None:
            # From here on the claim speaks for itself.
            self._pending.pop(key, None)
            self._stored[key] = Taking.of(allocation)
            self._add(self._stored[key])
        elif pending is not None:
            self._add(pending.taking)
        self._note_extended(key, claim)

    def _note_extended(self, key: ClaimKey, claim: KubeObject | None) -> None:
        owner = self._extended_by.pop(key, None)
        if owner is not None and self._extended.get(owner) == key:
            del self._extended[owner]
        if claim is None:
            return
        if (claim.get("metadata.annotations") or {}).get(EXTENDED_ANNOTATION) != "true":
            return
        for reference in claim.get("metadata.ownerReferences") or ():
            if reference.get("controller") and reference.get("uid"):
                self._extended[reference["uid"]] = key
                self._extended_by[key] = reference["uid"]

    def _release(self, key: ClaimKey) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None and key not in self._stored:
            self._remove(pending.taking)

    def _drop_overdue(self) -> None:
        now_s = self._now_s()
        for key, pending in list(self._pending.items()):
            if pending.ends_s is not None and pending.ends_s <= now_s:
                self._release(key)

    def _add(self, taking: Taking) -> None:
        self._whole.update(taking.devices)
        for device, amounts in taking.shares:
            self._sharers[device] += 1
            self._shared.setdefault(device, Counter()).update(amounts)
        self._tell(taking.pools)

    def _remove(self, taking: Taking) -> None:
        for device in taking.devices:
            self._whole[device] -= 1
            if self._whole[device] <= 0:
                del self._whole[device]
        for device, amounts in taking.shares:
            self._sharers[device] -= 1
            self._shared[device].subtract(amounts)
            if self._sharers[device] <= 0:
                del self._sharers[device], self._shared[device]
        self._tell(taking.pools)

    def _tell(self, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            self._touched(pool)


def _is_over(pending: _Pending, key: ClaimKey, claim: KubeObject | None) -> bool:
    """Whether the claim that was to have the devices is gone (a claim of the same name does not count), or
    shows the written allocation or a later state.
    """
    if claim is None or claim.ref.uid != pending.uid:
        return not key[1].startswith("<")
    return 0 < pending.version <= _number(claim.ref.resource_version)


def _number(version: str) -> int:
    # Versions of one resource are numbers that grow (KEP-5504).
    return int(version) if version.isdecimal() else 0


def _amounts(raw: Mapping[str, Any]) -> dict[str, int]:
    amounts = {}
    for name, value in raw.items():
        # The API server lets no other values in; a bad value that is there all the same must not stop every
        # pod.
        with suppress(QuantityError):
            amounts[name] = nano_value(value)
    return amounts
