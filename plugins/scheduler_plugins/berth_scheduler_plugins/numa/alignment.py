"""Which zone a container gets, over many nodes at once: the Filter of NodeResourceTopologyMatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.numa.asks import NO_POD, Kind, PodAsks, may_be_elsewhere
from berth_scheduler_plugins.numa.zone_columns import Amounts, Zones

Rows = NDArray[np.bool_]


def misaligned(asks: PodAsks, zones: Zones, nodes: NodeTable) -> dict[str, Rows]:
    """Return bool[n] by reason: the nodes on which the pod, or the first such container, fits into no zone.

    Only nodes with the policy single-numa-node reject.
    """
    aligning = Aligning(asks, zones, nodes.allocatable)
    found: dict[str, Rows] = {}
    by_pod = zones.single & zones.by_pod
    if by_pod.any():
        fits, _ = aligning.fit(asks.together)
        found[NO_POD] = by_pod & ~fits
    left = zones.single & ~zones.by_pod
    if not left.any():
        return found
    for kind, requests in asks.containers:
        fits, chosen = aligning.fit(requests)
        failed = left & ~fits
        found[kind.value] = found.get(kind.value, np.zeros(len(left), dtype=np.bool_)) | failed
        left = left & fits
        if kind is not Kind.INIT:
            # An init container has ended when the others start.
            aligning.take(requests, chosen, left)
    return found


class Aligning:
    """Gives zones to the containers of one pod, one after the other, on n nodes."""

    def __init__(self, asks: PodAsks, zones: Zones, allocatable: Callable[[str], Amounts]) -> None:
        self._asks = asks
        self._zones = zones
        self._allocatable = allocatable
        self._free: dict[str, Amounts] = {}

    def fit(self, requests: Mapping[str, int]) -> tuple[Rows, NDArray[np.intp]]:
        """Return bool[n], the nodes where some zone has room for all of these amounts, and the lowest such
        zone of each node.
        """
        rows = np.ones(len(self._zones.single), dtype=np.bool_)
        fits = self._zones.exists.copy()
        asks_any = np.zeros(len(rows), dtype=np.bool_)
        for resource, amount in requests.items():
            if amount <= 0 or not self._asks.binds(resource):
                continue
            rows &= self._allocatable(resource) > 0
            free = self._room(resource)
            nowhere: Rows = np.logical_and.reduce(free < 0, axis=1)
            if may_be_elsewhere(resource):
                fits &= (free >= amount) | nowhere[:, None]
                asks_any |= ~nowhere
            else:
                fits &= free >= amount
                asks_any |= True
        return rows & (fits.any(axis=1) | ~asks_any), fits.argmax(axis=1)

    def take(self, requests: Mapping[str, int], chosen: NDArray[np.intp], rows: Rows) -> None:
        """Take these amounts off the chosen zone of each node in `rows`."""
        at = np.flatnonzero(rows)
        for resource, amount in requests.items():
            if amount > 0 and self._asks.binds(resource):
                free = self._room(resource)
                has = free[at, chosen[at]] >= amount
                free[at[has], chosen[at[has]]] -= amount

    def _room(self, resource: str) -> Amounts:
        free = self._free.get(resource)
        if free is None:
            free = self._free[resource] = self._zones.free(resource)
        return free
