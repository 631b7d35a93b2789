"""`PodCounts`: the number of pods of a kind on each node and in each topology domain, updated by changed
slots.

For plugins that compare pods across nodes (spreading, affinity). Read through `NodeTable.pod_counts`; each
set of columns has one, shared by all plugins that read it.

A `Tally`, a hashable value, decides which pods count. Equal tallies share a column. There are two:

    berth_sdk.selected_pods.SelectedPods    pods of some namespaces that a label selector matches
    PodsWith                                any reading of a pod's record, and the weight of each value

    same = SelectedPods(frozenset({pod.namespace}), selector, exclude_terminating=True)
    by_slot = nodes.pod_counts.column(same)                     # int64[capacity], by slot
    here = nodes.take_of(by_slot)                               # int64[n], by row
    zones = nodes.pod_counts.by_domain(same, "topology.kubernetes.io/zone")    # int64[codes], by code
    codes, _ = nodes.label("topology.kubernetes.io/zone")
    in_my_zone = zones.take(codes)                              # int64[n]; zones[0] is 0: no such label

A new tally costs a few passes over the columns of all pods. After that, the cost of a cycle follows the
changes: `Tally.of` for each pod that was added, removed or changed since the last read of the column. For a
`KindTally`, a look-up takes the place of `of` if the tally has weighed a pod of the same kind before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import Pod
from berth_sdk.tables.read_only import extended, read_only
from berth_sdk.tables.slot_follower import Moved, SlotFollower
from berth_sdk.tables.slot_log import RecentLog

if TYPE_CHECKING:
    from berth_sdk.tables.dictionary import Dictionary
    from berth_sdk.tables.node_columns import NodeColumns
    from berth_sdk.tables.pod_changes import PodChanges
    from berth_sdk.tables.pod_table import PodTable

MAX_COLUMNS: Final = 512
"""The number of tallies whose columns are kept. The least recently used is dropped first. A column takes 40
kB at 5000 nodes.
"""
_MAX_DOMAINS: Final = 16
"""The number of sums by domain that are kept per tally."""
REMEMBERED: Final = 1024
"""The number of pod changes that are kept for columns that are behind. They hold records of removed pods."""
_MAX_READINGS: Final = 32
"""The number of functions `KindTally.kind_of` whose kinds are kept."""
_MAX_KINDS: Final = 4096
"""The number of kinds that are kept per function."""
_MAX_WEIGHTS: Final = 512
"""The number of weights by kind that are kept per tally."""


@runtime_checkable
class Tally(Hashable, Protocol):
    """Decides which pods count, and how much: a function of the pod's record alone.

    `of` and `over` must agree. See `KindTally` for a tally that counts many pods alike.
    """

    def of(self, pod: Pod) -> int:
        """Return the count of one pod; 0: the pod does not count."""
        ...

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]: `of` for every row."""
        ...


@runtime_checkable
class KindTally(Tally, Protocol):
    """A tally that counts all pods of one kind alike: `of` is called for one pod of each kind."""

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        """The function that reads the kind of a pod: everything that `of` follows from.

        Always the same function object for tallies that read the same parts, so that they share the readings.
        """
        ...


@dataclass(frozen=True, slots=True)
class PodsWith:
    """Counts pods by a value that `read` finds in them: each pod counts the weight of its value.

    `name` and `read` as in `PodTable.encoded`: always the same function for a name, which depends on the
    pod's record alone. `weigh` is called once per distinct value, never with None, which counts 0. Tallies
    are equal if all three fields are equal, so `weigh` should be a function of a module, or a frozen
    dataclass with `__call__`.
    """

    name: str
    read: Callable[[Pod], Hashable | None]
    weigh: Callable[[Any], int]

    def of(self, pod: Pod) -> int:
        """Return the count of one pod."""
        value = self.read(pod)
        return 0 if value is None else int(self.weigh(value))

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]."""
        codes, values = pods.encoded(self.name, self.read)
        weights = np.zeros(len(values), dtype=np.int64)
        for code, value in enumerate(values.values):
            if value is not None:
                weights[code] = self.weigh(value)
        return weights.take(codes)


def changed_by(tally: Tally, removed: PodChanges, added: PodChanges) -> NDArray[np.int64]:
    """Return int64[m]: how much more each row of a table with changes counts than its node (`Scenarios`)."""
    return _total(tally, added) - _total(tally, removed)


def _total(tally: Tally, changes: PodChanges) -> NDArray[np.int64]:
    if not len(changes):
        return np.zeros(len(changes.starts) - 1, dtype=np.int64)
    return changes.total(tally.over(changes.table))


class _Domains:
    """The counts of one tally by the values of one label, among some nodes, at one version of the Node
    objects.
    """

    __slots__ = ("among", "nodes_version", "sums", "values")

    def __init__(
        self,
        sums: NDArray[np.int64],
        among: NDArray[np.bool_] | None,
        values: Dictionary[str],
        nodes_version: int,
    ) -> None:
        self.sums = sums
        # Referenced so that no other array can get its identity meanwhile.
        self.among = among
        self.values = values
        self.nodes_version = nodes_version


_DomainsKey = tuple[str, int | None]


class _Column:
    """The counts of one tally by slot, and their position in the log of changes. `weights`: what the tally
    counts for a pod, by the number of its kind.
    """

    __slots__ = ("counts", "domains", "position", "weights")

    def __init__(self, counts: NDArray[np.int64], position: int) -> None:
        self.counts = counts
        self.position = position
        self.domains: dict[_DomainsKey, _Domains] = {}
        self.weights: dict[int, int] = {}


_Change = tuple[int, Pod, int]
"""The slot, the pod, and 1 for a pod that came or -1 for one that left."""


class _Kinds:
    """The kinds of the pods in the log, as numbers, for all tallies with one `kind_of`. No number is used
    for two kinds, nor for a kind of another function: a tally may give another one at each read.
    """

    __slots__ = ("_first", "_kind_of", "_log", "_most", "_next", "_number_of", "_numbers")

    def __init__(
        self,
        kind_of: Callable[[Pod], Hashable],
        log: RecentLog[_Change],
        most: int,
        unused: Iterator[int],
    ) -> None:
        """`most`: the number of changes whose kinds are kept. `unused`: the numbers for new kinds."""
        self._kind_of = kind_of
        self._log = log
        self._most = most
        self._number_of: dict[Hashable, int] = {}
        self._next = unused
        self._numbers: list[int] = []
        self._first = log.position
        """The position of the first of `_numbers` in the log."""

    def since(self, position: int) -> list[int]:
        """Return the kind of each change after `position`. The log must have all of these changes."""
        numbers, start = self._numbers, self._first + len(self._numbers)
        more = self._log.since(start) if position >= self._first else None
        if more is None:
            numbers.clear()
            self._first = position
            more = self._log.since(position) or []
        if more:
            kind_of, number_of = self._kind_of, self._number_of
            for _, pod, _ in more:
                kind = kind_of(pod)
                number = number_of.get(kind)
                if number is None:
                    if len(number_of) >= _MAX_KINDS:
                        number_of.clear()
                    number = number_of[kind] = next(self._next)
                numbers.append(number)
        found = numbers[position - self._first :]
        if len(numbers) > 2 * self._most:
            self._first += len(numbers) - self._most
            del numbers[: -self._most]
        return found


class PodCounts:
    """The counts over the pods of one `NodeColumns`, always of its current version.

    Slots without a node count 0. Raises ValueError where the pods are not known; a served plugin declares
    `Need.pods()`.
    """

    def __init__(
        self, columns: NodeColumns, *, max_columns: int = MAX_COLUMNS, remembered: int = REMEMBERED
    ) -> None:
        self._nodes = columns
        self.max_columns = max_columns
        self._tallies: OrderedDict[Tally, _Column] = OrderedDict()
        # The pods of each slot as `_log` has them: PodTable's own lists, which never change.
        self._seen: list[Sequence[Pod]] = []
        self._rows = SlotFollower(Moved.ROW)
        self._log: RecentLog[_Change] = RecentLog(remembered)
        self._remembered = remembered
        self._kinds: dict[Callable[[Pod], Hashable], _Kinds] = {}
        self._unused_kinds = count()

    def __len__(self) -> int:
        return len(self._tallies)

    def column(self, tally: Tally) -> NDArray[np.int64]:
        """Return int64[capacity], by slot (`NodeTable.take_of` gives rows): read-only, of this version."""
        return read_only(self._column(tally).counts)

    def _column(self, tally: Tally) -> _Column:
        self._catch_up()
        column = self._tallies.get(tally)
        if column is None:
            column = self._tallies[tally] = _Column(self._counted(tally), self._log.position)
            if len(self._tallies) > self.max_columns:
                self._tallies.popitem(last=False)
        else:
            self._tallies.move_to_end(tally)
            self._bring_up_to_date(column, tally)
        return column

    def by_domain(
        self, tally: Tally, topology_key: str, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return int64[number of codes], by the codes of the label `topology_key`, as in `NodeTable.label`.

        `among` (bool[capacity], by slot): only nodes that are true count. Code 0, nodes without the label,
        counts 0. The result is read-only, of this version. The sums are updated like the columns, for the
        same array object `among`, which must not change afterwards.
        """
        column = self._column(tally)
        key = (topology_key, None if among is None else id(among))
        domains = column.domains.get(key)
        if domains is None or not self._still_holds(topology_key, domains):
            sums = self.sums(column.counts, topology_key, among)
            _, values = self._nodes.label(topology_key)
            if len(column.domains) >= _MAX_DOMAINS:
                column.domains.clear()
            domains = _Domains(sums, among, values, self._nodes.nodes_version)
            column.domains[key] = domains
        return read_only(domains.sums)

    def sums(
        self, counts: NDArray[np.int64], topology_key: str, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the sums of `by_domain` for any numbers by slot."""
        codes, values = self._nodes.label(topology_key)
        weights = counts if among is None else counts * among
        # Sums of whole numbers below 2**53 are exact.
        sums = np.bincount(codes, weights=weights, minlength=len(values)).astype(np.int64)
        sums[0] = 0
        return sums

    # --- updates -----------------------------------------------------------------------------------

    def _pods(self) -> PodTable:
        if self._nodes.pods is None:
            raise ValueError("these nodes have no pods: add Need.pods() to `needs`")
        return self._nodes.pods

    def _counted(self, tally: Tally) -> NDArray[np.int64]:
        pods = self._pods()
        each = tally.over(pods)
        # Most tallies count few of the pods.
        rows = np.flatnonzero(each)
        slots = pods.node_index.take(rows)
        counts = np.bincount(slots, weights=each.take(rows), minlength=self._nodes.capacity)
        return counts.astype(np.int64)

    def _still_holds(self, topology_key: str, domains: _Domains) -> bool:
        """Return True if no node was added, removed or changed since, and the label's column is the same."""
        _, values = self._nodes.label(topology_key)
        return domains.nodes_version == self._nodes.nodes_version and domains.values is values

    def _bring_up_to_date(self, column: _Column, tally: Tally) -> None:
        changes = self._log.since(column.position)
        if changes is None:
            column.counts = self._counted(tally)
            column.domains.clear()
            column.position = self._log.position
            return
        for key in [key for key, domains in column.domains.items() if not self._still_holds(key[0], domains)]:
            del column.domains[key]
        if len(column.counts) < self._nodes.capacity:
            column.counts = extended(column.counts, self._nodes.capacity - len(column.counts))
        weights = self._weights(column, tally, changes)
        column.position = self._log.position
        if not any(weights):
            return
        by_label = [
            (self._nodes.label(key)[0], one.among, one.sums) for (key, _), one in column.domains.items()
        ]
        for (slot, _, sign), weight in zip(changes, weights, strict=True):
            if weight:
                column.counts[slot] += sign * weight
                for codes, among, sums in by_label:
                    if codes[slot] and (among is None or among[slot]):
                        sums[codes[slot]] += sign * weight

    def _weights(self, column: _Column, tally: Tally, changes: Sequence[_Change]) -> Sequence[int]:
        """Return `tally.of` for the pod of each change after the column's position."""
        kind_of: Callable[[Pod], Hashable] | None = getattr(tally, "kind_of", None)
        if kind_of is None or not changes:
            return [tally.of(pod) for _, pod, _ in changes]
        kinds = self._kinds.get(kind_of)
        if kinds is None:
            if len(self._kinds) >= _MAX_READINGS:
                self._kinds.clear()
            kinds = self._kinds[kind_of] = _Kinds(kind_of, self._log, self._remembered, self._unused_kinds)
        numbers, known = kinds.since(column.position), column.weights
        weights = [known.get(number) for number in numbers]
        if None in weights:
            if len(known) >= _MAX_WEIGHTS:
                known.clear()
            for at, (_, pod, _) in enumerate(changes):
                if weights[at] is None:
                    weight = known.get(numbers[at])
                    weights[at] = known[numbers[at]] = tally.of(pod) if weight is None else weight
        return [weight or 0 for weight in weights]

    def _catch_up(self) -> None:
        """Log the pods that were added to and removed from the changed slots."""
        pods = self._pods()
        moved = self._rows.moved_in(self._nodes)
        if moved is None:
            self._seen = [pods.pods_of(slot) for slot in range(self._nodes.capacity)]
            self._log.forget()
            return
        if len(self._seen) < self._nodes.capacity:
            self._seen.extend([()] * (self._nodes.capacity - len(self._seen)))
        for slot in moved:
            before, now = self._seen[slot], pods.pods_of(slot)
            if before is now:
                continue
            self._seen[slot] = now
            left = {id(pod): pod for pod in before}
            for pod in now:
                if left.pop(id(pod), None) is None:
                    self._log.add((slot, pod, 1))
            for pod in left.values():
                self._log.add((slot, pod, -1))
