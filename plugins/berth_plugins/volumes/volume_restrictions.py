"""VolumeRestrictions: disks that a node can mount only once, and claims that only one pod may use -> verdict.

Called at PreFilter and Filter.

Source: `pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go`, v1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, DependsOn, NoConcern, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, at_once, in_slices
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.gates import EXACT_HINTS, is_on
from berth_plugins.objects.of_events import as_object, as_pod
from berth_plugins.objects.records import Records
from berth_plugins.volumes.records import (
    CLAIM_EVENT,
    CLAIMS,
    POD_FIELDS_TO_DROP,
    READ_WRITE_ONCE_POD,
    Claim,
    claim_not_found,
    claim_volumes,
    names_claim,
    rows_with_storage,
)
from berth_plugins.volumes.slot_index import SlotIndex

DISK: Final = Status.unschedulable("node(s) had no available disk")
IN_USE: Final = Status.unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by"
    " another pod"
)
_RESTRICTED: Final = "restricted"
_SAME: Final = frozenset({""})


Key = tuple[str, ...]
"""The source and the name of a disk; of rbd also one of its monitors."""


class Disk(NamedTuple):
    """A disk in a pod's spec. Two disks with one `key` are the same disk, and conflict unless both are
    read-only. A disk of rbd is one for each of its monitors: two that share a monitor are the same.
    """

    key: Key
    read_only: bool


def disks_of(pod: Pod) -> frozenset[Disk]:
    """Return the distinct disks in the pod's spec that cannot be shared freely."""
    return frozenset(_disks(pod))


def _disks(pod: Pod) -> Iterator[Disk]:
    for volume in pod.volumes:
        details = volume.details
        read_only = bool(details.get("readOnly"))
        if volume.source == "gcePersistentDisk":
            yield Disk((volume.source, details.get("pdName") or ""), read_only)
        elif volume.source == "awsElasticBlockStore":
            # Never mounted twice, not even for reading.
            yield Disk((volume.source, details.get("volumeID") or ""), read_only=False)
        elif volume.source == "iscsi":
            yield Disk((volume.source, details.get("iqn") or ""), read_only)
        elif volume.source == "rbd":
            # The pool is optional, the image is not.
            key = (volume.source, details.get("pool") or "", details.get("image") or "")
            for monitor in details.get("monitors") or ():
                yield Disk((*key, monitor), read_only)


def _share_a_disk(mine: Iterable[Disk], theirs: Iterable[Disk]) -> bool:
    """Return True if one node cannot mount both sets of disks."""
    writers: dict[Key, bool] = {}
    for disk in theirs:
        writers[disk.key] = writers.get(disk.key, False) or not disk.read_only
    return any(disk.key in writers and (writers[disk.key] or not disk.read_only) for disk in mine)


def _claims_of(pod: Pod) -> list[tuple[tuple[str, str], None]]:
    return [((pod.namespace, volume.claim), None) for volume in claim_volumes(pod, ephemeral=False)]


@dataclass(frozen=True, slots=True)
class Restricted:
    """The volumes of a pod that Filter has to check. `claims`: its claims that only one pod may use.
    `conflicts`: the number of `claims` that are in use.
    """

    disks: tuple[Disk, ...]
    claims: frozenset[str]
    conflicts: int


class VolumeRestrictions(Plugin):
    """Rejects nodes that have mounted a disk of the pod, and all nodes while a claim of the pod that only one
    pod may use is in use.
    """

    depends_on: DependsOn | None = DependsOn.TABLE
    needs: Sequence[Need] = (
        Need.whole_pod(("volumes",)),
        Need.nodes(),
        Need.pod_objects(*POD_FIELDS_TO_DROP),
        Need.objects(CLAIMS),
    )
    events: Sequence[EventInterest] | None = (
        EventInterest(ASSIGNED_POD, ("delete",), Hint.ASK_PLUGIN),
        EventInterest(CLAIM_EVENT, ("add",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add",)),
        EventInterest("Node", ("delete",), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._claims = Records(handle, CLAIMS, Claim.of)
        self._disks_in_use: SlotIndex[Key, bool] = SlotIndex(disks_of)
        self._claims_in_use: SlotIndex[tuple[str, str], None] = SlotIndex(_claims_of)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP without disks in the spec and without a conflict over a claim, unresolvable where a
        claim is missing.
        """
        if not pod.volumes:
            return Status.skip()
        return in_slices(self._pre_filter(state, pod, nodes))

    def _pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Status]:
        found = yield from self._restricted(pod, nodes)
        if isinstance(found, Status):
            return found
        if not found.disks and not found.conflicts:
            return Status.skip()
        state.write(_RESTRICTED, found)
        return SUCCESS

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return `NoConcern.CYCLE` without disks and claims, which cannot conflict; None with them."""
        return None if any(_disks(pod)) or claim_volumes(pod, ephemeral=False) else NoConcern.CYCLE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the wishes of a pod with disks or claims."""
        return wishes(pod)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """Return rejections where a disk conflicts, and on every node while a claim is in use."""
        found = self._found(state, pod, nodes)
        if isinstance(found, Status):
            return found
        verdicts = Verdicts.reject_where(self._disk_conflicts(found.disks, nodes), DISK)
        if not found.conflicts:
            return verdicts
        return verdicts.otherwise(np.ones(len(nodes), dtype=np.bool_), IN_USE)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        """Return the verdicts of Filter with pods removed and added. Claims count by name in any namespace,
        as in kube-scheduler.
        """
        nodes = scenarios.nodes
        found = self._found(state, pod, nodes)
        if isinstance(found, Status):
            return Verdicts.all(len(scenarios), found)
        disk = self._disk_conflicts(found.disks, nodes)
        in_use = np.full(len(scenarios), found.conflicts > 0, dtype=np.bool_)
        for i in rows_with_storage(scenarios):
            removed, added = scenarios.removed.pods(i), scenarios.added.pods(i)
            disk[i] = self._disk_conflict_if(found.disks, int(nodes.slots[i]), removed, added)
            in_use[i] = found.conflicts + _uses(added, found.claims) - _uses(removed, found.claims) > 0
        return Verdicts.reject_where(disk, DISK).otherwise(in_use, IN_USE)

    def sensitive_to(self, pod: Pod, other: Pod) -> bool:
        """Return True if both pods use the same disk, or claims of the same name."""
        if not {disk.key for disk in _disks(pod)}.isdisjoint(disk.key for disk in _disks(other)):
            return True
        claims = {volume.claim for volume in claim_volumes(pod, ephemeral=False)}
        return not claims.isdisjoint(volume.claim for volume in claim_volumes(other, ephemeral=False))

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if a pod with a disk or a claim of this pod was deleted, a node that may have had such
        a pod was deleted, or a claim of this pod was added.
        """
        if event.resource == "Node":
            return any(claim_volumes(pod, ephemeral=False))
        if event.resource == CLAIM_EVENT:
            return names_claim(pod, as_object(event.new), ephemeral=False)
        gone = as_pod(event.old)
        if gone.namespace != pod.namespace and not self._exact_hints:
            return False
        if _share_a_disk(disks_of(pod), disks_of(gone)):
            return True
        if gone.namespace != pod.namespace:
            return False
        names = {volume.claim for volume in claim_volumes(pod, ephemeral=False)}
        return any(volume.claim in names for volume in claim_volumes(gone, ephemeral=False))

    # --- finding conflicts ---------------------------------------------------------------------------

    def _found(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Restricted | Status:
        found: Restricted | None = state.get(_RESTRICTED)
        return at_once(self._restricted(pod, nodes)) if found is None else found

    def _restricted(self, pod: Pod, nodes: NodeTable) -> Work[Restricted | Status]:
        alone: set[str] = set()
        for volume in claim_volumes(pod, ephemeral=False):
            yield
            claim = self._claims.get(volume.claim, pod.namespace)
            if claim is None:
                return Status.unresolvable(claim_not_found(volume.claim))
            if READ_WRITE_ONCE_POD in claim.access_modes:
                alone.add(volume.claim)
        conflicts = 0
        if alone:
            self._claims_in_use.catch_up(nodes)
            conflicts = sum(bool(self._claims_in_use.get((pod.namespace, name))) for name in alone)
        return Restricted(tuple(disks_of(pod)), frozenset(alone), conflicts)

    def _disk_conflicts(self, disks: Iterable[Disk], nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: where a disk is mounted in a conflicting way."""
        slots: set[int] = set()
        for disk in disks:
            self._disks_in_use.catch_up(nodes)
            for slot, read_only in self._disks_in_use.get(disk.key).items():
                if not (disk.read_only and all(read_only)):
                    slots.add(slot)
        return np.isin(nodes.slots, list(slots))

    def _disk_conflict_if(
        self, disks: Sequence[Disk], slot: int, removed: Iterable[Pod], added: Iterable[Pod]
    ) -> bool:
        """Return True if a volume conflicts on the node after pods were removed and added."""
        leaving = Counter(disk for pod in removed for disk in disks_of(pod))
        coming = Counter(disk for pod in added for disk in disks_of(pod))
        for disk in disks:
            here = self._disks_in_use.get(disk.key).get(slot, ())
            for read_only in (True, False):
                other = Disk(disk.key, read_only)
                stay = max(here.count(read_only) - leaving[other], 0) + coming[other]
                if stay > 0 and not (disk.read_only and read_only):
                    return True
        return False


def _uses(pods: Iterable[Pod], claims: frozenset[str]) -> int:
    return sum(volume.claim in claims for pod in pods for volume in claim_volumes(pod, ephemeral=False))
