"""Which nominated pods count for which pod, and how those that count are recognised."""

from __future__ import annotations

import numpy as np
from berth_host.cycle.nominations import Nominations
from berth_host.model.hold import Hold
from berth_host.queue.nominated_columns import NominatedColumns
from berth_sdk.pod import Pod
from support.frameworks import table_of


def test_a_mark_is_the_same_where_the_same_pods_count() -> None:
    nodes, columns = table_of("a", "b"), NominatedColumns()
    first, second, third = (Pod(name=name, uid=name, nominated_node="a") for name in ("x", "y", "z"))
    columns.set("a", (first, second, third))
    columns.set("b", (Pod(name="w", uid="w", nominated_node="b"),))
    nominations = Nominations(columns, lambda: 0.0)

    def marks_for(pod: Pod) -> list[int]:
        marks = nominations.counted_for(pod, nodes).marks
        nominations.release()
        assert marks is not None
        return [int(mark) for mark in marks]

    stranger, other = marks_for(Pod(name="s", uid="s")), marks_for(Pod(name="t", uid="t"))
    assert stranger == other
    # Each of the three is left out of what counts for itself.
    marks = [marks_for(pod) for pod in (first, second, third)]
    assert len({on_a for on_a, _ in (*marks, stranger)}) == 4
    assert {on_b for _, on_b in (*marks, stranger)} == {stranger[1]}
    assert marks[0] == marks_for(first)
    assert all(on_a for on_a, _ in marks)
    columns.set("a", (first, second))
    assert marks_for(first)[0] not in {on_a for on_a, _ in (*marks, stranger)}
    # The pod is alone there, so no pod counts for it.
    columns.set("a", (first,))
    assert marks_for(first)[0] == 0


def test_pods_nominated_outside_a_placement_do_not_count_in_it() -> None:
    nodes, columns = table_of("a", "b", "c", "d"), NominatedColumns()
    for name in ("a", "c", "d"):
        columns.set(name, (Pod(name=f"on-{name}", uid=name, nominated_node=name),))
    nominations = Nominations(columns, lambda: 0.0)

    def counted_in(*rows: int) -> list[bool]:
        counted = nominations.counted_for(Pod(name="s", uid="s"), nodes.take(rows))
        nominations.release()
        assert counted.marks is not None
        assert [bool(mark) for mark in counted.marks] == counted.rows.tolist()
        return [bool(row) for row in counted.rows]

    assert counted_in(0, 1, 2, 3) == [True, False, True, True]
    assert counted_in(1, 2) == [False, True]
    assert counted_in(0, 1) == [True, False]
    assert counted_in(0) == counted_in(3) == [True]
    assert counted_in(1) == []


def test_nominations_of_a_hold_do_not_count_for_pods_that_it_lets_in() -> None:
    nodes, columns = table_of("a", "b"), NominatedColumns()
    held, other = Pod(name="held", uid="held", priority=1), Pod(name="other", uid="other", priority=1)
    columns.set("a", (held, other))
    columns.set("b", (Pod(name="also", uid="also", priority=1),))
    nominations = Nominations(columns, lambda: 0.0)

    def counted(pod: Pod) -> tuple[list[list[str]], list[int]]:
        found = nominations.counted_for(pod, nodes)
        nominations.release()
        assert found.marks is not None
        added = found.added(np.arange(2)) if found else None
        names = [[one.uid for one in added.pods(i)] for i in range(2)] if added else [[], []]
        return names, [int(mark) for mark in found.marks] or [0, 0]

    equal, lower = Pod(name="equal", uid="e", priority=1), Pod(name="lower", uid="l")
    everyone = counted(equal)
    assert everyone[0] == [["held", "other"], ["also"]]
    columns.room = Hold(
        key="podgroup/default/g",
        uid="g",
        group_keys=frozenset({"podgroup/default/g"}),
        priority=1,
        preempts_lower=True,
        nodes={"held": "a", "also": "b", "gone": "b"},
        since_s=0.0,
        until_s=300.0,
    )
    assert counted(equal) == everyone
    names, marks = counted(lower)
    assert names == [["other"], []]
    # A kept verdict for the same pods must not be taken for these.
    assert marks[0] not in {0, *everyone[1]}
    assert marks[1] == 0
    assert counted(lower) == (names, marks)
    columns.set("b", ())
    columns.set("a", (held,))
    assert counted(lower)[0] == [[], []]
    assert counted(equal)[0] == [["held"], []]
    # A pod that is nominated itself.
    columns.set("a", (held, other, lower))
    beside = counted(lower)
    assert beside[0] == [["other"], []]
    assert beside[1][0] not in {0, marks[0], *everyone[1]}
