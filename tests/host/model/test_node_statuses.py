"""The statuses of the snapshot's nodes after one attempt."""

from __future__ import annotations

import numpy as np
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.status import Code, Status, Verdicts
from support.frameworks import table_of

FULL = Status.unschedulable("full", "hot")
WRONG = Status.unresolvable("wrong")


def rejected() -> NodeStatuses:
    statuses = NodeStatuses(table_of("a", "b", "c", "d"))
    statuses.reject(np.array([0, 1, 3]), Verdicts.of([FULL, Status.success(), FULL]), "P")
    statuses.reject(np.array([1]), Verdicts.of([WRONG]), "Q")
    return statuses


def test_equal_verdicts_of_one_plugin_share_a_group() -> None:
    statuses = rejected()
    assert statuses.group_counts() == [(FULL.with_plugin("P"), 2), (WRONG.with_plugin("Q"), 1)]
    assert statuses.rejected_count == 3


def test_a_node_counts_once_for_each_of_its_reasons() -> None:
    assert rejected().reasons() == {"full": 2, "hot": 2, "wrong": 1}


def test_nodes_rejected_without_a_reason_are_counted_with_the_plugins_name() -> None:
    statuses = rejected()
    statuses.reject(np.array([2]), Verdicts.of([Status(Code.UNSCHEDULABLE)]), "R")
    assert statuses.reasons() == {"full": 2, "hot": 2, "wrong": 1, 'rejected by plugin "R"': 1}


def test_unlisted_nodes_give_the_reasons_of_the_absent_status() -> None:
    statuses = rejected()
    statuses.absent = Status.unresolvable("not in the subset")
    assert statuses.reasons()["not in the subset"] == 1
    assert statuses.status_of("c").message == "not in the subset"
    assert statuses.status_of("unknown").message == "not in the subset"


def test_post_filter_sees_names_and_can_ask_by_code() -> None:
    seen = rejected().rejections()
    assert seen.status("b").plugin == "Q"
    names = ["a", "b", "c", "d"]
    assert seen.with_code(Code.UNSCHEDULABLE, names) == ["a", "d"]
    assert seen.with_code(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, names) == ["b", "c"]
