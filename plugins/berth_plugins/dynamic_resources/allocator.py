"""`Allocator`: the plugin's data about devices, and the verdicts on nodes.

The search runs once for each group of nodes with equal pools. Its result is valid until the group's pools, or
the amounts in use, change. For pods with equal claims, only changed groups are searched again.
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
from berth_plugins.dynamic_resources.inventory import Inventory, NodeGroup, NodePool
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
_MAX_WISHES: Final = 16
Answer = FoundDevices | Status
Found = dict[tuple[str, bytes], tuple[int, Answer]]
"""By key of a `NodeGroup`: the group's stamp at that time, and the result."""


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
        # Results by wish, then by key of a `NodeGroup`.
        self._found: OrderedDict[str, Found] = OrderedDict()

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
        for rows, answer in (yield from self._answers(attempt, nodes)):
            if isinstance(answer, Status):
                codes[rows] = statuses.setdefault(answer, len(statuses))
            else:
                for row in rows:
                    attempt.outcomes[nodes.name(row)] = answer
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

    def _answers(self, attempt: Attempt, nodes: NodeTable) -> Work[list[tuple[Sequence[int], Answer]]]:
        """Return groups of rows with their common answer, without the rows for which no device is needed."""
        answers: list[tuple[Sequence[int], Answer]] = []
        read: dict[int, ClaimToAllocate] = {}
        for one in attempt.unallocated:
            if id(one) not in read:
                read[id(one)] = one.to_allocate()
                yield
        user_claims = tuple(read[id(one)] for one in attempt.unallocated)
        if not user_claims and attempt.extended is None:
            return answers
        if self.inventory.broken:
            name, problem = next(iter(sorted(self.inventory.broken.items())))
            broken = Status.error(f"gather pool information: slice {name}: {problem}")
            return [(range(len(nodes)), broken)]
        wishes = Wishes(attempt, nodes, user_claims)
        if wishes.unfit:
            answers.append((wishes.unfit, CANNOT_FIT))
        found: dict[int, Found] = {}
        late: Status | None = None
        for group in list(self.inventory.groups(nodes)):
            for rows, wish in (yield from wishes.of_rows(group.rows)):
                kept = found.get(id(wish))
                if kept is None:
                    kept = found[id(wish)] = self._kept(wish)
                known = kept.get(group.key)
                if known is not None and known[0] == group.stamp:
                    answers.append((rows, known[1]))
                elif late is not None:
                    # An error ends the cycle: other searches, which may take as long, would change nothing.
                    answers.append((rows, late))
                else:
                    try:
                        answers.append((rows, (yield from self._answer(kept, group, wish))))
                    except _LateError:
                        name = nodes.name(rows[0])
                        late = Status.error(f"node {name}: timed out trying to allocate devices")
                        answers.append((rows, late))
        return answers

    def _kept(self, wish: Wish) -> Found:
        """Return the kept results for this wish."""
        key = f"{self.classes.version} {wish.key}"
        kept = self._found.get(key)
        if kept is None:
            kept = self._found[key] = {}
            if len(self._found) > _MAX_WISHES:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(key)
        return kept

    def _answer(self, kept: Found, group: NodeGroup, wish: Wish) -> Work[Answer]:
        """Search, and keep the result. Raises _LateError."""
        try:
            chosen = yield from self._search(wish.claims, group.pools)
        except NoAllocationHereError as err:
            return Status.unresolvable(str(err))
        except AllocationError as err:
            # Not kept: the error names the claim, which belongs to this pod alone.
            return Status.error(str(err))
        answer: Answer = CANNOT_ALLOCATE
        if chosen is not None:
            answer = FoundDevices(wish.claims, tuple(map(tuple, chosen)), wish.mappings)
        kept[group.key] = group.stamp, answer
        return answer

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
