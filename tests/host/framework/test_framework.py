"""Each point's rules for each status code, with real plugins in process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_host.framework.filtering import filter_error
from berth_host.framework.framework import Framework, all_rows
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY, NominatedPods
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, NodeRejections, PermitResult, PostFilterResult, PreFilterResult
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeView
from support.frameworks import cycle_of, framework_of, table_of

POD = Pod(name="web", uid="uid-web")
NODES = ("n0", "n1", "n2")


class PreFilters:
    """PreFilter plugins with given answers, which note the calls."""

    def __init__(self, **answers: Status | PreFilterResult) -> None:
        self.asked: list[str] = []
        self.plugins = [self._make(name, answer) for name, answer in answers.items()]

    def _make(self, name: str, answer: Status | PreFilterResult) -> object:
        def pre_filter(state: object, pod: object, nodes: object) -> Status | PreFilterResult:
            self.asked.append(name)
            return answer

        def filter_one(state: object, pod: object, node: NodeView) -> Status:
            self.asked.append(f"{name}.filter")
            return Status.success()

        class Made:
            def pre_filter(self, state: object, pod: object, nodes: object) -> Status | PreFilterResult:
                return pre_filter(state, pod, nodes)

            def filter(self, state: object, pod: object, node: NodeView) -> Status:
                return filter_one(state, pod, node)

        Made.__name__ = name
        return Made()


async def test_pre_filter_skip_takes_the_plugin_out_of_filter() -> None:
    made = PreFilters(A=Status.skip(), B=Status.success())
    framework = framework_of(made.plugins)
    cycle = cycle_of(POD, ["n0"])
    assert (await framework.run_pre_filter(cycle)).status.is_success
    statuses = NodeStatuses(cycle.nodes)
    await framework.run_filter(cycle, statuses, all_rows(cycle.nodes), NOBODY)
    assert made.asked == ["A", "B", "B.filter"]


async def test_pre_filter_unresolvable_ends_at_once_and_names_its_plugin() -> None:
    made = PreFilters(A=Status.unresolvable("no way"), B=Status.success())
    outcome = await framework_of(made.plugins).run_pre_filter(cycle_of(POD, NODES))
    assert made.asked == ["A"]
    assert outcome.status == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("no way",), "A")


async def test_pre_filter_unschedulable_lets_the_others_run_and_the_last_one_wins() -> None:
    made = PreFilters(A=Status.unschedulable("a"), B=Status.unschedulable("b"), C=Status.success())
    outcome = await framework_of(made.plugins).run_pre_filter(cycle_of(POD, NODES))
    assert made.asked == ["A", "B", "C"]
    assert outcome.status == Status(Code.UNSCHEDULABLE, ("b",), "B")


@pytest.mark.parametrize("status", [Status.pending("later"), Status.error("broken")])
async def test_pre_filter_pending_and_error_end_the_cycle_with_an_error(status: Status) -> None:
    made = PreFilters(A=status, B=Status.success())
    outcome = await framework_of(made.plugins).run_pre_filter(cycle_of(POD, NODES))
    assert outcome.status.code is Code.ERROR
    assert outcome.status.message.startswith('running PreFilter plugin "A": ')
    assert made.asked == ["A"]


async def test_pre_filter_results_are_intersected() -> None:
    made = PreFilters(
        A=PreFilterResult(eligible=frozenset({"n0", "n1", "gone"})),
        B=Status.success(),
        C=PreFilterResult(eligible=frozenset({"n1", "n2"})),
    )
    outcome = await framework_of(made.plugins).run_pre_filter(cycle_of(POD, NODES))
    assert outcome.eligible == frozenset({"n1"})
    assert outcome.absent == Status.unresolvable("node(s) didn't satisfy plugin(s) [A C]")


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ({"A": PreFilterResult(eligible=frozenset())}, "node(s) didn't satisfy plugin A"),
        (
            {
                "B": PreFilterResult(eligible=frozenset({"n0"})),
                "A": PreFilterResult(eligible=frozenset({"n1"})),
            },
            "node(s) didn't satisfy plugin(s) [A B] simultaneously",
        ),
    ],
)
async def test_pre_filter_that_leaves_no_node_rejects_without_a_plugin(
    answers: dict[str, PreFilterResult], want: str
) -> None:
    outcome = await framework_of(PreFilters(**answers).plugins).run_pre_filter(cycle_of(POD, NODES))
    assert outcome.status == Status.unresolvable(want)
    assert set(outcome.restricting) == set(answers)


class Fussy:
    """A plugin that rejects given nodes and notes its calls."""

    def __init__(self, args: dict[str, Status], handle: object = None) -> None:
        self.verdicts = args
        self.asked: list[str] = []

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
        self.asked.append(node.name)
        return self.verdicts.get(node.name, Status.success())


class Second(Fussy):
    """A second plugin of the same kind."""


async def run_filters(framework: Framework, **nominated: list[Pod]) -> tuple[list[int], NodeStatuses]:
    cycle = cycle_of(POD, table_of(*NODES))
    statuses = NodeStatuses(cycle.nodes)
    rows = await framework.run_filter(
        cycle, statuses, all_rows(cycle.nodes), NominatedPods.of(cycle.nodes, nominated)
    )
    return rows.tolist(), statuses


async def test_filter_calls_each_plugin_about_the_nodes_that_are_left() -> None:
    first = Fussy({"n0": Status.unschedulable("full")})
    second = Second({"n1": Status.unresolvable("wrong")})
    rows, statuses = await run_filters(framework_of([first, second]))
    assert rows == [2]
    assert second.asked == ["n1", "n2"]
    assert statuses.status_of("n0") == Status(Code.UNSCHEDULABLE, ("full",), "Fussy")
    assert statuses.status_of("n1").plugin == "Second"
    assert statuses.reasons() == {"full": 1, "wrong": 1}


@pytest.mark.parametrize("status", [Status.error("broken"), Status(Code.WAIT), Status.skip()])
async def test_filter_answers_that_are_no_verdict_end_the_cycle(status: Status) -> None:
    framework = framework_of([Fussy({"n1": status})])
    _, statuses = await run_filters(framework)
    error = filter_error(statuses, np.arange(3))
    assert error is not None
    assert error.code is Code.ERROR
    assert error.message.startswith('running "Fussy" filter plugin: ')


async def test_exception_in_filter_becomes_an_error_that_names_the_plugin() -> None:
    class Raises:
        def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
            raise ValueError("boom")

    _, statuses = await run_filters(framework_of([Raises()]))
    error = filter_error(statuses, np.arange(3))
    assert error is not None
    assert "Raises" in error.message
    assert "boom" in error.message


async def test_nominated_pods_count_in_a_first_pass_and_not_in_the_second() -> None:
    class Room:
        """A Filter plugin that allows one pod per node."""

        def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
            return Status.success() if node.pod_count == 0 else Status.unschedulable("taken")

    framework = framework_of([Room()])
    nominated = Pod(name="first", uid="uid-first", priority=5)
    rows, statuses = await run_filters(framework, n1=[nominated])
    assert rows == [0, 2]
    assert statuses.status_of("n1").reasons == ("taken",)


async def test_post_filter_stops_at_the_first_that_helps() -> None:
    asked: list[str] = []

    class First:
        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> Status:
            asked.append("First")
            return Status.unschedulable("cannot")

    class Helps:
        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
            asked.append("Helps")
            return PostFilterResult(Status.success(), nominated_node="n1")

    class Never:
        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> Status:
            asked.append("Never")
            return Status.success()

    framework = framework_of([First(), Helps(), Never()])
    name, result = await framework.run_post_filter(cycle_of(POD, NODES), NodeRejections())
    assert (name, result.nominated_node, asked) == ("Helps", "n1", ["First", "Helps"])


async def test_post_filter_without_help_collects_the_reasons() -> None:
    class First:
        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> Status:
            return Status.unschedulable("one")

    class Other:
        def post_filter(self, state: object, pod: Pod, rejections: NodeRejections) -> Status:
            return Status.unschedulable("two")

    name, result = await framework_of([First(), Other()]).run_post_filter(
        cycle_of(POD, NODES), NodeRejections()
    )
    assert (name, result.status) == ("First", Status(Code.UNSCHEDULABLE, ("one", "two"), "First"))


class Lights:
    """The Score plugin of KEP-624: lights per node, normalised by the plugin itself."""

    def __init__(self, args: dict[str, int], handle: object = None) -> None:
        self.lights = args

    def score(self, state: object, pod: Pod, node: NodeView) -> int:
        return self.lights[node.name]

    def normalize(self, state: object, pod: Pod, scores: Any, nodes: object) -> Any:
        return scores * 100 // max(int(scores.max()), 1)


async def test_scores_are_normalised_weighted_and_added() -> None:
    class Flat:
        def score(self, state: object, pod: Pod, node: NodeView) -> int:
            return 10

    framework = framework_of([Lights({"n0": 1, "n1": 4, "n2": 2}), Flat()], weights={"Lights": 3})
    cycle = cycle_of(POD, NODES)
    table = await framework.run_score(cycle, cycle.nodes)
    assert isinstance(table, ScoreTable)
    assert table.total.tolist() == [3 * 25 + 10, 3 * 100 + 10, 3 * 50 + 10]
    assert table.best().tolist() == [1]
    assert table.plugins[0].raw.tolist() == [1, 4, 2]


async def test_pre_score_skip_takes_the_plugin_out_of_score() -> None:
    class Skips(Lights):
        def pre_score(self, state: object, pod: Pod, nodes: object) -> Status:
            return Status.skip()

    framework = framework_of([Skips({})])
    cycle = cycle_of(POD, NODES)
    table = await framework.run_score(cycle, cycle.nodes)
    assert isinstance(table, ScoreTable)
    assert (table.skipped, table.total.tolist()) == (["Skips"], [0, 0, 0])


@pytest.mark.parametrize("code", [Code.SUCCESS, Code.SKIP])
async def test_reason_of_pre_score_without_an_error_is_noted_and_counted(code: Code) -> None:
    class Remarks(Lights):
        def pre_score(self, state: object, pod: Pod, nodes: object) -> Status:
            return Status(code, ("no metrics of n1",))

    plugin = Remarks(dict.fromkeys(NODES, 0))
    cycle = cycle_of(POD, NODES)
    assert isinstance(await framework_of([plugin]).run_score(cycle, cycle.nodes), ScoreTable)
    assert cycle.account.notes == ["Remarks: no metrics of n1"]


async def test_pre_score_failure_ends_the_cycle() -> None:
    class Fails(Lights):
        def pre_score(self, state: object, pod: Pod, nodes: object) -> Status:
            return Status.error("broken")

    cycle = cycle_of(POD, NODES)
    status = await framework_of([Fails({})]).run_score(cycle, cycle.nodes)
    assert status == Status.error('running PreScore plugin "Fails": broken')


class Prober:
    """A Reserve plugin that notes the order of calls."""

    calls: list[str]
    answer = Status.success()

    def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        self.calls.append(f"{type(self).__name__}.reserve")
        return self.answer

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        self.calls.append(f"{type(self).__name__}.unreserve")


async def test_reserve_stops_at_the_first_failure_and_unreserve_reaches_all_in_reverse() -> None:
    calls: list[str] = []

    class One(Prober):
        pass

    class Two(Prober):
        answer = Status.unschedulable("no")

    class Three(Prober):
        pass

    Prober.calls = calls
    framework = framework_of([One(), Two(), Three()])
    cycle = cycle_of(POD, NODES)
    status = await framework.run_reserve(cycle, "n0")
    await framework.run_unreserve(cycle, "n0", "no")
    assert status == Status(Code.UNSCHEDULABLE, ("no",), "Two")
    assert calls == [
        "One.reserve",
        "Two.reserve",
        "Three.unreserve",
        "Two.unreserve",
        "One.unreserve",
    ]


async def test_reserve_without_a_decision_is_an_error() -> None:
    class Mute(Prober):
        answer = None  # type: ignore[assignment]  # what a careless author returns

    Prober.calls = []
    status = await framework_of([Mute()]).run_reserve(cycle_of(POD, NODES), "n0")
    assert status.code is Code.ERROR
    assert 'Reserve plugin "Mute"' in status.message


class Gate:
    """A Permit plugin with a given answer."""

    answer: PermitResult | Status = Status.success()

    def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "waiting"),
    [
        (Status.success(), Code.SUCCESS, False),
        (PermitResult.wait(5.0), Code.WAIT, True),
        (Status.unschedulable("no"), Code.UNSCHEDULABLE, False),
        (Status.error("broken"), Code.ERROR, False),
    ],
)
async def test_permit_approves_holds_or_denies(
    answer: PermitResult | Status, code: Code, waiting: bool
) -> None:
    class Answers(Gate):
        pass

    Answers.answer = answer
    framework = framework_of([Answers()])
    status = await framework.run_permit(cycle_of(POD, NODES), "n0")
    assert status.code is code
    assert framework.waiting_pods.is_waiting(POD.uid) is waiting


async def test_wait_of_one_plugin_is_known_while_the_next_one_is_asked() -> None:
    """Otherwise a list for Reconcile, made meanwhile, would lack the pod, and the plugin would forget the
    pod.
    """
    known: list[dict[str, float]] = []

    class Waits(Gate):
        answer = PermitResult.wait(5.0)

    class Looks(Gate):
        def permit(self, state: object, pod: Pod, node_name: str) -> PermitResult | Status:
            known.append(framework.waiting_pods.deadlines_of("Waits"))
            return self.answer

    framework, cycle = framework_of([Waits(), Looks()]), cycle_of(POD, NODES)
    await framework.run_permit(cycle, "n0")
    assert [list(cycles) for cycles in known] == [[cycle.cycle_id]]


async def test_permit_rejection_after_a_wait_leaves_no_pod_waiting() -> None:
    class Waits(Gate):
        answer = PermitResult.wait(5.0)

    class Denies(Gate):
        answer = Status.unschedulable("no")

    framework = framework_of([Waits(), Denies()])
    status = await framework.run_permit(cycle_of(POD, NODES), "n0")
    assert (status.plugin, framework.waiting_pods.is_waiting(POD.uid)) == ("Denies", False)


class Binds:
    """A Bind plugin with a given answer."""

    answer: BindResult | Status = Status.skip()

    def bind(self, state: object, pod: Pod, node_name: str) -> BindResult | Status:
        return self.answer


async def test_bind_goes_to_the_first_plugin_that_does_not_skip() -> None:
    class Skips(Binds):
        pass

    class Takes(Binds):
        answer = BindResult(Status.success(), host_binds=True)

    name, answer = await framework_of([Skips(), Takes()]).run_bind(cycle_of(POD, NODES), "n0")
    assert (name, answer.host_binds) == ("Takes", True)


async def test_bind_skipped_by_all_is_skip() -> None:
    name, answer = await framework_of([Binds()]).run_bind(cycle_of(POD, NODES), "n0")
    assert (name, answer.status.code) == ("", Code.SKIP)


async def test_bind_error_names_the_plugin() -> None:
    class Breaks(Binds):
        answer = Status.error("broken")

    name, answer = await framework_of([Breaks()]).run_bind(cycle_of(POD, NODES), "n0")
    assert (name, answer.status.message) == ("Breaks", 'running Bind plugin "Breaks": broken')
