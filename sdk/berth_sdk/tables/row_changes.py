"""`RowChanges`: the usage of rows without some of their pods and with some others, for `NodeTable`.

RowChanges    adds the changes to the columns of the snapshot: the changed pods are known
ToldUsages    has the resulting usage of each row: the changed pods are known by name only
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import HostPort
from berth_sdk.tables.node_columns import NodeUsage, changed_usage
from berth_sdk.tables.pod_changes import PodChanges, normalized_ports
from berth_sdk.tables.used_ports import UsedPorts

Ints = NDArray[np.int64]


class RowChanges:
    """The changes of m rows. The methods take the rows' columns of the snapshot and return changed ones."""

    __slots__ = ("added", "removed")

    def __init__(self, removed: PodChanges, added: PodChanges) -> None:
        self.removed = removed
        self.added = added

    def take(self, positions: NDArray[Any]) -> RowChanges:
        """Return the changes of some rows, in the order given (intp[k])."""
        return RowChanges(self.removed.take(positions), self.added.take(positions))

    def requested(self, column: Ints, resource: str) -> Ints:
        """Return int64[m]: the requests for a resource."""
        for changes, sign in ((self.removed, -1), (self.added, 1)):
            if len(changes):
                column = column + sign * changes.total(changes.table.requests(resource))
        return column

    def requested_of(self, sums: Ints, resources: tuple[str, ...]) -> Ints:
        """Return int64[k, m]: the requests for k resources."""
        for changes, sign in ((self.removed, -1), (self.added, 1)):
            if len(changes):
                sums = sums + sign * changes.requested_of(resources)
        return sums

    def non_zero_requested(self, column: Ints, resource: str) -> Ints:
        """Return int64[m] for cpu or memory, with the defaults for containers that request nothing."""
        return column - self.removed.non_zero_requests(resource) + self.added.non_zero_requests(resource)

    def pod_count(self, column: Ints) -> Ints:
        """Return int64[m]: the number of pods."""
        for changes, sign in ((self.removed, -1), (self.added, 1)):
            if len(changes):
                column = column + sign * changes.counts()
        return column

    def port_taken(self, port: HostPort, users: dict[HostPort, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return bool[m]: where `port` conflicts with a port in use.

        `users`: for each port in use that conflicts with `port`, the rows of the snapshot where the port is
        in use.
        """
        # Ports are a set, as in kube-scheduler's NodeInfo: of two pods with the same port, the first that
        # leaves frees the port.
        taken = np.zeros(len(self.added.starts) - 1, dtype=np.bool_)
        for used, rows in users.items():
            taken |= rows & ~self.removed.have_port(used)
        for used in self.added.used_ports.in_conflict(port):
            taken |= self.added.have_port(used)
        return taken

    def host_ports(self, before: list[frozenset[HostPort]]) -> list[frozenset[HostPort]]:
        """Return the ports in use on each row. `before`: as the snapshot has them."""
        ports = list(before)
        for changes, come in ((self.removed, False), (self.added, True)):
            if not changes.ports:
                continue
            for row, at in zip(changes.row_of.tolist(), changes.rows.tolist(), strict=True):
                own = normalized_ports(changes.table.pod(at)) or frozenset()
                ports[row] = ports[row] | own if come else ports[row] - own
        return ports

    def new_resources(self, known: Container[str]) -> set[str]:
        """Return the resources that added pods request and `known` lacks."""
        table, rows = self.added.table, np.unique(self.added.rows).tolist()
        return {name for row in rows for name in table.pod(row).requests if name not in known}

    def usage(self, row: int, usage: NodeUsage) -> NodeUsage:
        """Return the usage of one row. `usage`: as the snapshot has it."""
        return changed_usage(usage, self.removed.pods(row), self.added.pods(row))


class ToldUsages(RowChanges):
    """Changes whose resulting usage is given. `usages`: one for each row."""

    __slots__ = ("_used_ports", "usages")

    def __init__(self, removed: PodChanges, added: PodChanges, usages: Sequence[NodeUsage]) -> None:
        super().__init__(removed, added)
        self.usages = usages
        self._used_ports: list[UsedPorts] | None = None

    def take(self, positions: NDArray[Any]) -> RowChanges:
        """Return the changes of some rows, in the order given (intp[k])."""
        usages = [self.usages[at] for at in positions.tolist()]
        return ToldUsages(self.removed.take(positions), self.added.take(positions), usages)

    def requested(self, column: Ints, resource: str) -> Ints:
        """Return int64[m]: the requests for a resource."""
        amounts = (usage.requested.get(resource, 0) for usage in self.usages)
        return np.fromiter(amounts, dtype=np.int64, count=len(self.usages))

    def requested_of(self, sums: Ints, resources: tuple[str, ...]) -> Ints:
        """Return int64[k, m]: the requests for k resources."""
        found = np.zeros((len(resources), len(self.usages)), dtype=np.int64)
        for line, resource in zip(found, resources, strict=True):
            line[:] = self.requested(line, resource)
        return found

    def non_zero_requested(self, column: Ints, resource: str) -> Ints:
        """Return int64[m] for cpu or memory, with the defaults for containers that request nothing."""
        amounts = (usage.non_zero_requested.get(resource, 0) for usage in self.usages)
        return np.fromiter(amounts, dtype=np.int64, count=len(self.usages))

    def pod_count(self, column: Ints) -> Ints:
        """Return int64[m]: the number of pods."""
        return np.array([usage.pod_count for usage in self.usages], dtype=np.int64)

    def port_taken(self, port: HostPort, users: dict[HostPort, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return bool[m]: where `port` conflicts with a port in use."""
        if self._used_ports is None:
            self._used_ports = [UsedPorts(usage.host_ports) for usage in self.usages]
        return np.array([bool(used.in_conflict(port)) for used in self._used_ports], dtype=np.bool_)

    def host_ports(self, before: list[frozenset[HostPort]]) -> list[frozenset[HostPort]]:
        """Return the ports in use on each row."""
        return [usage.host_ports for usage in self.usages]

    def new_resources(self, known: Container[str]) -> set[str]:
        """Return the resources that pods request and `known` lacks."""
        return {name for usage in self.usages for name in usage.requested if name not in known}

    def usage(self, row: int, usage: NodeUsage) -> NodeUsage:
        """Return the usage of one row."""
        return self.usages[row]
