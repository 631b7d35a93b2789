"""Which pods share a column, and until when."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final, cast

import numpy as np
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeLabel, Plugin, ScoreNormalization
from berth_sdk.kept.follows import Follows
from berth_sdk.kept.kept_answers import RowColumn, RowColumns
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.status import Status
from berth_sdk.tables import NodeColumns, NodeTable, ObjectStore
from berth_sdk.testing import make_node, make_pod, make_table
from berth_sdk.testing.handle import RecordingHandle
from numpy.typing import NDArray

NONE: Final = ScoreNormalization.NONE


def test_nodes_that_a_pod_names_are_part_of_what_it_is_judged_by() -> None:
    table = make_table([make_node("a"), make_node("b")])
    columns = RowColumns(np.int64, Follows("Demo", DependsOn.ROW))
    plain = make_pod("p")
    nominated, required = replace(plain, nominated_node="a"), replace(plain, node_name="a")
    pods = (plain, nominated, required, replace(plain, name="q"))
    found = [columns.column(CycleState("c"), pod, table) for pod in pods]
    assert len({id(column) for column in found}) == 3
    assert found[0] is found[3]


def test_an_object_that_changed_makes_every_row_stale() -> None:
    table, store = make_table([make_node("a")]), ObjectStore()
    handle = RecordingHandle(lambda: table, {"deviceclasses": store})
    follows = Follows("Demo", DependsOn.ROW, [Need.objects("deviceclasses")], handle)
    columns = RowColumns(np.int64, follows)
    pod = make_pod("p")
    known = columns.column(CycleState("c"), pod, table)
    assert columns.column(CycleState("c"), pod, table) is known
    store.put(ObjectRef(name="gpu"), None, 1)
    assert columns.column(CycleState("c"), pod, table) is not known


class OnlyWithClass(Plugin):
    """Passes the nodes while there is a device class; counts how often it is asked."""

    depends_on = DependsOn.NODE
    needs = (Need.nodes(), Need.objects("deviceclasses"))
    asked = 0

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        type(self).asked += 1
        found = self.handle.objects("deviceclasses").list()
        return Status.success() if found else Status.unschedulable("no class")


def test_a_plugin_that_judges_by_the_node_is_asked_again_after_a_change() -> None:
    table, store = make_table([make_node("a"), make_node("b")]), ObjectStore()
    handle = RecordingHandle(lambda: table, {"deviceclasses": store})
    runtime = PluginRuntime(OnlyWithClass({}, handle), handle=handle)

    def verdicts() -> list[bool]:
        found = cast(FilterResult, runtime.filter(CycleState("c"), make_pod("p"), table))
        passed: list[bool] = found.verdicts.passed.tolist()
        return passed

    assert [verdicts(), verdicts()] == [[False, False]] * 2
    assert OnlyWithClass.asked == 1
    store.put(ObjectRef(name="gpu"), KubeObject.of({"metadata": {"name": "gpu"}}), 1)
    assert [verdicts(), verdicts()] == [[True, True]] * 2
    assert OnlyWithClass.asked == 2


class CannotSign(Plugin):
    """Answers well, and signs badly. Counts how often it is asked."""

    asked = 0

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """By the pod's label."""
        if pod.labels["sign"] == "raise":
            raise LookupError("no such tenant")
        return []  # type: ignore[return-value]  # the fault that is looked for

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Everything fits."""
        type(self).asked += 1
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """All the same."""
        return np.full(len(nodes), 7)


@pytest.mark.parametrize("how", ["raise", "a list"])
@pytest.mark.parametrize("depends_on", [DependsOn.ROW, DependsOn.TABLE])
def test_plugin_that_cannot_sign_is_asked_in_full_and_named_once(
    how: str, depends_on: DependsOn, caplog: pytest.LogCaptureFixture
) -> None:
    class Anyway(CannotSign):
        asked = 0
        normalization = NONE

    Anyway.depends_on = depends_on
    table, pod = make_table([make_node("a"), make_node("b")]), make_pod("p", labels={"sign": how})
    runtime = PluginRuntime(Anyway({}, RecordingHandle(lambda: table, {})))
    for _ in range(3):
        state = CycleState("c")
        assert cast("FilterResult", runtime.filter(state, pod, table)).verdicts.all_passed
        assert list(cast("NDArray[np.int64]", runtime.score(state, pod, table))) == [7, 7]
    assert Anyway.asked == 3
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 1
    assert texts[0].startswith("Anyway cannot sign pod default/p")


class FailsAtFirst(Plugin):
    """Cannot say anything about any node when it is asked for the first time."""

    asked = 0

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """All pods are the same."""
        return ()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return an error, then success."""
        type(self).asked += 1
        return Status.error("not ready") if self.asked == 1 else Status.success()


@pytest.mark.parametrize("on", [DependsOn.ROW, DependsOn.TABLE])
def test_an_error_is_not_kept(on: DependsOn) -> None:
    class Anyway(FailsAtFirst):
        asked = 0
        depends_on = on

    table = make_table([make_node("a"), make_node("b")])
    runtime = PluginRuntime(Anyway({}, RecordingHandle(lambda: table, {})))
    passed = []
    for name in ("p", "q", "r"):
        answer = cast("FilterResult", runtime.filter(CycleState(name), make_pod(name), table))
        passed.append(answer.verdicts.all_passed)
    assert passed == [False, True, True]
    assert Anyway.asked == 2


# --- rows that are alike -----------------------------------------------------------------------------


def column_of(count: int, *, groups: bool) -> tuple[RowColumn, NodeColumns]:
    """Return a column by zone, and a table of `count` nodes in the zones 0, 1 and 2."""
    made = NodeColumns()
    for number in range(count):
        made.add(make_node(f"n{number}", labels={"zone": str(number % 3)}))
    column = RowColumn(np.int64, DependsOn.NODE, frozenset({NodeLabel("zone")}), groups=groups)
    column.catch_up(made)
    return column, made


def answered(column: RowColumn, columns: NodeColumns, number: int = 0) -> list[int]:
    """Answer what is missing, by the zone and `number`. Return the rows that were asked about."""
    nodes = NodeTable(columns)
    column.catch_up(columns)
    missing = column.missing(nodes)
    asked = missing.of(nodes)
    zones = [int(asked.node(row).labels["zone"]) for row in range(len(asked))] if len(missing) else []
    column.keep(nodes, missing, np.array(zones, dtype=np.int64) + number)
    rows: list[int] = missing.rows.tolist()
    return rows


@pytest.mark.parametrize(
    ("count", "groups", "rows"),
    [
        pytest.param(6, False, [0, 1, 2], id="few"),
        pytest.param(30, False, list(range(30)), id="many, cheap to ask about"),
        pytest.param(30, True, [0, 1, 2], id="many, fewer are cheaper"),
    ],
)
def test_first_of_the_rows_that_are_alike_is_asked_about(count: int, groups: bool, rows: list[int]) -> None:
    column, columns = column_of(count, groups=groups)
    assert answered(column, columns) == rows
    assert column.read(NodeTable(columns)).tolist() == [number % 3 for number in range(count)]
    assert answered(column, columns) == []


def test_row_that_moved_takes_over_the_number_of_its_content() -> None:
    column, columns = column_of(3, groups=False)
    answered(column, columns)
    columns.set_node(0, make_node("n0", labels={"zone": "2"}))
    assert column.read(NodeTable(columns)).tolist() == [0, 1, 2]
    assert answered(column, columns) == []
    assert column.read(NodeTable(columns)).tolist() == [2, 1, 2]
    columns.set_node(1, make_node("n1", labels={"zone": "7"}))
    assert answered(column, columns) == [1]
    assert column.read(NodeTable(columns)).tolist() == [2, 7, 2]


def test_answers_that_are_forgotten_are_forgotten_of_all_rows_that_are_alike() -> None:
    column, columns = column_of(6, groups=False)
    nodes = NodeTable(columns)
    missing = column.missing(nodes)
    column.keep(nodes, missing, np.array([9, 9, 9]))
    column.forget(nodes, missing)
    assert answered(column, columns) == [0, 1, 2]
    assert column.read(nodes).tolist() == [0, 1, 2, 0, 1, 2]


def test_answer_belongs_to_the_rows_as_they_were_asked_about() -> None:
    column, columns = column_of(3, groups=False)
    nodes = NodeTable(columns)
    missing = column.missing(nodes)
    columns.set_node(0, make_node("n0", labels={"zone": "5"}))  # while the plugin thinks
    column.keep(nodes, missing, np.array([0, 1, 2]))
    assert answered(column, columns) == [0]
    columns.set_node(1, make_node("n1", labels={"zone": "0"}))
    assert answered(column, columns) == []
    assert column.read(NodeTable(columns)).tolist() == [5, 0, 2]


def test_another_table_has_other_contents() -> None:
    column, columns = column_of(3, groups=False)
    answered(column, columns)
    _, other = column_of(3, groups=False)
    other.set_node(0, make_node("n0", labels={"zone": "4"}))
    assert answered(column, other) == [0, 1, 2]
    assert column.read(NodeTable(other)).tolist() == [4, 1, 2]
