"""The kept records of attempts, and the contents of one."""

from __future__ import annotations

import numpy as np
from berth_host.explain.diagnosis import ATTEMPTS_KEPT, Diagnoses, Diagnosis
from berth_host.explain.slot_names import SlotNames
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.pod import Pod
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.testing import make_node
from hypothesis import given
from hypothesis import strategies as st
from support.frameworks import table_of


def diagnosis(name: str, attempt: int = 1) -> Diagnosis:
    return Diagnosis(
        pod=Pod(name=name, uid=f"uid-{name}"),
        profile="default-scheduler",
        cycle_id="c",
        attempt=attempt,
        started_at_s=0.0,
    )


def test_ring_keeps_the_latest_attempt_of_the_latest_pods() -> None:
    ring = Diagnoses(capacity=2)
    for item in (diagnosis("a"), diagnosis("b"), diagnosis("a", 2), diagnosis("c")):
        ring.add(item)
    assert [(item.pod.name, item.attempt) for item in ring] == [("a", 2), ("c", 1)]
    assert ring.get("uid-b") is None
    found = ring.find("default/a")
    assert found is not None
    assert found.attempt == 2


def test_rejections_keep_their_node_sets() -> None:
    statuses = NodeStatuses(table_of(*(f"n{i}" for i in range(20))))
    mask = np.zeros(20, dtype=np.bool_)
    mask[[3, 17]] = True
    full = Status.unschedulable("full")
    statuses.reject(np.arange(20), Verdicts.reject_where(mask, full), "P")
    kept = diagnosis("a")
    kept.record_rejections(statuses, statuses.group_counts())
    (rejection,) = kept.rejections
    assert rejection.slots().tolist() == [3, 17]
    assert (rejection.node_count, rejection.status.plugin) == (2, "P")


def test_pending_rejection_is_blamed_in_both_sets() -> None:
    kept = diagnosis("a")
    kept.blame(Status.pending("later").with_plugin("P"))
    kept.blame(Status.unschedulable("full").with_plugin("Q"))
    kept.blame(Status.unschedulable("nobody's"))
    assert (kept.unschedulable_plugins, kept.pending_plugins) == ({"P", "Q"}, {"P"})


def test_the_last_attempts_of_a_pod_are_kept_and_no_more() -> None:
    ring = Diagnoses(capacity=ATTEMPTS_KEPT, now_s=lambda: 7.0)
    for attempt in range(1, ATTEMPTS_KEPT + 4):
        ring.add(diagnosis("a", attempt))
    latest = ring.get("uid-a")
    assert latest is not None
    kept = [item.attempt for item in latest.attempts()]
    assert kept == list(range(ATTEMPTS_KEPT + 3, 3, -1))
    assert latest.ended_at_s == 7.0
    assert {id(item.pod) for item in latest.attempts()} == {id(latest.pod)}, "earlier forms of it are kept"


def test_earlier_attempts_make_room_those_of_the_pod_tried_longest_ago_first() -> None:
    ring = Diagnoses(capacity=3)
    for name in ("a", "b", "a", "b", "b", "c", "c"):
        ring.add(diagnosis(name))
    assert {item.pod.name: len(list(item.attempts())) for item in ring} == {"a": 1, "b": 3, "c": 2}
    ring.add(diagnosis("a"))
    assert {item.pod.name: len(list(item.attempts())) for item in ring} == {"b": 1, "c": 2, "a": 2}
    ring.add(diagnosis("d"))
    assert {item.pod.name: len(list(item.attempts())) for item in ring} == {"c": 2, "a": 2, "d": 1}


@given(st.lists(st.sampled_from("abcdefg"), max_size=80))
def test_attempts_are_bounded_and_the_latest_of_each_pod_is_kept(names: list[str]) -> None:
    capacity = 4
    ring = Diagnoses(capacity=capacity)
    for attempt, name in enumerate(names):
        ring.add(diagnosis(name, attempt))
        latest = {tried: index for index, tried in enumerate(names[: attempt + 1])}
        last = sorted(latest.items(), key=lambda item: item[1])[-capacity:]
        kept = list(ring)
        assert [(item.pod.name, item.attempt) for item in kept] == last
        chains = [[one.attempt for one in item.attempts()] for item in kept]
        assert all(chain == sorted(chain, reverse=True) and len(chain) <= ATTEMPTS_KEPT for chain in chains)
        assert sum(len(chain) - 1 for chain in chains) <= capacity


def test_names_of_rejected_nodes_do_not_change_after_the_attempt() -> None:
    columns = NodeColumns()
    for name in ("a", "b"):
        columns.add(make_node(name))
    names = SlotNames()
    before = names.of(NodeTable(columns))
    assert names.of(NodeTable(columns)) is before
    columns.remove(columns.index_of["a"], generation=1)
    columns.reclaim()
    columns.add(make_node("c"))
    after = names.of(NodeTable(columns))
    assert before.tolist() == ["a", "b"]
    assert {name for name in after.tolist() if name} == {"b", "c"}
    assert after.tolist().index("c") == 0, "the slot was not given away again"
