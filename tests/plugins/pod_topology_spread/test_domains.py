"""Domains of topology spread constraints: the statuses of nodes by their domain."""

from __future__ import annotations

import numpy as np
from berth_plugins.pod_topology_spread.domains import MAX_STATUSES, Areas, Conditions
from berth_sdk.slices import at_once
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_node, make_table

ZONE = "zone"


def table_of(*zones: str) -> NodeTable:
    return make_table(
        [
            make_node(f"n{i}", labels={ZONE: zone, "host": f"n{i}"} if zone else {})
            for i, zone in enumerate(zones)
        ]
    )


def statuses(areas: Areas, nodes: NodeTable, by_code: list[int], key: str = ZONE) -> list[int]:
    area = areas.area(key, areas.participants(Conditions((key,))))
    at_once(area.catch_up(nodes))
    given = np.resize(np.array(by_code, dtype=np.int32), area.size)
    found = area.statuses(given, nodes)
    assert found.tolist() == given.take(nodes.take_of(area.labels)).tolist()
    return [int(status) for status in found]


def test_status_of_a_node_is_that_of_its_domain() -> None:
    areas, nodes = Areas(), table_of("a", "b", "", "a")
    codes = nodes.label(ZONE)[0].tolist()
    assert statuses(areas, nodes, [7, 8, 9]) == [[7, 8, 9][code] for code in codes]
    assert statuses(areas, nodes, [7, 9, 8]) == [[7, 9, 8][code] for code in codes]
    # Kept ones are the same, and read-only where nodes share them.
    assert statuses(areas, nodes, [7, 8, 9]) == [[7, 8, 9][code] for code in codes]


def test_statuses_follow_a_node_that_moves_to_another_domain() -> None:
    areas = Areas()
    for zones in (("a", "b", "a"), ("a", "a", "b"), ("b", "a", "b")):
        nodes = table_of(*zones)
        codes = nodes.label(ZONE)[0].tolist()
        assert statuses(areas, nodes, [1, 2, 3]) == [[1, 2, 3][code] for code in codes]


def test_kept_statuses_are_limited_in_number() -> None:
    areas, nodes = Areas(), table_of("a", "b", "c", "d", "e", "f")
    for number in range(2 * MAX_STATUSES):
        by_code = [number >> bit & 1 for bit in range(7)]
        assert statuses(areas, nodes, by_code) == [by_code[code] for code in nodes.label(ZONE)[0].tolist()]
    assert len(areas.statuses) == MAX_STATUSES
    many = table_of(*[f"z{i}" for i in range(40)])
    statuses(areas, many, [1, 0, 2], "host")
    assert len(areas.statuses) == MAX_STATUSES
