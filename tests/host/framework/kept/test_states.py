"""A plugin's cycle state is kept together with its answer, and never without the answer."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.framework.answers import AskEveryone
from berth_host.framework.filtering import filter_error
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NoConcern, Plugin, ScoreNormalization
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable
from numpy.typing import NDArray
from support.asking import NO_HANDLE
from support.frameworks import cycle_of, framework_of

OF_OTHERS = Status.unschedulable("what it finds is another pod's")


class Remembers(Plugin):
    """A plugin that reads at Filter and Score the state of the point before, and fails without this state."""

    depends_on: DependsOn | None = DependsOn.ROW
    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Sign all pods as equal."""
        return ()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """Write the state for Filter."""
        state.write("filter", "filter")
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Everything fits."""
        assert state.read("filter") == "filter"
        return Verdicts.feasible(len(nodes))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Write the state for Score."""
        state.write("score", state.read("filter"))
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return the number of pods."""
        assert state.read("score") == "filter"
        return nodes.pod_count.astype(np.int64)


class Narrows(Remembers):
    """A plugin whose PreFilter answer names nodes and is not kept, while the state of PreScore is kept."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        """Leave two nodes."""
        super().pre_filter(state, pod, nodes)
        return PreFilterResult(eligible=frozenset(("n0", "n1")))


class OnlyFilters(Plugin):
    """A plugin without a later point that would write the state again."""

    depends_on: DependsOn | None = DependsOn.ROW
    sign = Remembers.sign
    pre_filter = Remembers.pre_filter
    filter_nodes = Remembers.filter_nodes


class WritesForSome(Plugin):
    """A plugin without a signature, which writes state only for pods with the label."""

    depends_on: DependsOn | None = DependsOn.ROW

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Write the value of the label, if the pod has it."""
        if "own" in pod.labels:
            state.write("own", pod.labels["own"])
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """Pass all nodes, unless the state is not the one of this pod."""
        return Status.success() if state.get("own") == pod.labels.get("own") else OF_OTHERS


class RejectsSome(Plugin):
    """A plugin without a signature, which ends PreFilter for pods with the label."""

    depends_on: DependsOn | None = DependsOn.ROW

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Reject pods with the label."""
        return Status.unresolvable("no") if "bad" in pod.labels else Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Everything fits."""
        return Verdicts.feasible(len(nodes))


class LooksAgainLater(Plugin):
    """A plugin without concern with any pod, which reads at PostFilter the state of PreFilter."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Sign that no pod concerns the plugin."""
        return NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Write state, and skip."""
        state.write("seen", "yes")
        return Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Pass all nodes; this method is not called."""
        return Status.success()

    def post_filter(self, state: CycleState, pod: Pod, rejections: object) -> Status:
        """Return the state as a reason."""
        return Status.unschedulable(str(state.get("seen")))


def columns_of(count: int) -> NodeColumns:
    columns = NodeColumns()
    for i in range(count):
        columns.add(Node(name=f"n{i}"))
    return columns


async def said(framework: Framework, columns: NodeColumns, name: str, **labels: str) -> tuple[str, Cycle]:
    """Return why the pod fits nowhere or cannot be scored, else "", and the pod's cycle."""
    cycle = cycle_of(Pod(name=name, uid=name, labels=labels), NodeTable(columns), name)
    outcome = await framework.run_pre_filter(cycle)
    if not outcome.status.is_success:
        return outcome.status.message, cycle
    statuses, rows = NodeStatuses(cycle.nodes), all_rows(cycle.nodes)
    if outcome.eligible is not None:
        rows = rows[[name in outcome.eligible for name in cycle.nodes.names]]
    passed = await framework.run_filter(cycle, statuses, rows, NOBODY)
    if filter_error(statuses, rows) is not None or not len(passed):
        return "; ".join(sorted({status.message for status in statuses.statuses[1:]})), cycle
    table = await framework.run_score(cycle, cycle.nodes.take(passed))
    assert isinstance(table, ScoreTable)
    # By its failure policy, a pod passes without the scores of a plugin that failed.
    return "; ".join(cycle.account.notes), cycle


@pytest.mark.parametrize("plugin", [Remembers, Narrows, OnlyFilters])
async def test_call_about_a_changed_row_finds_the_kept_state(plugin: type[Plugin]) -> None:
    framework, columns = framework_of([plugin({}, NO_HANDLE)]), columns_of(3)
    for turn in range(8):
        assert (await said(framework, columns, f"p{turn}"))[0] == ""
        columns.touch(turn % 3, 1 + turn)  # Filter is called about this row alone, before PreScore is kept
        if turn % 3 == 0:
            # The next pod needs new answers about all nodes.
            columns.add(Node(name=f"later{turn}"))


async def test_plugin_that_does_not_sign_finds_the_state_of_its_own_pod() -> None:
    framework = framework_of([Remembers({}, NO_HANDLE), WritesForSome({}, NO_HANDLE)])
    columns = columns_of(3)
    for name, labels in (("a", {"own": "a"}), ("b", {"own": "a"}), ("c", {}), ("d", {"own": "d"}), ("e", {})):
        assert (await said(framework, columns, name, **labels))[0] == ""


async def test_plugin_that_was_not_asked_has_written_no_state() -> None:
    framework = framework_of([RejectsSome({}, NO_HANDLE), LooksAgainLater({}, NO_HANDLE)])
    columns = columns_of(3)
    for name, labels, text, found in (
        ("a", {}, "", "yes"),
        ("b", {}, "", "yes"),
        ("c", {"bad": "1"}, "no", None),
        ("d", {}, "", "yes"),
    ):
        message, cycle = await said(framework, columns, name, **labels)
        assert (message, cycle.state("LooksAgainLater").get("seen")) == (text, found)


async def test_state_written_for_a_new_answer_is_kept_for_the_next_pod() -> None:
    framework = framework_of([Remembers({}, NO_HANDLE), LooksAgainLater({}, NO_HANDLE)])
    columns = columns_of(3)
    for turn in range(6):
        _, cycle = await said(framework, columns, f"p{turn}")
        assert cycle.state("LooksAgainLater").get("seen") == "yes"
        if turn == 2:
            columns.add(Node(name="later"))


class SignsInAPair(LooksAgainLater):
    """A plugin that signs, in a pair, that the pod does not concern it, but would score the pod."""

    normalization: ScoreNormalization | None = ScoreNormalization.NONE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the lack of concern, with a label beside it."""
        return NoConcern.CYCLE, pod.labels.get("own")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return 9 for all nodes; this method is not called."""
        return np.full(len(nodes), 9)


@pytest.mark.parametrize("answers", [None, AskEveryone()], ids=["keep answers", "ask everyone"])
async def test_no_concern_in_a_pair_has_the_same_effect(answers: AskEveryone | None) -> None:
    framework, columns = framework_of([SignsInAPair({}, NO_HANDLE)], answers=answers), columns_of(2)
    for name in ("a", "b", "c"):
        text, cycle = await said(framework, columns, name)
        assert (text, cycle.skip) == ("", frozenset(("SignsInAPair",)))
        table = await framework.run_score(cycle, cycle.nodes)
        assert isinstance(table, ScoreTable)
        assert table.total.tolist() == [0, 0]


class _Incomparable:
    """A value that can be hashed but not compared, as a dataclass with an array that its hash leaves out."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class SignsIncomparably(Remembers):
    """A plugin whose signatures cannot be compared."""

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return a new value for each pod."""
        return _Incomparable()


async def test_pods_with_incomparable_signatures_are_not_equal() -> None:
    framework, columns = framework_of([SignsIncomparably({}, NO_HANDLE)]), columns_of(3)
    for turn in range(4):
        assert (await said(framework, columns, f"p{turn}"))[0] == ""
