"""`PodChanges`: pods that are removed from, or added to, the rows of a table, as columns.

For what-if questions: plugins read `Scenarios.removed` and `Scenarios.added`, and `NodeTable` computes the
usage of the rows. Row i of the table has the changes `starts[i]` to `starts[i + 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import HostPort, Pod
from berth_sdk.tables.pod_table import PodTable, SharedReading
from berth_sdk.tables.used_ports import UsedPorts

PORTS_COLUMN: Final = "berth/hostPorts"


class PodChanges:
    """c changes of m rows. `rows` (intp[c]): the pods' rows in `table`, in the order of the table's rows.
    `starts`: intp[m + 1].
    """

    def __init__(self, table: PodTable, rows: NDArray[np.intp], starts: NDArray[np.intp]) -> None:
        self.table = table
        self.rows = rows
        self.starts = starts

    @classmethod
    def of(cls, groups: Sequence[Sequence[Pod]], known: PodTable | None = None) -> PodChanges:
        """Return the changes for one group of pods per row. `known`: a table that may have all the pods
        already.
        """
        pods = list(chain.from_iterable(groups))
        starts = np.zeros(len(groups) + 1, dtype=np.intp)
        np.cumsum([len(group) for group in groups], out=starts[1:])
        found = [] if known is None else [known.position(pod.uid) for pod in pods]
        if known is not None and all(
            row is not None and known.pod(row) is pod for row, pod in zip(found, pods, strict=True)
        ):
            return cls(known, np.asarray(found, dtype=np.intp), starts)
        return cls(PodTable.of(pods), np.arange(len(pods)), starts)

    @classmethod
    def none(cls, count: int) -> PodChanges:
        """Return no changes for `count` rows."""
        return cls(_NO_PODS, np.zeros(0, dtype=np.intp), np.zeros(count + 1, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def row_of(self) -> NDArray[np.intp]:
        """intp[c]: the row that each change belongs to, ascending."""
        return np.arange(len(self.starts) - 1).repeat(self.counts())

    def pods(self, row: int) -> tuple[Pod, ...]:
        """Return the pods of one row."""
        return tuple(self.table.pod(at) for at in self.rows[self.starts[row] : self.starts[row + 1]].tolist())

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64[m]: for each row the sum of its pods' `values` (one per row of `table`)."""
        if not len(self.rows):
            return np.zeros(len(self.starts) - 1, dtype=np.int64)
        sums = np.zeros(len(self.rows) + 1, dtype=np.int64)
        values.take(self.rows).cumsum(out=sums[1:])
        at = sums.take(self.starts)
        difference: NDArray[np.int64] = at[1:] - at[:-1]
        return difference

    def requested_of(self, resources: Sequence[str]) -> NDArray[np.int64]:
        """Return int64[k, m]: the summed requests for k resources of the pods of each row."""
        sums = np.zeros((len(resources), len(self.rows) + 1), dtype=np.int64)
        for line, resource in zip(sums, resources, strict=True):
            self.table.requests(resource).take(self.rows).cumsum(out=line[1:])
        at = sums.take(self.starts, axis=1)
        difference: NDArray[np.int64] = at[:, 1:] - at[:, :-1]
        return difference

    def counts(self) -> NDArray[np.int64]:
        """Return int64[m]: the number of pods of each row."""
        # `np.diff` costs five times as much for few rows.
        counts: NDArray[np.int64] = self.starts[1:] - self.starts[:-1]
        return counts

    def non_zero_requests(self, resource: str) -> NDArray[np.int64]:
        """Return int64[m]: requests with the defaults for containers that request nothing."""
        values = np.zeros(len(self.table), dtype=np.int64)
        for at in np.unique(self.rows).tolist():
            values[at] = self.table.pod(at).non_zero_requests.get(resource, 0)
        return self.total(values)

    def have_port(self, port: HostPort) -> NDArray[np.bool_]:
        """Return bool[m]: the rows with a pod that has exactly this port, in its normalized form."""
        codes, values = self.table.encoded(PORTS_COLUMN, normalized_ports)
        has_it = values.where(lambda ports: port in ports)
        return self.total(has_it.take(codes).astype(np.int64)) > 0

    @cached_property
    def used_ports(self) -> UsedPorts:
        """`ports`, for questions about others."""
        return UsedPorts(self.ports)

    @cached_property
    def ports(self) -> set[HostPort]:
        """The distinct host ports of all these pods, normalized."""
        codes, values = self.table.encoded(PORTS_COLUMN, normalized_ports)
        found = (values.values[code] for code in np.unique(codes.take(self.rows)).tolist())
        return set(chain.from_iterable(ports for ports in found if ports is not None))

    def take(self, positions: NDArray[Any]) -> PodChanges:
        """Return the changes of some rows, in the order given (intp[k])."""
        ends = np.zeros(len(positions) + 1, dtype=np.intp)
        if not len(self.rows):
            return PodChanges(self.table, self.rows, ends)
        starts = self.starts.take(positions)
        counts = self.starts.take(positions + 1) - starts
        counts.cumsum(out=ends[1:])
        at = (starts - ends[:-1]).repeat(counts)
        at += np.arange(len(at))
        return PodChanges(self.table, self.rows.take(at), ends)


def _normalized_ports(pod: Pod) -> frozenset[HostPort] | None:
    return frozenset(port.normalized for port in pod.host_ports) or None


normalized_ports: Final = SharedReading(_normalized_ports)
"""Returns the host ports of a pod as nodes count them. None: the pod has none."""

_NO_PODS: Final = PodTable()
