"""`AttachedVolumes`: the CSI volumes in use on each node, updated by changed slots.

Used by NodeVolumeLimits. A volume has a unique name, `driver/handle`, and counts once on a node for any
number of pods. After a change, whole nodes are counted again: nodes whose pods with storage changed, or a
claim, volume, class or attachment that they use.

Source: `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`, v1.36.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk.errors import BerthError
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_volume import EPHEMERAL
from berth_sdk.slices import Work, at_once
from berth_sdk.tables import Moved, NodeTable, SlotFollower
from numpy.typing import NDArray

from berth_plugins.objects.records import Follower, Key, Records
from berth_plugins.volumes.csi_migration import (
    BY_PLUGIN,
    IN_TREE,
    TranslationError,
    inline_handle,
    volume_handle,
)
from berth_plugins.volumes.records import ATTACHMENTS, Claim, Stores, Volume, claim_not_found, not_owned

NO_NAME: Final = "PersistentVolumeClaim had no name"


class ClaimMissingError(BerthError):
    """A claim that a pod names does not exist."""


class VolumesError(BerthError):
    """The volumes that a pod uses cannot be determined."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment. `volume`: the PersistentVolume; empty: an inline volume."""

    node_name: str
    attacher: str
    volume: str

    @staticmethod
    def of(item: KubeObject) -> Attachment:
        """Read a VolumeAttachment."""
        return Attachment(
            item.get("spec.nodeName") or "",
            item.get("spec.attacher") or "",
            item.get("spec.source.persistentVolumeName") or "",
        )


class VolumeNames:
    """Finds the unique names of a pod's CSI volumes, each with its driver."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        # A volume that does not exist yet has no handle; this part makes its name unique.
        self._unmade = secrets.token_hex(16)

    def of_pod(self, pod: Pod, *, is_new: bool) -> dict[str, str]:
        """Return `read`, at once. Raises ClaimMissingError and VolumesError."""
        return at_once(self.read(pod, is_new=is_new))

    def read(self, pod: Pod, *, is_new: bool) -> Work[dict[str, str]]:
        """Return {unique name: driver}, on a node with a CSINode. Missing claims are errors for a new pod
        only. Yields after each volume.

        Raises ClaimMissingError and VolumesError.
        """
        found: dict[str, str] = {}
        for volume in pod.volumes:
            yield
            if not volume.has_claim:
                unique = _inline(volume.source, volume.details, volume.name)
            else:
                if not volume.claim:
                    raise VolumesError(NO_NAME)
                claim = self._stores.claims.get(volume.claim, pod.namespace)
                if claim is None:
                    if is_new:
                        key = f"{pod.namespace}/{volume.claim}"
                        raise ClaimMissingError(f"looking up PVC {key}: {claim_not_found(volume.claim)}")
                    continue
                problem = not_owned(pod, claim) if volume.source == EPHEMERAL else ""
                if problem:
                    raise VolumesError(problem)
                unique = self._claimed(claim)
            if unique is not None:
                driver, handle = unique
                found[f"{driver}/{handle}"] = driver
        return found

    def _claimed(self, claim: Claim) -> tuple[str, str] | None:
        volume = self._stores.volumes.get(claim.volume_name) if claim.volume_name else None
        if volume is None:
            return self._from_class(claim)
        unique = _of_volume(volume)
        return unique if unique is not None and all(unique) else None

    def _from_class(self, claim: Claim) -> tuple[str, str] | None:
        found = self._stores.classes.get(claim.class_name) if claim.class_name else None
        if found is None:
            return None
        driver = found.provisioner
        if driver in BY_PLUGIN:
            if not BY_PLUGIN[driver].is_on:
                return None
            driver = BY_PLUGIN[driver].driver
        return (driver, f"{self._unmade}-{claim.ref.key}") if driver else None


def _of_volume(volume: Volume) -> tuple[str, str] | None:
    if volume.source == "csi":
        return volume.details.get("driver") or "", volume.details.get("volumeHandle") or ""
    plugin = IN_TREE.get(volume.source)
    if plugin is None or not plugin.is_on:
        return None
    try:
        return plugin.driver, volume_handle(volume)
    except TranslationError:
        return None


def _inline(source: str, details: object, name: str) -> tuple[str, str] | None:
    plugin = IN_TREE.get(source)
    if plugin is None or not plugin.is_on or not isinstance(details, dict):
        return None
    try:
        return plugin.driver, inline_handle(source, details)
    except TranslationError as err:
        raise VolumesError(f"converting volume({name}) from inline to csi: {err}") from err


class AttachedVolumes:
    """Numbers of volumes by slot. Call `catch_up` first, in every call that reads them."""

    def __init__(self, handle: Handle, names: VolumeNames, stores: Stores) -> None:
        self._names = names
        self._stores = stores
        self._attachments = Records(handle, ATTACHMENTS, Attachment.of)
        self._rows = SlotFollower(Moved.NODE)
        self._pods = SlotFollower(Moved.VOLUMES)
        self._objects: tuple[Follower, Follower, Follower, Follower] | None = None
        self._forget()

    # --- reading -----------------------------------------------------------------------------------

    def count(self, driver: str, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the driver's volumes on each node."""
        if driver not in self._counts:
            return np.zeros(len(nodes), dtype=np.int64)
        return nodes.take_of(self._column(driver, nodes))

    def users(self, unique: str) -> Collection[int]:
        """Return the slots where a pod uses the volume."""
        return self._users.get(unique, ())

    def holders(self, unique: str) -> Collection[int]:
        """Return the slots where the volume is attached though no pod uses it."""
        return self._held.get(unique, ())

    @property
    def problems(self) -> dict[int, str]:
        """By slot: why the volumes of a pod on the node are unknown."""
        return self._problems

    def attached_to(self, node_name: str) -> dict[str, str]:
        """Return {unique name: attacher} of the node's VolumeAttachments."""
        found: dict[str, str] = {}
        for name in self._attached.get(node_name, ()):
            one = self._attachments.get(name)
            volume = self._stores.volumes.get(one.volume) if one is not None and one.volume else None
            if one is not None and one.attacher and volume is not None and volume.source == "csi":
                handle = volume.details.get("volumeHandle") or ""
                found[f"{one.attacher}/{handle}"] = one.attacher
        return found

    def uses_claim(self, ref: ObjectRef) -> bool:
        """Return True if a pod on a node named the claim when the nodes were last counted."""
        return (ref.namespace, ref.name) in self._claim_slots

    def uses(self, kind: str, name: str) -> bool:
        """Return True if a claim in use, or an attachment, depended on the volume or class (`kind`) with this
        name when the nodes were last counted.
        """
        return (kind, name) in self._claims_of or (kind == "volume" and name in self._attachments_of)

    # --- updates -----------------------------------------------------------------------------------

    def catch_up(self, nodes: NodeTable) -> None:
        """Count the changed slots again."""
        if self._objects is None:
            stores = self._stores
            self._objects = (
                stores.claims.follow(),
                stores.volumes.follow(),
                stores.classes.follow(),
                self._attachments.follow(),
            )
        rows, pods = self._rows.moved(nodes), self._pods.moved(nodes)
        claims, volumes, classes, attachments = (one.moved() for one in self._objects)
        if None in (rows, pods, claims, volumes, classes, attachments):
            self._forget()
            for _, name in self._attachments.everything():
                self._follow_attachment(name)
            whole = nodes.whole
            named = (whole.position(name) for name in self._attached)
            attached = (int(whole.slots[position]) for position in named if position is not None)
            slots = {*nodes.pod_volumes.slots(), *attached}
        else:
            slots = {*(rows or ()), *(pods or ())}
            slots |= self._slots_of(claims or (), volumes or (), classes or ())
            slots |= self._slots_of_nodes(self._moved_attachments(attachments or (), volumes or ()), nodes)
        for slot in slots:
            self._recount(slot, nodes)

    def _forget(self) -> None:
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._users: defaultdict[str, set[int]] = defaultdict(set)
        self._problems: dict[int, str] = {}
        self._counted: dict[int, Counter[str]] = {}
        self._used: dict[int, dict[str, str]] = {}
        # Volumes that are attached though no pod uses them: their slots, and the volumes of each slot.
        self._held: defaultdict[str, set[int]] = defaultdict(set)
        self._held_on: dict[int, set[str]] = {}
        self._claim_slots: defaultdict[Key, set[int]] = defaultdict(set)
        self._claims_on: dict[int, set[Key]] = {}
        self._claims_of: defaultdict[tuple[str, str], set[Key]] = defaultdict(set)
        self._sources: dict[Key, tuple[tuple[str, str], ...]] = {}
        self._attached: defaultdict[str, set[str]] = defaultdict(set)
        self._node_of: dict[str, str] = {}
        self._attachments_of: defaultdict[str, set[str]] = defaultdict(set)
        self._volume_of: dict[str, str] = {}

    def _slots_of(self, claims: Iterable[Key], volumes: Iterable[Key], classes: Iterable[Key]) -> set[int]:
        moved = set(claims)
        for kind, keys in (("volume", volumes), ("class", classes)):
            for _, name in keys:
                moved |= self._claims_of.get((kind, name), set())
        return {slot for key in moved for slot in self._claim_slots.get(key, ())}

    def _moved_attachments(self, attachments: Iterable[Key], volumes: Iterable[Key]) -> set[str]:
        """Return the names of the nodes whose attachments changed."""
        names: set[str] = set()
        for _, name in attachments:
            names.add(self._node_of.get(name, ""))
            self._follow_attachment(name)
            names.add(self._node_of.get(name, ""))
        for _, volume in volumes:
            names |= {self._node_of.get(name, "") for name in self._attachments_of.get(volume, ())}
        return names

    def _follow_attachment(self, name: str) -> None:
        before = self._node_of.pop(name, None)
        if before is not None:
            self._attached[before].discard(name)
            volume = self._volume_of.pop(name)
            self._attachments_of[volume].discard(name)
            if not self._attachments_of[volume]:
                del self._attachments_of[volume]
        one = self._attachments.get(name)
        if one is not None:
            self._node_of[name] = one.node_name
            self._attached[one.node_name].add(name)
            self._attachments_of[one.volume].add(name)
            self._volume_of[name] = one.volume

    @staticmethod
    def _slots_of_nodes(names: Iterable[str], nodes: NodeTable) -> set[int]:
        whole = nodes.whole
        positions = (whole.position(name) for name in names if name)
        return {int(whole.slots[position]) for position in positions if position is not None}

    def _recount(self, slot: int, nodes: NodeTable) -> None:
        position = nodes.whole.position_of_slot(slot)
        here = nodes.pod_volumes.on_slot(slot) if position is not None else ()
        self._follow_claims(slot, here)
        used: dict[str, str] = {}
        self._problems.pop(slot, None)
        try:
            for pod in here:
                used |= self._names.of_pod(pod, is_new=False)
        except VolumesError as err:
            self._problems[slot] = str(err)
        before = self._used.get(slot, {})
        for unique in before.keys() - used.keys():
            self._users[unique].discard(slot)
            if not self._users[unique]:
                del self._users[unique]
        for unique in used:
            self._users[unique].add(slot)
        counted = Counter(used.values())
        held: set[str] = set()
        if position is not None:
            attached = self.attached_to(nodes.whole.name(position))
            held = {unique for unique in attached if unique not in used}
            counted.update(attached[unique] for unique in held)
        self._hold(slot, held)
        for driver in self._counted.get(slot, Counter()).keys() - counted.keys():
            self._counts[driver][slot] = 0
        for driver, count in counted.items():
            self._column(driver, nodes)[slot] = count
        self._used[slot], self._counted[slot] = used, counted

    def _hold(self, slot: int, held: set[str]) -> None:
        for unique in self._held_on.pop(slot, set()) - held:
            self._held[unique].discard(slot)
            if not self._held[unique]:
                del self._held[unique]
        for unique in held:
            self._held[unique].add(slot)
        if held:
            self._held_on[slot] = held

    def _column(self, driver: str, nodes: NodeTable) -> NDArray[np.int64]:
        column = self._counts.get(driver)
        have = 0 if column is None else len(column)
        if column is None or have < nodes.slot_count:
            longer = np.zeros(nodes.slot_count, dtype=np.int64)
            if column is not None:
                longer[:have] = column
            column = self._counts[driver] = longer
        return column

    def _follow_claims(self, slot: int, pods: Iterable[Pod]) -> None:
        """Record the claims that the slot's pods name, and the objects that decide the names of their
        volumes.
        """
        now = {(pod.namespace, one.claim) for pod in pods for one in pod.volumes if one.has_claim}
        for key in self._claims_on.get(slot, set()) - now:
            self._claim_slots[key].discard(slot)
            if not self._claim_slots[key]:
                del self._claim_slots[key]
                self._follow_sources(key, ())
        self._claims_on[slot] = now
        for key in now:
            self._claim_slots[key].add(slot)
            claim = self._stores.claims.get(key[1], key[0])
            if claim is not None:
                self._follow_sources(key, (("volume", claim.volume_name), ("class", claim.class_name)))

    def _follow_sources(self, key: Key, sources: tuple[tuple[str, str], ...]) -> None:
        for source in self._sources.pop(key, ()):
            self._claims_of[source].discard(key)
            if not self._claims_of[source]:
                del self._claims_of[source]
        if sources:
            self._sources[key] = sources
        for source in sources:
            self._claims_of[source].add(key)
