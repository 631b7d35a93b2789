"""PersistentVolumes by class, smallest first -> for each node the volume that a claim would get.

Called at Filter. A volume causes work when it changes; a claim tests the distinct kinds of volumes, and
arrays.

Source: component-helpers `storage/volume/pv_helpers.go` (FindMatchingVolume), v1.36. Of volumes of equal
size, which kube-scheduler takes in no certain order, the first by name is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from berth_sdk.slices import Work
from berth_sdk.tables import Dictionary, NodeTable
from numpy.typing import NDArray

from berth_plugins.objects.records import Follower, Key
from berth_plugins.volumes.records import Claim, Volume
from berth_plugins.volumes.volume_binding.assuming import Assumed
from berth_plugins.volumes.volume_binding.groups import NodeGroups, Taken, first_reached

_AVAILABLE: Final = "Available"
_MORE_GROUPS: Final = 4096
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties beside size, labels and nodes that decide whether a volume suits a claim."""

    is_claimed: bool
    is_available: bool
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]

    @staticmethod
    def of(volume: Volume) -> Kind:
        """Return the kind of one volume."""
        return Kind(
            volume.claim_ref is not None,
            volume.phase == _AVAILABLE and not volume.deleting,
            volume.volume_mode,
            volume.attributes_class,
            volume.access_modes,
        )

    def suits(self, claim: Claim) -> bool:
        """Return True if a free volume of this kind suits the claim."""
        return (
            not self.is_claimed
            and self.is_available
            and self.volume_mode == claim.volume_mode
            and self.attributes_class == claim.attributes_class
            and claim.access_modes <= self.access_modes
        )


class ClassVolumes:
    """The volumes of one class by size, then name. `volumes` is a new list after each change, so the numbers
    in an earlier result stay valid.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[int, str]] = []
        self.volumes: list[Volume] = []
        self._kinds: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._labels: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._groups: Numbers = np.zeros(0, dtype=np.int64)
        self._kind_values: Dictionary[Kind] = Dictionary()
        self._label_values: Dictionary[frozenset[tuple[str, str]]] = Dictionary()

    def __len__(self) -> int:
        return len(self.volumes)

    def fill(self, volumes: list[Volume], groups: NodeGroups) -> None:
        """Set the first volumes, all at once."""
        self.volumes = sorted(volumes, key=lambda one: (one.capacity_nano, one.ref.name))
        self._keys = [(one.capacity_nano, one.ref.name) for one in self.volumes]
        kinds = [self._kind_values.encode(Kind.of(one)) for one in self.volumes]
        labels = [self._label_values.encode(frozenset(one.labels.items())) for one in self.volumes]
        self._kinds = np.asarray(kinds, dtype=np.int32)
        self._labels = np.asarray(labels, dtype=np.int32)
        codes = [groups.code_of(one.affinity.value) for one in self.volumes]
        self._groups = np.asarray(codes, dtype=np.int64)

    def put(self, volume: Volume, groups: NodeGroups) -> None:
        """Add a volume that is not in the list yet."""
        key = (volume.capacity_nano, volume.ref.name)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self.volumes = [*self.volumes[:at], volume, *self.volumes[at:]]
        kind = self._kind_values.encode(Kind.of(volume))
        labels = self._label_values.encode(frozenset(volume.labels.items()))
        self._kinds = np.insert(self._kinds, at, kind)
        self._labels = np.insert(self._labels, at, labels)
        self._groups = np.insert(self._groups, at, groups.code_of(volume.affinity.value))

    def remove(self, volume: Volume) -> None:
        """Remove a volume, which must be in the list."""
        at = self.number(volume)
        del self._keys[at]
        self.volumes = [*self.volumes[:at], *self.volumes[at + 1 :]]
        self._kinds = np.delete(self._kinds, at)
        self._labels = np.delete(self._labels, at)
        self._groups = np.delete(self._groups, at)

    def number(self, volume: Volume) -> int:
        """Return the position of a volume."""
        return bisect_left(self._keys, (volume.capacity_nano, volume.ref.name))

    def suiting(self, claim: Claim) -> tuple[Numbers, Numbers]:
        """Return (numbers ascending, their groups): the free volumes that are large enough and suit the
        claim.
        """
        start = bisect_left(self._keys, (claim.requested_nano or 0, ""))
        suits = self._kind_values.where(lambda kind: kind.suits(claim)).take(self._kinds[start:])
        selector = claim.selection.value.selector
        if selector is not None:
            matches = self._label_values.where(lambda labels: selector.matches(dict(labels)))
            suits &= matches.take(self._labels[start:])
        numbers = np.flatnonzero(suits).astype(np.int64) + start
        return numbers, self._groups.take(numbers)

    def groups_of(self, numbers: Numbers) -> Numbers:
        """Return the groups of some volumes."""
        return self._groups.take(numbers)


@dataclass(frozen=True, slots=True)
class Promised:
    """Promised volumes. `numbers`: by class. `names`: by claim (namespace, name)."""

    numbers: dict[str, list[int]] = field(default_factory=dict)
    names: dict[Key, list[str]] = field(default_factory=dict)


class VolumeIndex:
    """All volumes, with those that are reserved for a claim."""

    def __init__(self, volumes: Assumed[Volume]) -> None:
        self._volumes = volumes
        self._follower: Follower | None = None
        self.groups = NodeGroups()
        self.version = 0
        """Changes when numbers of volumes may have changed."""
        self._forget()

    def catch_up(self, nodes: NodeTable) -> Work[None]:
        """Apply the changed volumes, and the nodes that their selectors match.

        Yields while it reads the affinity of changed volumes, and while it looks up their nodes.
        """
        if self._follower is None:
            self._follower = self._volumes.written.follow()
        for _, name in self._follower.pending():
            volume = self._volumes.written.get(name)
            if volume is not None:
                yield from volume.affinity.read()
            yield
        moved = self._follower.moved()
        if moved is None or len(self.groups) > 4 * len(self._known) + _MORE_GROUPS:
            self._begin()
        self.version += moved != []
        for _, name in moved or ():
            self._put(name)
        yield from self.groups.catch_up(nodes)

    def of_class(self, name: str) -> ClassVolumes:
        """Return the volumes of a class."""
        return self._classes[name]

    def choice(
        self, claim: Claim, positions: Numbers, taken: Taken, count: int, promised: Promised
    ) -> tuple[ClassVolumes, Numbers]:
        """Return for each of `count` rows the number of the volume that the claim would get, -1: none, and
        enter it into `taken`.

        A claim with a reserved volume can only get that volume. `taken`: the volumes that other claims of the
        same pod and class would get on each row. `promised`: of `promises`, of the same version.
        """
        found = self._classes[claim.class_name]
        numbers, codes = found.suiting(claim)
        others = promised.numbers.get(claim.class_name)
        if others:
            free = ~np.isin(numbers, others)
            numbers, codes = numbers[free], codes[free]
        picks = first_reached(numbers, codes, self.groups, positions, taken, count)
        for number in reversed(self._set_aside(claim, found, promised)):
            alone = np.array([number])
            own = first_reached(alone, found.groups_of(alone), self.groups, positions, Taken(count), count)
            is_taken = taken.rows(number)
            if is_taken is None:
                is_taken = (own == number) & bool(taken.counts(alone)[0])
            picks = np.where(is_taken, picks, own)
        reached = picks >= 0
        is_alone = reached.copy()
        is_alone[reached] = self.groups.single.take(found.groups_of(picks[reached])) >= 0
        taken.add(picks, is_alone)
        return found, picks

    def promises(self) -> Promised:
        """Return the volumes that are promised to claims and not written yet."""
        found = Promised()
        for volume in self._volumes.promised():
            if volume.claim_ref is not None:
                number = self._classes[volume.class_name].number(volume)
                found.numbers.setdefault(volume.class_name, []).append(number)
                key = (volume.claim_ref.namespace, volume.claim_ref.name)
                found.names.setdefault(key, []).append(volume.ref.name)
        return found

    def _set_aside(self, claim: Claim, found: ClassVolumes, promised: Promised) -> list[int]:
        """Return the numbers of the volumes that name the claim, ascending."""
        key = (claim.ref.namespace, claim.ref.name)
        names = set(self._claimed.get(key, ()))
        names.update(promised.names.get(key, ()))
        latest = [self._volumes.latest(name) for name in names]
        return sorted(
            found.number(volume)
            for volume in latest
            if volume is not None
            and volume.claimed_by(claim)
            and volume.class_name == claim.class_name
            and volume.capacity_nano >= (claim.requested_nano or 0)
            and volume.volume_mode == claim.volume_mode
            and volume.attributes_class == claim.attributes_class
            and not volume.deleting
        )

    def _forget(self) -> None:
        self.groups.clear()
        self._classes: defaultdict[str, ClassVolumes] = defaultdict(ClassVolumes)
        self._known: dict[str, Volume] = {}
        self._claimed: defaultdict[Key, set[str]] = defaultdict(set)

    def _begin(self) -> None:
        self._forget()
        by_class: defaultdict[str, list[Volume]] = defaultdict(list)
        for _, name in self._volumes.written.everything():
            volume = self._volumes.written.get(name)
            if volume is not None:
                self._know(volume)
                by_class[volume.class_name].append(volume)
        for class_name, volumes in by_class.items():
            self._classes[class_name].fill(volumes, self.groups)

    def _know(self, volume: Volume) -> None:
        self._known[volume.ref.name] = volume
        if volume.claim_ref is not None:
            self._claimed[volume.claim_ref.namespace, volume.claim_ref.name].add(volume.ref.name)

    def _put(self, name: str) -> None:
        before, now = self._known.pop(name, None), self._volumes.written.get(name)
        if before is not None:
            self._classes[before.class_name].remove(before)
            if before.claim_ref is not None:
                key = (before.claim_ref.namespace, before.claim_ref.name)
                self._claimed[key].discard(name)
                if not self._claimed[key]:
                    del self._claimed[key]
        if now is not None:
            self._know(now)
            self._classes[now.class_name].put(now, self.groups)
