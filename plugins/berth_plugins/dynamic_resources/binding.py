"""PreBind, claim by claim: the finalizer, then allocation and reservation, as merge patches for the host.

Each round returns the patches that are due, given the outcomes of the round before. After a conflict, the
patch is made again for the claim's current version. Pods that use one claim take turns (`turns`).

Source: `dynamicresources.go` (bindClaim), v1.37. Differs: the allocation that another member of the group has
written is the pod's own too. In kube-scheduler that member's binding fails, and its next attempt succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.clocks import wall_s
from berth_sdk.errors import BerthError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import MAX_PATCHES, ObjectPatch, PatchAction, PatchOutcome, PatchResult
from berth_sdk.rfc3339 import format_time, parse_time
from berth_sdk.slices import Work

from berth_plugins.dynamic_resources.claims import (
    CLAIMS,
    EXTENDED_ANNOTATION,
    MAX_CONSUMERS,
    allocation_of,
    is_reserved_for,
    results_of,
)
from berth_plugins.dynamic_resources.reserved import Reserved
from berth_plugins.dynamic_resources.rules import Rules
from berth_plugins.dynamic_resources.turns import Turns

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_MAX_CONFLICTS: Final = 5
Json = dict[str, Any]


class BindingError(BerthError):
    """The claim cannot be bound."""


@dataclass(slots=True, eq=False)
class ClaimBinding:
    """One claim of the pod. `claim`: the last known version; None: it does not exist yet. `reserved`: the
    devices that Reserve chose for it. `is_watched`: `claim` is as the watch shows it. `is_sent`: the patch of
    its status may be applied. `is_in_doubt`: the same of an earlier patch. `is_bound`: a patch was applied.
    """

    claim: KubeObject | None
    reserved: Reserved
    is_watched: bool = False
    is_sent: bool = False
    is_in_doubt: bool = False
    is_bound: bool = False
    conflicts: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`, for messages."""
        ref = self.claim.ref if self.claim is not None else self.reserved
        return f"{ref.namespace}/{ref.name}"

    @property
    def seen_from(self) -> str | None:
        """The version of the claim from which on it shows whether it has the devices; None: no patch of its
        status may be applied, "": not known.
        """
        if self.claim is None or not (self.is_sent or self.is_bound):
            return None
        version = self.claim.ref.resource_version
        if self.is_bound:
            return version
        # A patch without an answer expects this version, so any later one is with it, or it is refused.
        return str(int(version) + 1) if version.isdecimal() else ""


@dataclass(slots=True, eq=False)
class Binding:
    """The binding of all claims of one pod."""

    pod: Pod
    claims: list[ClaimBinding]
    turns: Turns
    holder: str
    rules: Rules = field(default_factory=Rules)
    waits: int = 0
    """The number of rounds in a row in which another pod wrote a claim of this pod."""
    _asked: list[tuple[ClaimBinding, str]] = field(default_factory=list)
    _left: list[ClaimBinding] = field(init=False)
    """The claims that may not be the pod's yet."""
    _newly_bound: list[ClaimBinding] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with all claims."""
        self._left = list(self.claims)

    def newly_bound(self) -> list[ClaimBinding]:
        """Return the claims that became the pod's since the last call."""
        found, self._newly_bound = self._newly_bound, []
        return found

    def take(self, patched: Sequence[PatchResult]) -> list[ClaimBinding]:
        """Apply the outcomes of the round before, and return the created claims. Raises BindingError."""
        try:
            return self._taken(patched)
        finally:
            for one, step in self._asked:
                if one.claim is not None and step != _POD:
                    self.turns.end(one.claim.ref.uid, self.holder, one.claim)
            self._asked = []

    def leave(self) -> Work[None]:
        """Give up the turns of this pod. Yields after each claim."""
        for one in self.claims:
            if one.claim is not None:
                self.turns.end(one.claim.ref.uid, self.holder)
            yield

    def _taken(self, patched: Sequence[PatchResult]) -> list[ClaimBinding]:
        made = []
        for (one, step), result in zip(self._asked, patched, strict=False):
            if step == _STATUS:
                _note_outcome(one, result)
            if result.outcome is PatchOutcome.APPLIED and result.object is not None:
                if step == _CREATE:
                    made.append(one)
                if step != _POD:
                    one.claim, one.is_watched = result.object, False
                if step == _STATUS:
                    self._is_bound_now(one)
            elif result.outcome is PatchOutcome.CONFLICT and result.object is not None and step != _POD:
                one.claim, one.is_watched = result.object, False
                one.conflicts += 1
                if one.conflicts >= _MAX_CONFLICTS:
                    raise BindingError(f"{_doing(one, step)}: {result.message}")
            elif result.outcome is not PatchOutcome.SKIPPED:
                raise BindingError(f"{_doing(one, step)}: {result.message or result.outcome.name}")
        return made

    def patches(self) -> Work[tuple[ObjectPatch, ...]]:
        """Return the patches that are due now, as many as one answer may have. Empty: every claim is the
        pod's, or `waits` was raised as another pod writes a claim. Yields after each claim. Raises
        BindingError.
        """
        patches: list[ObjectPatch] = []
        left: list[ClaimBinding] = []
        waits = False
        for at, one in enumerate(self._left):
            # A claim that is made for extended resources has two patches in its last round.
            if len(patches) + (1 if one.reserved.requests is None else 2) > MAX_PATCHES:
                left += self._left[at:]
                break
            yield
            if one.is_bound or self._is_the_pods(one):
                continue
            left.append(one)
            asked = self._asked_of(one)
            waits = waits or not asked
            patches += asked
        self._left = left
        self.waits = self.waits + 1 if waits and not patches else 0
        return tuple(patches)

    def _is_the_pods(self, one: ClaimBinding) -> bool:
        """Return True if the claim is the pod's already, as it was read or as another pod has written it.

        A watched claim that names the pod is written once more: after an attempt that was undone, the watch
        may not show yet that the host has taken the pod out.
        """
        if one.claim is None:
            return False
        newest = self.turns.newest(one.claim)
        if newest is not one.claim:
            one.claim, one.is_watched = newest, False
        if one.is_watched and one.reserved.consumer is None:
            return False
        if not self._is_written(one, one.claim):
            return False
        if one.reserved.allocation is not None:
            self._is_bound_now(one)
        self.turns.end(one.claim.ref.uid, self.holder)
        return True

    def _is_bound_now(self, one: ClaimBinding) -> None:
        one.is_sent = one.is_bound = True
        self._newly_bound.append(one)

    def _asked_of(self, one: ClaimBinding) -> list[ObjectPatch]:
        """Return the patches of one claim. Empty: another pod writes the claim. Raises BindingError."""
        if one.claim is None:
            return [self._ask(one, _CREATE, self._creation(one))]
        if not self.turns.take(one.claim.ref.uid, self.holder, self._consumer(one)):
            return []
        step, body = self._next(one, one.claim)
        one.is_sent = step == _STATUS
        patches = [self._ask(one, step, _patch(one.claim, body, "status" if step == _STATUS else ""))]
        if step == _STATUS and one.reserved.requests is not None:
            patches.append(self._ask(one, _POD, self._pod_patch(one, one.claim)))
        return patches

    def _is_written(self, one: ClaimBinding, claim: KubeObject) -> bool:
        """Return True if the claim is the pod's already: reserved, with the allocation that was chosen."""
        if one.reserved.requests is not None or not is_reserved_for(
            claim, self.pod, of_groups=self.rules.of_groups
        ):
            return False
        chosen, present = one.reserved.allocation, allocation_of(claim)
        return chosen is None or (present is not None and _is_same(present, chosen))

    def _consumer(self, one: ClaimBinding) -> Json:
        me = {"resource": "pods", "name": self.pod.name, "uid": self.pod.uid}
        return me if one.reserved.consumer is None else dict(one.reserved.consumer)

    def _ask(self, one: ClaimBinding, step: str, patch: ObjectPatch) -> ObjectPatch:
        self._asked.append((one, step))
        return patch

    def _creation(self, one: ClaimBinding) -> ObjectPatch:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.pod.name,
            "uid": self.pod.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return ObjectPatch(
            resource=CLAIMS,
            ref=ObjectRef(name=f"{self.pod.name}-extended-resources-", namespace=self.pod.namespace),
            merge_patch={
                "metadata": {
                    "annotations": {EXTENDED_ANNOTATION: "true"},
                    "finalizers": [FINALIZER],
                    "ownerReferences": [owner],
                },
                "spec": {"devices": {"requests": list(one.reserved.requests or ())}},
            },
            action=PatchAction.CREATE,
        )

    def _pod_patch(self, one: ClaimBinding, claim: KubeObject) -> ObjectPatch:
        status = {
            "resourceClaimName": claim.ref.name,
            "requestMappings": list(one.reserved.mappings),
        }
        return ObjectPatch(
            resource="pods",
            ref=ObjectRef(name=self.pod.name, namespace=self.pod.namespace, uid=self.pod.uid),
            merge_patch={"status": {"extendedResourceClaimStatus": status}},
            subresource="status",
        )

    def _next(self, one: ClaimBinding, claim: KubeObject) -> tuple[str, Json]:
        allocation = one.reserved.allocation
        if claim.get("metadata.deletionTimestamp") is not None:
            raise BindingError(f"claim {claim.ref.key} got deleted in the meantime")
        present = allocation_of(claim)
        status: Json = {}
        is_timed = self.rules.binding_conditions
        if allocation is not None and present is None:
            finalizers = claim.get("metadata.finalizers") or []
            if FINALIZER not in finalizers:
                return _FINALIZER, {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
            status["allocation"] = (
                {**allocation, "allocationTimestamp": _now()} if is_timed else dict(allocation)
            )
        elif present is None:
            if is_timed:
                raise BindingError(f"claim {claim.ref.key} got deallocated elsewhere in the meantime")
            # The API server answers, as in kube-scheduler.
        elif allocation is not None and not _is_same(present, allocation):
            raise BindingError(f"claim {claim.ref.key} got allocated elsewhere in the meantime")
        elif is_timed and present.get("allocationTimestamp") is None:
            status["allocation"] = {"allocationTimestamp": _now()}
        me = self._consumer(one)
        consumers = {who.get("uid"): who for who in claim.get("status.reservedFor") or ()}
        consumers.pop(me["uid"], None)
        consumers[me["uid"]] = me
        for other in self.turns.waiting(claim.ref.uid).values():
            if len(consumers) < MAX_CONSUMERS:
                consumers.setdefault(other["uid"], other)
        status["reservedFor"] = list(consumers.values())
        return _STATUS, {"status": status}


def _note_outcome(one: ClaimBinding, result: PatchResult) -> None:
    """Note whether a patch of the claim's status may have been applied, or may be later.

    A patch without an answer may reach the claim as long as the claim has the version that the patch expects.
    """
    if result.outcome is PatchOutcome.UNKNOWN:
        one.is_in_doubt = True
    elif result.object is not None and one.claim is not None:
        one.is_in_doubt = result.object.ref.resource_version == one.claim.ref.resource_version
    one.is_sent = one.is_in_doubt


def _patch(claim: KubeObject, body: Json, subresource: str) -> ObjectPatch:
    return ObjectPatch(
        resource=CLAIMS,
        ref=ObjectRef(name=claim.ref.name, namespace=claim.ref.namespace, uid=claim.ref.uid),
        merge_patch=body,
        expected_resource_version=claim.ref.resource_version,
        subresource=subresource,
    )


def deallocation(claim: KubeObject) -> ObjectPatch:
    """Return the patch that removes allocation and reservations from a claim, as far as the claim has
    them.
    """
    status = claim.get("status") or {}
    taken_off = {key: None for key in ("reservedFor", "allocation", "devices") if key in status}
    return _patch(claim, {"status": taken_off}, "status")


def without_consumer(claim: KubeObject, uid: str) -> ObjectPatch:
    """Return the patch that removes one consumer from a claim."""
    left = [one for one in claim.get("status.reservedFor") or () if one.get("uid") != uid]
    return _patch(claim, {"status": {"reservedFor": left or None}}, "status")


def deletion(claim: KubeObject) -> tuple[ObjectPatch, ...]:
    """Return the patches that delete a claim: first the removal of its finalizer."""
    ref = ObjectRef(name=claim.ref.name, namespace=claim.ref.namespace, uid=claim.ref.uid)
    delete = ObjectPatch(resource=CLAIMS, ref=ref, merge_patch={}, action=PatchAction.DELETE)
    finalizers = claim.get("metadata.finalizers") or []
    if FINALIZER not in finalizers:
        return (delete,)
    others = [one for one in finalizers if one != FINALIZER]
    return _patch(claim, {"metadata": {"finalizers": others}}, ""), delete


def readiness(claim: KubeObject) -> tuple[bool, str]:
    """Return (True if every binding condition of the claim's devices is true, why binding has failed or
    "").
    """
    statuses = {_device(one): one for one in claim.get("status.devices") or ()}
    for result in ((allocation_of(claim) or {}).get("devices") or {}).get("results") or ():
        wanted = result.get("bindingConditions") or ()
        if not wanted:
            continue
        status = statuses.get(_device(result))
        if status is None:
            return False, ""
        conditions = {one.get("type"): one for one in status.get("conditions") or ()}
        for name in result.get("bindingFailureConditions") or ():
            failed = conditions.get(name)
            if failed is not None and failed.get("status") == "True":
                return False, (
                    f"claim {claim.ref.name} binding failed: reason={failed.get('reason') or ''},"
                    f' message="{failed.get("message") or ""}"'
                )
        if any((conditions.get(name) or {}).get("status") != "True" for name in wanted):
            return False, ""
    return True, ""


def has_conditions(claim: KubeObject) -> bool:
    """Return True if a device of the claim must be prepared before the pod is bound."""
    results = ((allocation_of(claim) or {}).get("devices") or {}).get("results") or ()
    return any(result.get("bindingConditions") for result in results)


def is_overdue(claim: KubeObject, timeout_s: float, now_s: float) -> bool:
    """Return True if the time for the devices to get ready, counted from the allocation, is over."""
    written = (allocation_of(claim) or {}).get("allocationTimestamp")
    if written is None or not has_conditions(claim):
        return False
    try:
        began_s = parse_time(written)
    except ValueError:
        return False
    return began_s + timeout_s < now_s


_CREATE: Final = "create"
_FINALIZER: Final = "finalizer"
_STATUS: Final = "status"
_POD: Final = "pod"


def _doing(one: ClaimBinding, step: str) -> str:
    if step == _CREATE:
        return "create claim for extended resources"
    if step == _POD:
        return "update pod ExtendedResourceClaimStatus"
    if step == _FINALIZER:
        return f"add finalizer to claim {one.key}"
    what = "allocation and reservation" if one.reserved.allocation is not None else "reservation"
    return f"add {what} to claim {one.key}"


def _device(one: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return one.get("driver"), one.get("pool"), one.get("device")


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two allocations give the same devices on the same nodes."""
    return _devices(one) == _devices(other) and one.get("nodeSelector") == other.get("nodeSelector")


def _devices(allocation: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(one.get("request"), *_device(one), one.get("shareID")) for one in results_of(allocation)]


def _now() -> str:
    return format_time(wall_s())
