"""Hard topology spread constraints over columns: the verdicts of a cycle, and of what-if questions.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go`, v1.36.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from berth_sdk.scenarios import Scenarios
from berth_sdk.slices import Work
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable, changed_by
from numpy.typing import NDArray

from berth_plugins.pod_topology_spread.blocks import Blocks
from berth_plugins.pod_topology_spread.domains import Area, scattered
from berth_plugins.pod_topology_spread.plans import Plan

REASON_SKEW: Final = Status.unschedulable("node(s) didn't match pod topology spread constraints")
REASON_LABEL: Final = Status.unresolvable(
    "node(s) didn't match pod topology spread constraints (missing required label)"
)
_STATUSES: Final = (SUCCESS, REASON_LABEL, REASON_SKEW)
_LABEL: Final = 1
_SKEW: Final = 2
_NO_DOMAIN: Final = 2**31 - 1
"""The smallest count where there is no domain: no limit."""
Counts = NDArray[np.int64]


class _Domains:
    """The counts of one constraint: `sums` (int64[codes]), and the smallest count of the domains that
    count.
    """

    __slots__ = ("area", "few", "minimum", "sums")

    def __init__(self, area: Area, sums: Counts, min_domains: int) -> None:
        self.area = area
        self.sums = sums
        self.minimum = _NO_DOMAIN
        if len(area.present):
            # Nearly always every code but 0 is a domain, and no selection is needed.
            counts = sums[1:] if len(area.present) == len(sums) - 1 else sums.take(area.present)
            self.minimum = int(counts.min())
        self.few = len(area.present) < min_domains
        """True if there are fewer domains than `minDomains`: the smallest count reads as 0."""

    def minimum_with(self, codes: NDArray[np.int32], own: Counts, takes_part: NDArray[np.bool_]) -> Counts:
        """Return int64[m]: the smallest count if the domain of each of `codes` had `own` pods."""
        if self.few:
            return np.zeros(len(codes), dtype=np.int64)
        present = self.area.present
        if not len(present):
            return np.full(len(codes), _NO_DOMAIN, dtype=np.int64)
        counts = self.sums.take(present)
        lowest = int(counts.argmin())
        first, code = int(counts[lowest]), int(present[lowest])
        counts[lowest] = _NO_DOMAIN
        others = np.where(codes == code, counts.min(), first)
        return np.where(takes_part, np.minimum(own, others), first)


class Spread:
    """The counts of one plan's pods in one version of the snapshot."""

    def __init__(self, plan: Plan, whole: NodeTable) -> None:
        """`whole`: every node of the snapshot. Call `count`."""
        self._plan = plan
        self._whole = whole
        self._domains: list[_Domains] | None = None
        """The domains of each constraint; None: not counted yet."""
        self._groups: NDArray[np.int32] | None = None
        """The status of each slot, where it was found for all constraints together; None: it was not."""
        self._lacks_label = False
        """True if every node lacks some topology label, so that nothing counts."""

    @staticmethod
    def of(plan: Plan, whole: NodeTable) -> Work[Spread]:
        """Count the pods. `whole`: every node of the snapshot."""
        spread = Spread(plan, whole)
        if plan.labelled is not None:
            yield from plan.labelled.catch_up(whole)
            spread._lacks_label = len(whole) > 0 and not plan.labelled.mask.any()
        if not spread._lacks_label:
            if Blocks.are_for(plan):
                spread._groups = yield from _groups_of_blocks(plan, whole)
            else:
                yield from spread._all_domains()
        return spread

    def verdicts(self, nodes: NodeTable) -> Work[Verdicts]:
        """Return one verdict per row of `nodes`."""
        if self._lacks_label:
            return _verdicts(np.full(len(nodes), _LABEL, dtype=np.int32), len(nodes))
        if self._groups is not None:
            return _verdicts(nodes.take_of(self._groups), len(nodes))
        groups: NDArray[np.int32] | None = None
        for i, domains in enumerate((yield from self._all_domains())):
            constraint = self._plan.constraints[i]
            minimum = 0 if domains.few else domains.minimum
            most = constraint.max_skew + minimum - self._plan.selects_self[i]
            # One verdict per domain, then one look-up per node.
            by_code = np.where(domains.sums > most, np.int32(_SKEW), np.int32(0))
            by_code[0] = _LABEL
            found = domains.area.statuses(by_code, nodes)
            groups = found if groups is None else np.where(groups == 0, found, groups)
            yield
        return _verdicts(groups, len(nodes))

    def what_if(self, scenarios: Scenarios) -> Work[Verdicts]:
        """Return one verdict per scenario."""
        slots = scenarios.nodes.slots
        if self._lacks_label:
            return _verdicts(np.full(len(slots), _LABEL, dtype=np.int32), len(slots))
        groups: NDArray[np.int32] | None = None
        for i, domains in enumerate((yield from self._all_domains())):
            constraint = self._plan.constraints[i]
            labels = domains.area.labels.take(slots)
            takes_part = domains.area.takes_part(slots)
            own = domains.sums.take(labels)
            changes = changed_by(self._plan.changing[i], scenarios.removed, scenarios.added)
            own += np.where(takes_part, changes, 0)
            minimum = domains.minimum_with(labels, own, takes_part)
            found = np.where(own + self._plan.selects_self[i] - minimum > constraint.max_skew, _SKEW, 0)
            found[labels == 0] = _LABEL
            groups = found.astype(np.int32) if groups is None else np.where(groups == 0, found, groups)
            yield
        return _verdicts(groups, len(scenarios))

    def _all_domains(self) -> Work[list[_Domains]]:
        """Return the domains of each constraint. Where the verdicts need none of them, only what-if questions
        count them.
        """
        if self._domains is None:
            plan, whole = self._plan, self._whole
            found = []
            for constraint, area, tally in zip(plan.constraints, plan.areas, plan.tallies, strict=True):
                yield from area.catch_up(whole)
                sums = np.zeros(area.size, dtype=np.int64) if tally is None else area.sums(whole, tally)
                found.append(_Domains(area, sums, constraint.min_domains))
                yield
            self._domains = found
        return self._domains


def _groups_of_blocks(plan: Plan, whole: NodeTable) -> Work[NDArray[np.int32]]:
    """Return int32[slots]: for each node, the status of the first constraint that it fails."""
    blocks = yield from Blocks.of(plan, whole)
    groups = np.zeros(len(whole), dtype=np.int32)
    for first in blocks.firsts:
        block = yield from blocks.block(first)
        constraints = block.constraints
        counts = np.where(block.present, block.sums, _NO_DOMAIN)
        minimum = np.minimum.reduceat(counts, block.starts)
        present = np.add.reduceat(block.present.astype(np.int64), block.starts)
        minimum[present < [one.min_domains for one in constraints]] = 0
        selects_self = plan.selects_self[first : first + len(constraints)]
        most = minimum + [one.max_skew for one in constraints] - selects_self
        found = np.full((len(constraints), len(whole)), _LABEL, dtype=np.int32)
        found[block.which, block.node] = np.where(block.sums[block.domain] > most[block.which], _SKEW, 0)
        of_first = found[(found != 0).argmax(axis=0), np.arange(len(whole))]
        groups = np.where(groups == 0, of_first, groups)
        if groups.all():
            break
        yield
    return scattered(groups, whole.slots, whole.slot_count)


def _verdicts(groups: NDArray[np.int32] | None, count: int) -> Verdicts:
    if groups is None:
        return Verdicts.feasible(count)
    return Verdicts(groups.astype(np.int32, copy=False), _STATUSES)
