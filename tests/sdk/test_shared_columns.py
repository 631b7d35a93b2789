"""Which pods share a column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from berth_sdk._shared_columns import RowColumns
from berth_sdk.extension_points import DependsOn
from berth_sdk.testing import make_node, make_pod, make_table


def test_nodes_that_a_pod_names_are_part_of_what_it_is_judged_by() -> None:
    table = make_table([make_node("a"), make_node("b")])
    columns = RowColumns(np.int64, DependsOn.ROW)
    plain = make_pod("p")
    nominated, required = replace(plain, nominated_node="a"), replace(plain, node_name="a")
    found = [columns.column(pod, table) for pod in (plain, nominated, required, replace(plain, name="q"))]
    assert len({id(column) for column in found}) == 3
    assert found[0] is found[3]
