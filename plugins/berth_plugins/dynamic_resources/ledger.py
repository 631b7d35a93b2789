"""`Ledger`: the devices in use, by claims in the cluster or by pods that are being bound.

A reservation counts from Reserve until the watch shows the claim as it was written; then the claim counts.
Until then a claim with other devices, which the watch may show late, counts beside it. Members of one group
share the reservation of a claim, which lasts until the last of them gives it back. The ledger is updated
claim by claim. Calls of the binding cycle come from other threads, hence the lock.

Source: `dynamicresources/allocateddevices.go` and `dra_manager.go` (inFlightAllocations), v1.37. Differs: a
later cycle of the same group shares the reservation too, as do the groups of one composite group.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_sdk.errors import QuantityError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.quantity import nano_value
from berth_sdk.slices import Work

from berth_plugins.dynamic_resources.capacity import amounts_by_full_name
from berth_plugins.dynamic_resources.claims import EXTENDED_ANNOTATION, allocation_of, results_of
from berth_plugins.dynamic_resources.devices import DeviceId, PoolId

Json = dict[str, Any]
ClaimKey = tuple[str, str]
"""Namespace and name."""
GRACE_S: Final = 60.0
"""The time, in seconds, that a reservation outlives its cycle when its claim may have been written."""


@dataclass(frozen=True, slots=True)
class Taking:
    """The devices of one claim: whole devices, and parts of shared ones (amounts in billionths by name).
    `negative`: the first share with a negative amount, as a text; empty if there is none.
    """

    devices: tuple[DeviceId, ...]
    shares: tuple[tuple[DeviceId, Mapping[str, int]], ...]
    negative: str = ""

    @staticmethod
    def of(allocation: Mapping[str, Any], *, full_names: bool = True) -> Taking:
        """Read a claim's allocation. Access for administrators takes nothing. `full_names`: as in `Rules`."""
        devices: list[DeviceId] = []
        shares: list[tuple[DeviceId, Mapping[str, int]]] = []
        negative = ""
        for result in results_of(allocation):
            if result.get("adminAccess"):
                continue
            device = DeviceId(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))
            if result.get("shareID"):
                stored = result.get("consumedCapacity") or {}
                amounts = _amounts(stored)
                below = min((name for name, amount in amounts.items() if amount < 0), default="")
                if below and not negative:
                    where = f"{device.driver}/{device.pool}/{device.device}"
                    negative = f'device {where}: consumedCapacity "{below}" is negative: {stored[below]}'
                shares.append(
                    (device, amounts_by_full_name(amounts, device.driver) if full_names else amounts)
                )
            else:
                devices.append(device)
        return Taking(tuple(devices), tuple(shares), negative)

    @property
    def pools(self) -> set[PoolId]:
        """The pools of the devices."""
        return {one.pool_id for one in self.devices} | {one.pool_id for one, _ in self.shares}


@dataclass(frozen=True, slots=True)
class Promise:
    """The allocation that Reserve has chosen for a claim. `uid`: of the claim.

    `group`: the key of the root group whose members share the allocation; "" for a pod without a group.
    """

    uid: str
    allocation: Json
    group: str = ""


@dataclass(slots=True)
class _Pending:
    """A reservation. `holders`: the cycles whose pods need it. `ends_s`: when to drop it, once no cycle holds
    it. `version`: of the claim from which on only the claim counts, 0: not known. `former`: the key before
    the claim had its name. `is_counted`: its devices count beside those of the claim.
    """

    promise: Promise
    taking: Taking
    holders: set[str] = field(default_factory=set)
    ends_s: float | None = None
    version: int = 0
    former: ClaimKey | None = None
    is_counted: bool = False


class Ledger:
    """The devices in use. `touched`: called for every pool where something was taken or given back.
    `full_names`: as in `Rules`.
    """

    def __init__(
        self,
        claims: ObjectReader,
        touched: Callable[[PoolId], None],
        now_s: Callable[[], float],
        *,
        full_names: bool = True,
    ) -> None:
        self._full_names = full_names
        self._claims = claims
        self._touched = touched
        self._now_s = now_s
        self._version: int | None = None
        self._unread: deque[ClaimKey] = deque()
        """The claims that changed and were not read again, in the order of the changes."""
        self._stored: dict[ClaimKey, Taking] = {}
        self._negative: dict[ClaimKey, str] = {}
        self._pending: dict[ClaimKey, _Pending] = {}
        self._whole: Counter[DeviceId] = Counter()
        self._shared: dict[DeviceId, Counter[str]] = {}
        self._sharers: Counter[DeviceId] = Counter()
        self._extended: dict[str, ClaimKey] = {}
        self._extended_by: dict[ClaimKey, str] = {}
        self.lock = threading.RLock()

    def refresh(self) -> Work[None]:
        """Read the claims that changed since the last call, and drop reservations that no pod waits for any
        more. Yields after each claim; another caller meanwhile reads the rest.
        """
        with self.lock:
            version = self._claims.version
            if version != self._version:
                moved = None if self._version is None else self._claims.moved_since(self._version)
                self._version = version
                if moved is None:
                    listed = [(item.ref.namespace, item.ref.name) for item in self._claims.list()]
                    moved = [*self._stored, *self._extended_by, *self._pending, *listed]
                self._unread.extend(dict.fromkeys(moved))
        while True:
            with self.lock:
                if not self._unread:
                    break
                self._read(self._unread.popleft())
            yield
        with self.lock:
            if self._pending:
                self._drop_overdue()

    # --- reading -------------------------------------------------------------------------------

    def is_taken(self, device: DeviceId) -> bool:
        """Return True if a claim has the whole device."""
        return device in self._whole

    def is_shared(self, device: DeviceId) -> bool:
        """Return True if a claim has a part of the device."""
        return device in self._sharers

    def shares(self, device: DeviceId) -> Mapping[str, int]:
        """Return how much of the device's capacities is given away, in billionths."""
        return self._shared.get(device, {})

    def negative_share(self) -> str:
        """Return the claim and the device of a stored share that is negative; empty if there is none."""
        with self.lock:
            if not self._negative:
                return ""
            (namespace, name), problem = min(self._negative.items())
            return f"claim {namespace}/{name}, {problem}"

    def is_in_flight(self, claim: KubeObject) -> bool:
        """Return True if a pod that is being bound allocates the claim."""
        with self.lock:
            return self._pending_of(claim) is not None

    def promised(self, claim: KubeObject, group: str) -> Json | None:
        """Return the allocation that a pod of this root group ("": of none) may write to the claim, or None.

        It is that which another member reserved, or that of a write without an answer, which no cycle holds
        any more: whoever writes it again finds out whether the first write was done.
        """
        with self.lock:
            pending = self._pending_of(claim)
            if pending is None:
                return None
            may_write = not pending.holders or (group and pending.promise.group == group)
            return pending.promise.allocation if may_write else None

    def extended_claim_of(self, pod_uid: str) -> KubeObject | None:
        """Return the claim that was made for a pod's extended resources, or None."""
        key = self._extended.get(pod_uid)
        return None if key is None else self._claims.get(key[1], key[0])

    # --- reservations --------------------------------------------------------------------------

    def reserve(self, key: ClaimKey, promise: Promise, holder: str) -> Json:
        """Count the devices as taken for this claim, and return the allocation that counts.

        `holder`: the id of the pod's cycle. That allocation is the one of the first holder, if the pods share
        the claim.
        """
        with self.lock:
            pending = self._pending.get(key)
            if pending is None or not _is_shared(pending, promise, holder):
                self._release(key)
                pending = self._pending[key] = _Pending(
                    promise, Taking.of(promise.allocation, full_names=self._full_names)
                )
                self._recount(key)
            pending.holders.add(holder)
            return pending.promise.allocation

    def settle(self, key: ClaimKey, holder: str, *, is_written: bool, version: str = "") -> None:
        """End the hold of one cycle.

        `is_written`: True if the claim may get the allocation soon, False if the hold came to nothing.
        `version`: the claim's version once it was written, or the first that shows whether it was. From that
        version on only the claim counts.
        """
        with self.lock:
            pending = self._pending.get(key)
            if pending is None:
                return
            pending.holders.discard(holder)
            if is_written:
                pending.ends_s = self._now_s() + GRACE_S
                pending.version = max(pending.version, _number(version))
            if pending.ends_s is not None:
                self._read_if_shown(key)
            elif not pending.holders:
                self._release(key)

    def rename(self, key: ClaimKey, new: ClaimKey, uid: str) -> None:
        """Move the reservation from the placeholder to the claim that exists now."""
        with self.lock:
            pending = self._pending.get(key)
            if pending is not None:
                self._release(key)
                self._release(new)
                promise = replace(pending.promise, uid=uid)
                self._pending[new] = replace(pending, promise=promise, former=key, is_counted=False)
                self._recount(new)
                self._read_if_shown(new)

    def take_up(self, live: Mapping[ClaimKey, Mapping[str, Promise]]) -> None:
        """Count the reservations of `live` (by claim, then by cycle), and end the holds of all other cycles.

        The pods of the others do not exist any more, or their claims have the devices. A claim that may have
        been written keeps its devices until its time is over.
        """
        with self.lock:
            formers = {pending.former: pending for pending in self._pending.values()}
            for key, pending in list(self._pending.items()):
                known = live.get(key) or (live.get(pending.former) if pending.former is not None else None)
                pending.holders.intersection_update(known or ())
                if pending.ends_s is None and not pending.holders:
                    self._release(key)
            for key, holders in live.items():
                for holder, promise in holders.items():
                    if key not in formers:
                        self.reserve(key, promise, holder)

    # --- bookkeeping ---------------------------------------------------------------------------

    def _pending_of(self, claim: KubeObject) -> _Pending | None:
        pending = self._pending.get((claim.ref.namespace, claim.ref.name))
        return pending if pending is not None and pending.promise.uid == claim.ref.uid else None

    def _read_if_shown(self, key: ClaimKey) -> None:
        # A claim that was just made still exists when the watch does not show it yet.
        if self._claims.get(key[1], key[0]) is not None:
            self._read(key)

    def _read(self, key: ClaimKey) -> None:
        claim = self._claims.get(key[1], key[0])
        allocation = None if claim is None else allocation_of(claim)
        old = self._stored.pop(key, None)
        self._negative.pop(key, None)
        if allocation is not None:
            taking = self._stored[key] = Taking.of(allocation, full_names=self._full_names)
            if taking.negative:
                self._negative[key] = taking.negative
            self._add(taking)
        pending = self._pending.get(key)
        if pending is not None and _is_over(pending, key, claim, self._stored.get(key)):
            self._release(key)
        self._recount(key)
        if old is not None:
            # Last, as a search in another thread may look meanwhile.
            self._remove(old)
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
        if pending is not None and pending.is_counted:
            self._remove(pending.taking)

    def _recount(self, key: ClaimKey) -> None:
        """Count the reservation of the claim, if the claim itself has not the same devices."""
        pending = self._pending.get(key)
        if pending is None:
            return
        is_counted = self._stored.get(key) != pending.taking
        if is_counted != pending.is_counted:
            pending.is_counted = is_counted
            (self._add if is_counted else self._remove)(pending.taking)

    def _drop_overdue(self) -> None:
        now_s = self._now_s()
        for key, pending in list(self._pending.items()):
            if pending.ends_s is not None and pending.ends_s <= now_s and not pending.holders:
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


def _is_shared(pending: _Pending, promise: Promise, holder: str) -> bool:
    """Return True if the promise is one more hold on a reservation, not another reservation."""
    known = pending.promise
    if known.uid != promise.uid:
        return False
    if not pending.holders:
        return known.allocation == promise.allocation
    if known.group != promise.group:
        return False
    return bool(promise.group) or holder in pending.holders


def _is_over(pending: _Pending, key: ClaimKey, claim: KubeObject | None, stored: Taking | None) -> bool:
    """Return True if the reservation is over.

    It is over if the claim that was to have the devices is gone (a claim of the same name is another one),
    or, once no cycle holds the reservation, has the written allocation or a later state. A cycle that still
    holds it may write it after a state that the watch shows late. The claim of extended resources is made in
    PreBind: until then its key is a placeholder, which begins with "<", and its absence says nothing.
    """
    if claim is None or claim.ref.uid != pending.promise.uid:
        return not key[1].startswith("<")
    if pending.holders:
        return False
    if not pending.version:
        return stored == pending.taking
    return pending.version <= _number(claim.ref.resource_version)


def _number(version: str) -> int:
    # Versions of one resource are numbers that grow (KEP-5504).
    return int(version) if version.isdecimal() else 0


def _amounts(raw: Mapping[str, Any]) -> dict[str, int]:
    amounts = {}
    for name, value in raw.items():
        # The API server refuses such values. A bad value that exists in spite of it must not stop every pod.
        with suppress(QuantityError):
            amounts[name] = nano_value(value)
    return amounts
