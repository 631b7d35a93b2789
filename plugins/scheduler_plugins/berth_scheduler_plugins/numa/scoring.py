"""The scoring strategies of NodeResourceTopologyMatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final

import numpy as np
from berth_sdk.status import MAX_NODE_SCORE
from numpy.typing import NDArray

from berth_scheduler_plugins.numa.asks import Kind, PodAsks, may_be_elsewhere
from berth_scheduler_plugins.numa.topology import POD, Topology, Zone
from berth_scheduler_plugins.numa.zone_columns import Zones

Scores = NDArray[np.int64]
LEAST, MOST = "LeastAllocated", "MostAllocated"
BALANCED, FEWEST = "BalancedAllocation", "LeastNUMANodes"
STRATEGIES: Final = (LEAST, MOST, BALANCED, FEWEST)
_MOST_SETS: Final = 20_000
"""The number of sets of zones of one size that are tried. A node with 16 zones has fewer of any size."""
_MILLI: Final = 1000


def zone_scores(strategy: str, weights: Mapping[str, int], asks: PodAsks, zones: Zones) -> Scores:
    """Return int64[n], the scores by LEAST, MOST or BALANCED; 0 without the policy single-numa-node."""
    by_pod = _of_zones(strategy, weights, asks.together, zones)
    by_container = np.zeros(len(by_pod), dtype=np.int64)
    counted = 0
    for _, requests in asks.containers:
        if requests:
            by_container += _of_zones(strategy, weights, requests, zones)
            counted += 1
    # A pod whose containers ask for nothing is as good anywhere.
    mean = by_container // counted if counted else np.full(len(by_pod), MAX_NODE_SCORE, dtype=np.int64)
    return np.where(zones.single, np.where(zones.by_pod, by_pod, mean), 0)


def _of_zones(strategy: str, weights: Mapping[str, int], requests: Mapping[str, int], zones: Zones) -> Scores:
    """Return int64[n]: the lowest score of a zone that is not 0; 0 if all are."""
    if not requests:
        return np.full(len(zones.single), MAX_NODE_SCORE, dtype=np.int64)
    score = _balanced if strategy == BALANCED else _weighted(strategy, weights)
    found = np.where(zones.exists, score(requests, zones), 0)
    lowest = np.where(found > 0, found, MAX_NODE_SCORE + 1).min(axis=1, initial=MAX_NODE_SCORE + 1)
    return np.where(lowest > MAX_NODE_SCORE, 0, lowest)


def _weighted(strategy: str, weights: Mapping[str, int]) -> Callable[[Mapping[str, int], Zones], Scores]:
    def score(requests: Mapping[str, int], zones: Zones) -> Scores:
        total, weight_sum = np.zeros(zones.exists.shape, dtype=np.int64), 0
        for resource, amount in requests.items():
            free, asked = _in_units(resource, zones, amount)
            room = np.where(free > 0, free, 1)
            part = (free - asked if strategy == LEAST else asked) * MAX_NODE_SCORE // room
            weight = weights.get(resource, 1)
            total += weight * np.where((free > 0) & (asked <= free), part, 0)
            weight_sum += weight
        return total // weight_sum

    return score


def _balanced(requests: Mapping[str, int], zones: Zones) -> Scores:
    fractions, fits = [], zones.exists.copy()
    for resource, amount in requests.items():
        free, asked = _in_units(resource, zones, amount)
        fraction = np.where(free > 0, asked / np.where(free > 0, free, 1), 1.0)
        fits &= fraction <= 1
        fractions.append(fraction)
    spread = np.var(fractions, axis=0, ddof=1) if len(fractions) > 1 else np.zeros(fits.shape)
    return np.where(fits, (1 - spread) * MAX_NODE_SCORE, 0).astype(np.int64)


def _in_units(resource: str, zones: Zones, amount: int) -> tuple[Scores, int]:
    """Return int64[n, zones] of what is free, 0 for a zone without it, and the amount: cpu in whole cores."""
    free = np.maximum(zones.free(resource), 0)
    if resource == "cpu":
        return -(-free // _MILLI), -(-amount // _MILLI)
    return free, amount


def fewest_zones_score(asks: PodAsks, topology: Topology, free: Sequence[Mapping[str, int]]) -> int:
    """Return the score of a node by FEWEST: the fewer zones the pod needs, and the nearer, the better.

    `free`: the amounts of each zone, in the order of `topology.zones`.
    """
    zones = topology.zones
    left = [dict(amounts) for amounts in free]
    wanted: Iterable[tuple[Kind, Mapping[str, int]]] = asks.containers
    if topology.scope == POD:
        wanted = ((Kind.MAIN, asks.together),)
    most, nearest, asked = 0, True, False
    for kind, requests in wanted:
        bound = {
            resource: amount
            for resource, amount in requests.items()
            if amount > 0 and any(resource in amounts for amounts in left)
        }
        if any(
            amount > 0 and resource not in bound and not may_be_elsewhere(resource)
            for resource, amount in requests.items()
        ):
            return 0
        if not bound:
            continue
        asked = True
        chosen, is_nearest = _smallest_set(bound, zones, left)
        if chosen is None:
            return 0
        most, nearest = max(most, len(chosen)), nearest and is_nearest
        if kind is not Kind.INIT:
            _take(bound, chosen, left)
    if not asked:
        return MAX_NODE_SCORE
    step = MAX_NODE_SCORE // topology.most_zones
    return max(MAX_NODE_SCORE - most * step + (step // 2 if nearest else 0), 0)


def _smallest_set(
    asked: Mapping[str, int], zones: Sequence[Zone], free: Sequence[Mapping[str, int]]
) -> tuple[tuple[int, ...] | None, bool]:
    """Return the nearest of the smallest sets with room, and True if no set of that size is nearer."""
    for size in range(1, len(zones) + 1):
        if comb(len(zones), size) > _MOST_SETS or not _may_fit(asked, free, size):
            continue
        sets = list(combinations(range(len(zones)), size))
        fitting = [one for one in sets if _fits(asked, free, one)]
        if fitting:
            distances = {one: _distance(zones, one) for one in sets}
            chosen = min(fitting, key=distances.__getitem__)
            return chosen, distances[chosen] == min(distances.values())
    return None, False


def _may_fit(asked: Mapping[str, int], free: Sequence[Mapping[str, int]], size: int) -> bool:
    return all(
        sum(sorted((amounts.get(resource, 0) for amounts in free), reverse=True)[:size]) >= amount
        for resource, amount in asked.items()
    )


def _fits(asked: Mapping[str, int], free: Sequence[Mapping[str, int]], chosen: Sequence[int]) -> bool:
    return all(
        sum(free[zone].get(resource, 0) for zone in chosen) >= amount for resource, amount in asked.items()
    )


def _distance(zones: Sequence[Zone], chosen: Sequence[int]) -> int:
    """Return the sum of the distances in a set: of sets of one size, it orders them as the mean does."""
    return sum(zones[one].costs.get(zones[other].number, 0) for one in chosen for other in chosen)


def _take(asked: Mapping[str, int], chosen: Sequence[int], left: Sequence[dict[str, int]]) -> None:
    for resource, amount in asked.items():
        wanted = amount
        for zone in chosen:
            taken = min(left[zone].get(resource, 0), wanted)
            if taken:
                left[zone][resource] -= taken
                wanted -= taken
