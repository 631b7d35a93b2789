"""The pod's claims against all nodes at once -> verdicts, and the volumes that each claim would get on each
node.

Called at Filter. Source: `pkg/scheduler/framework/plugins/volumebinding/binder.go` (FindPodVolumes,
checkBoundClaims, findMatchingVolumes), v1.36.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from berth_sdk.handle import Handle
from berth_sdk.slices import Work
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.volumes.csi_migration import IN_TREE, TranslationError, csi_affinity
from berth_plugins.volumes.csi_nodes import CsiNodes
from berth_plugins.volumes.records import Claim, Stores, Volume
from berth_plugins.volumes.volume_binding.assuming import Assumed
from berth_plugins.volumes.volume_binding.claims import PodClaims
from berth_plugins.volumes.volume_binding.groups import Taken, positions_by_slot
from berth_plugins.volumes.volume_binding.provisioning import Capacity, Provisioning
from berth_plugins.volumes.volume_binding.volumes import VolumeIndex

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Match:
    """A claim and the volume that it gets: `numbers` (int64[n]) into `volumes`, -1: none."""

    claim: Claim
    volumes: list[Volume]
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim that gets a new volume on the rows of `needed` (bool[n]). `pools`: the capacities of its class.
    `numbers` (int64[n]): which of the pools each row uses.
    """

    claim: Claim
    needed: Mask
    pools: list[Capacity] = field(default_factory=list)
    numbers: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Filter's findings for the rows of `nodes`. Valid where the verdict was success."""

    nodes: NodeTable
    passed: Mask
    matches: tuple[Match, ...] = ()
    provisions: tuple[Provision, ...] = ()

    def has(self, node_name: str) -> bool:
        """Return True if the node was judged and passed."""
        row = self.nodes.position(node_name)
        return row is not None and bool(self.passed[row])

    def at(self, node_name: str) -> Work[tuple[list[tuple[Claim, Volume]], list[Claim]]]:
        """Return (claims with the volumes they get, claims to provision) for one node. Yields after each
        claim.
        """
        matches: list[tuple[Claim, Volume]] = []
        provisions: list[Claim] = []
        row = self.nodes.position(node_name)
        if row is None:
            return matches, provisions
        for match in self.matches:
            number = int(match.numbers[row])
            if number >= 0:
                matches.append((match.claim, match.volumes[number]))
            yield
        for one in self.provisions:
            if one.needed[row]:
                provisions.append(one.claim)
            yield
        return matches, provisions


class _Rows:
    """The reasons against each row, so far."""

    def __init__(self, count: int) -> None:
        self.wrong = {reason: np.zeros(count, dtype=np.bool_) for reason in _REASONS}
        self.error: NDArray[np.int32] = np.zeros(count, dtype=np.int32)
        self.errors: list[str] = [""]
        self.ok: Mask = np.ones(count, dtype=np.bool_)
        """The rows whose claims without a volume still have to be checked."""

    def fail(self, mask: Mask, text: str) -> None:
        """Set an error on these rows, unless they have one."""
        new = mask & (self.error == 0)
        if new.any():
            self.error = np.where(new, np.int32(len(self.errors)), self.error)
            self.errors.append(text)

    def reject(self, mask: Mask, reason: str) -> None:
        """Add a reason to these rows. Their other claims no longer matter."""
        self.wrong[reason] |= mask
        self.ok &= ~mask

    def verdicts(self) -> Verdicts:
        """Return all reasons of each row, in kube-scheduler's order."""
        codes = self.error.astype(np.int64) * 16
        for bit, reason in enumerate(_REASONS):
            codes += (self.wrong[reason] & (self.error == 0)) * np.int64(1 << bit)
        distinct, groups = np.unique(codes, return_inverse=True)
        statuses = [Status.success(), *(self._status(code) for code in distinct.tolist())]
        if distinct[0] == 0:
            return Verdicts(groups.astype(np.int32), (Status.success(), *statuses[2:]))
        return Verdicts(groups.astype(np.int32) + 1, tuple(statuses))

    def _status(self, code: int) -> Status:
        if code >= 16:
            return Status.error(self.errors[code // 16])
        return Status.unresolvable(*(reason for bit, reason in enumerate(_REASONS) if code >> bit & 1))


class Finder:
    """The data that Filter needs, kept from cycle to cycle."""

    def __init__(
        self, handle: Handle, stores: Stores, volumes: Assumed[Volume], *, exact_sizes: bool = True
    ) -> None:
        self._stores = stores
        self._volumes = volumes
        self._csi_nodes = CsiNodes(handle)
        self._index = VolumeIndex(volumes)
        self._provisioning = Provisioning(handle, stores.classes, exact=exact_sizes)

    def find(self, wanted: PodClaims, nodes: NodeTable) -> Work[tuple[Verdicts, Found]]:
        """Return verdicts and findings for every row. Yields after each claim, and each term of a volume."""
        if not len(nodes):
            return Verdicts.feasible(0), Found(nodes, np.zeros(0, dtype=np.bool_))
        rows = _Rows(len(nodes))
        yield from self._check_bound(wanted, nodes, rows)
        matches: tuple[Match, ...] = ()
        provisions: tuple[Provision, ...] = ()
        if wanted.waiting:
            matches, provisions = yield from self._place_waiting(wanted, nodes, rows)
        verdicts = rows.verdicts()
        return verdicts, Found(nodes, verdicts.passed, matches, provisions)

    # --- bound claims ------------------------------------------------------------------------------

    def _check_bound(self, wanted: PodClaims, nodes: NodeTable, rows: _Rows) -> Work[None]:
        """Check the bound claims. The first claim that does not fit a node decides about the node."""
        left = np.ones(len(nodes), dtype=np.bool_)
        for claim in wanted.bound:
            volume = self._volumes.latest(claim.volume_name)
            if volume is None:
                rows.wrong[NO_VOLUME] |= left
                return
            reached = yield from self._reached(volume, nodes, rows, left)
            if reached is not None:
                rows.wrong[NODE_CONFLICT] |= left & ~reached
                left &= reached
            yield

    def _reached(self, volume: Volume, nodes: NodeTable, rows: _Rows, left: Mask) -> Work[Mask | None]:
        """Return bool[n]: the nodes that can use the volume; None: all. Where its plugin has been migrated,
        it is judged as a CSI volume.
        """
        reached: Mask | None = None
        written = yield from volume.affinity.read()
        if written is not None:
            reached = yield from written.over_in_steps(nodes)
        plugin = IN_TREE.get(volume.source)
        if plugin is None or not plugin.is_on:
            return reached
        self._csi_nodes.catch_up(nodes)
        migrated = self._csi_nodes.migrated(plugin.name, nodes)
        if not migrated.any():
            return reached
        try:
            affinity = yield from csi_affinity(volume)
        except TranslationError as err:
            rows.fail(left & migrated, f"could not translate pv: {err}")
            return reached
        everywhere = np.ones(len(nodes), dtype=np.bool_)
        as_csi = everywhere if affinity is None else (yield from affinity.over_in_steps(nodes))
        return np.where(migrated, as_csi, everywhere if reached is None else reached)

    # --- claims without a volume -------------------------------------------------------------------

    def _place_waiting(
        self, wanted: PodClaims, nodes: NodeTable, rows: _Rows
    ) -> Work[tuple[tuple[Match, ...], tuple[Provision, ...]]]:
        yield from self._index.catch_up(nodes)
        yield from self._provisioning.catch_up(nodes)
        positions = positions_by_slot(nodes)
        to_provision: list[tuple[Claim, Mask]] = []
        to_match: list[Claim] = []
        for claim in wanted.waiting:
            if claim.selected_node is None:
                to_match.append(claim)
                continue
            elsewhere = np.ones(len(nodes), dtype=np.bool_)
            row = nodes.position(claim.selected_node)
            if row is not None:
                elsewhere[nodes.slots == nodes.slots[row]] = False
            rows.reject(rows.ok & elsewhere, BIND_CONFLICT)
            to_provision.append((claim, ~elsewhere))
            yield
        matches = yield from self._matched(to_match, positions, nodes, rows)
        to_provision += [(one.claim, one.numbers < 0) for one in matches]
        return matches, (yield from self._provisioned(to_provision, positions, nodes, rows))

    def _matched(
        self, claims: list[Claim], positions: Numbers, nodes: NodeTable, rows: _Rows
    ) -> Work[tuple[Match, ...]]:
        """Match claims with volumes, the smallest claims first. Yields after each claim, and begins again if
        another call has changed the numbers of volumes meanwhile.
        """
        matches: list[Match] = []
        taken_of: defaultdict[str, Taken] = defaultdict(lambda: Taken(len(nodes)))
        version, promised = self._index.version, self._index.promises()
        for claim in sorted(claims, key=lambda one: one.requested_nano or 0):
            selection = yield from claim.selection.read()
            if selection.error:
                text = f"error creating internal label selector for claim: {claim.ref.key}"
                rows.fail(rows.ok, f"{text}: {selection.error}")
                return tuple(matches)
            taken = taken_of[claim.class_name]
            found, numbers = self._index.choice(claim, positions, taken, len(nodes), promised)
            matches.append(Match(claim, found.volumes, numbers))
            yield
            if self._index.version != version:
                return (yield from self._matched(claims, positions, nodes, rows))
        return tuple(matches)

    def _provisioned(
        self, claims: list[tuple[Claim, Mask]], positions: Numbers, nodes: NodeTable, rows: _Rows
    ) -> Work[tuple[Provision, ...]]:
        provisions: list[Provision] = []
        possible_for: dict[str, Mask] = {}
        for claim, wanted in claims:
            yield
            needed = wanted & rows.ok & (rows.error == 0)
            if not needed.any():
                continue
            storage_class = self._stores.classes.get(claim.class_name) if claim.class_name else None
            if storage_class is None:
                missing = f'failed to find storage class "{claim.class_name}"'
                rows.fail(needed, missing if claim.class_name else f'no class for claim "{claim.ref.key}"')
                continue
            possible = possible_for.get(storage_class.name)
            if possible is None:
                possible = yield from self._provisioning.nodes_for(storage_class, nodes)
                possible_for[storage_class.name] = possible
            rows.reject(needed & ~possible, BIND_CONFLICT)
            pools = self._provisioning.pools_for(storage_class, claim, positions, len(nodes))
            if pools is None:
                provisions.append(Provision(claim, needed & possible))
                continue
            items, numbers = pools
            rows.reject(needed & possible & (numbers < 0), NO_SPACE)
            provisions.append(Provision(claim, needed & possible & (numbers >= 0), items, numbers))
        return tuple(provisions)
