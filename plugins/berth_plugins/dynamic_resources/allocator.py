"""`Allocator`: the plugin's data about devices, and the verdicts on nodes.

The search runs once for each group of nodes with equal pools. Its result is valid until the group's pools, or
the amounts in use, change. For pods with equal claims, only changed groups are searched again: the nodes of
the others are read as columns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from berth_sdk.clocks import monotonic_s, wall_s
from berth_sdk.handle import Handle
from berth_sdk.slices import Work
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.cel.pieces import in_pieces
from berth_plugins.dynamic_resources.attempt import Attempt, FoundDevices
from berth_plugins.dynamic_resources.binding import is_overdue, readiness
from berth_plugins.dynamic_resources.claims import CLAIMS
from berth_plugins.dynamic_resources.device_classes import CLASSES, DeviceClasses
from berth_plugins.dynamic_resources.inventory import Inventory, NodePool, SeenPools
from berth_plugins.dynamic_resources.kept_results import KeptResults
from berth_plugins.dynamic_resources.ledger import Ledger
from berth_plugins.dynamic_resources.rules import TAINT_RULES, Rules, TaintRules
from berth_plugins.dynamic_resources.search import (
    AllocationError,
    Choice,
    ClaimToAllocate,
    NoAllocationHereError,
    Search,
)
from berth_plugins.dynamic_resources.selectors import SelectorCache
from berth_plugins.dynamic_resources.wishes import Wish, Wishes

SLICES: Final = "resource.k8s.io/resourceslices"
CANNOT_ALLOCATE: Final = Status.unresolvable("cannot allocate all claims")
UNAVAILABLE: Final = Status.unresolvable("resourceclaim not available on the node")
STALE_CLAIM: Final = Status.unresolvable("cannot schedule extended resource claim")
CANNOT_FIT: Final = Status.unresolvable("cannot fit resource")
_MIN_WISHES: Final = 16
_MAX_RESULTS: Final = 200_000
"""The results that are kept, for one wish and one node each: about 350 bytes. Of so many wishes as
`_MIN_WISHES` they are always kept.
"""


class _LateError(Exception):
    """The search took longer than the configuration allows."""


class Allocator:
    """Searches devices for claims. `filter_timeout_s`: for one search; 0: no limit. `binding_timeout_s`:
    until devices must be ready.
    """

    def __init__(
        self, handle: Handle, rules: Rules, filter_timeout_s: float, binding_timeout_s: float
    ) -> None:
        self.rules = rules
        self.claims = handle.objects(CLAIMS)
        self.classes = DeviceClasses(lambda: handle.objects(CLASSES))
        taint_rules = TaintRules(handle.objects(TAINT_RULES) if rules.taint_rules else None)
        self.inventory = Inventory(handle.objects(SLICES), taint_rules, local_counters=rules.local_counters)
        self.ledger = Ledger(self.claims, self.inventory.touch, monotonic_s, full_names=rules.full_names)
        self._selectors = SelectorCache()
        self._filter_timeout_s = filter_timeout_s
        self._binding_timeout_s = binding_timeout_s
        self._found: OrderedDict[str, KeptResults] = OrderedDict()
        """Results by wish, the one that was used last at the end."""

    def refresh(self) -> Work[None]:
        """Apply the cluster's changes. Yields after each object."""
        yield from self.inventory.refresh()
        yield from self.ledger.refresh()

    def verdicts(self, attempt: Attempt, nodes: NodeTable) -> Work[Verdicts]:
        """Return one verdict for each row, in pieces. The results per node go into the attempt."""
        if attempt.extended is not None and attempt.extended.stale is not None:
            return Verdicts.all(len(nodes), STALE_CLAIM)
        codes = np.zeros(len(nodes), dtype=np.int32)
        statuses: dict[Status, int] = {SUCCESS: 0}
        for rows, status in (yield from self._rejections(attempt, nodes)):
            codes[rows] = statuses.setdefault(status, len(statuses))
        verdicts = Verdicts(codes, tuple(statuses))
        # A claim that excludes a node counts only where everything else could be allocated.
        away = np.zeros(len(nodes), dtype=np.bool_)
        for i, mask in self._away(attempt, nodes):
            yield
            if attempt.claims[i].is_allocated and (mask & (codes == 0)).any():
                attempt.unavailable.add(i)
            away |= mask
        return verdicts.otherwise(away, UNAVAILABLE)

    # --- allocated claims ----------------------------------------------------------------------

    def _away(self, attempt: Attempt, nodes: NodeTable) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Yield (index, bool[n]) for each allocated or promised claim that excludes nodes, or whose devices
        did not get ready. The index: where the pod's list names the claim first.
        """
        seen: set[int] = set()
        for i, one in enumerate(attempt.claims):
            if id(one) in seen:
                continue
            seen.add(id(one))
            if one.is_allocated and self.is_failing(attempt, i):
                yield i, np.ones(len(nodes), dtype=np.bool_)
            elif one.selector is not None:
                yield i, ~one.selector.over(nodes)

    def is_failing(self, attempt: Attempt, i: int) -> bool:
        """Return True if the devices of an allocated claim failed to get ready, or did not get ready in
        time.
        """
        if not self.rules.binding_conditions:
            return False
        claim = attempt.claims[i].claim
        is_ready, problem = readiness(claim)
        return bool(problem) or (not is_ready and is_overdue(claim, self._binding_timeout_s, wall_s()))

    # --- claims to allocate --------------------------------------------------------------------

    def _rejections(self, attempt: Attempt, nodes: NodeTable) -> Work[list[tuple[NDArray[np.intp], Status]]]:
        """Search devices for all rows. Returns rows with their common rejection; the devices go into the
        attempt. Rows for which no device is needed have neither.
        """
        rejections: list[tuple[NDArray[np.intp], Status]] = []
        read: dict[int, ClaimToAllocate] = {}
        for one in attempt.unallocated:
            if id(one) not in read:
                read[id(one)] = one.to_allocate()
                yield
        user_claims = tuple(read[id(one)] for one in attempt.unallocated)
        if not user_claims and attempt.extended is None:
            return rejections
        if self.inventory.broken:
            name, problem = next(iter(sorted(self.inventory.broken.items())))
            broken = Status.error(f"gather pool information: slice {name}: {problem}")
            return [(np.arange(len(nodes)), broken)]
        wishes = Wishes(attempt, nodes, user_claims)
        if wishes.unfit is not None:
            rejections.append((wishes.unfit, CANNOT_FIT))
        # Other threads take devices and give them back: no change may be lost while nodes get new slots.
        with self.ledger.lock:
            seen = self.inventory.seen_by(nodes)
        outcomes = attempt.outcomes_over(nodes.slot_count, seen.slot_of)
        late: Status | None = None
        for rows, wish in (yield from wishes.of_rows()):
            kept = self._kept(wish, nodes.slot_count)
            stale = kept.stale(rows, nodes.slots, seen)
            failed: dict[int, Status] = {}
            if late is not None:
                # An error ends the cycle: other searches, which may take as long, would change nothing.
                failed = dict.fromkeys(stale.tolist(), late)
            elif len(stale):
                failed, late = yield from self._refresh(kept, stale, wish, nodes, seen)
            slots = nodes.slots[rows]
            outcomes.found[slots] = kept.found[slots]
            outcomes.scores[slots] = kept.scores[slots]
            rejected = kept.is_rejected[slots]
            if failed:
                rejected &= ~np.isin(rows, list(failed))
                rejections += [(np.array([row], dtype=np.intp), status) for row, status in failed.items()]
            rejections.append((rows[rejected], CANNOT_ALLOCATE))
        return rejections

    def _kept(self, wish: Wish, slot_count: int) -> KeptResults:
        """Return the kept results for this wish, for so many slots at least."""
        key = f"{self.classes.version} {wish.key}"
        kept = self._found.get(key)
        if kept is None:
            kept = self._found[key] = KeptResults(slot_count)
            wishes = max(_MIN_WISHES, _MAX_RESULTS // max(slot_count, 1))
            while len(self._found) > wishes:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
            kept.resize(slot_count)
        return kept

    def _refresh(
        self, kept: KeptResults, stale: NDArray[np.intp], wish: Wish, nodes: NodeTable, seen: SeenPools
    ) -> Work[tuple[dict[int, Status], Status | None]]:
        """Search again for the rows `stale`, and keep the results. Yields after each group of nodes.

        Returns, by row, the rejections that are not kept, because their text names the claim, which belongs
        to this pod alone. And the error after which nothing is searched any more; None: no search timed out.
        """
        failed: dict[int, Status] = {}
        late: Status | None = None
        for group in seen.groups(stale):
            status = late
            if late is None:
                try:
                    chosen = yield from self._search(wish.claims, group.pools)
                except NoAllocationHereError as err:
                    status = Status.unresolvable(str(err))
                except AllocationError as err:
                    status = Status.error(str(err))
                except _LateError:
                    name = nodes.name(group.rows.item(0))
                    status = late = Status.error(f"node {name}: timed out trying to allocate devices")
                else:
                    devices = (
                        None
                        if chosen is None
                        else FoundDevices(wish.claims, tuple(map(tuple, chosen)), wish.mappings)
                    )
                    kept.put(group.rows, nodes.slots, seen, devices)
                yield
            if status is not None:
                failed.update(dict.fromkeys(group.rows.tolist(), status))
        return failed, late

    def _search(
        self, claims: Sequence[ClaimToAllocate], pools: Sequence[NodePool]
    ) -> Work[list[list[Choice]] | None]:
        ends_s = monotonic_s() + self._filter_timeout_s

        def is_late() -> None:
            if self._filter_timeout_s and monotonic_s() > ends_s:
                raise _LateError

        def search() -> list[list[Choice]] | None:
            taken, find = self.ledger, self.classes.get
            return Search(claims, pools, taken, self._selectors, find, is_late, self.rules).run()

        work = in_pieces(search)
        while True:
            # Another thread may change the ledger between two pieces: a changed pool is searched again later.
            with self.ledger.lock:
                try:
                    next(work)
                except StopIteration as end:
                    found: list[list[Choice]] | None = end.value
                    return found
            yield
            is_late()
