"""Several plugins at the points about groups: which answer counts, and how scores add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from berth_host.attempt.group_cycle import GroupCycle, PlacementCycle
from berth_host.framework.framework import Framework
from berth_host.framework.group_points import MAX_TRIES, PlacementTotals
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress, PodGroup
from berth_sdk.results import PodGroupPostFilterResult, Trial, Tries
from berth_sdk.status import Code, Status
from berth_sdk.testing.builders import make_pod
from support.frameworks import framework_of, table_of

MEMBERS = tuple(make_pod(f"w{i}", uid=f"w{i}", priority=5) for i in range(3))
NODES = table_of("n0", "n1", "n2", "n3")


def group_cycle() -> GroupCycle:
    group = PodGroup(name="train", is_gang=True, min_count=3, priority=5)
    return GroupCycle("g", GroupView(group, MEMBERS), "default-scheduler", nodes=NODES)


def says(name: str, **answers: Any) -> object:
    """Return a plugin whose methods return these answers, and which writes down its calls in `asked`."""
    asked: list[str] = []

    def method(name: str, answer: Any) -> Any:
        def call(self: object, state: CycleState, group: GroupView, *rest: Any) -> Any:
            asked.append(name)
            return answer(*rest) if callable(answer) else answer

        return call

    methods = {key: method(key, answer) for key, answer in answers.items()}
    return type(name, (), {"asked": asked, **methods})()


def trials(cycle: GroupCycle, *names: str) -> list[PlacementCycle]:
    found = []
    for row, name in enumerate(names):
        one = cycle.placement(Placement(name, NODES.take([row])))
        one.assignments = [Assignment(pod, f"n{row}") for pod in MEMBERS]
        found.append(one)
    return found


async def test_without_plugins_a_group_has_one_placement_which_is_feasible_and_scores_zero() -> None:
    groups, cycle = framework_of([]).groups, group_cycle()
    parent = Placement("", NODES)
    assert await groups.run_placement_generate(cycle, parent) == [parent]
    one = cycle.placement(parent)
    assert (await groups.run_placement_feasible(one, PlacementProgress(3, 0))).is_success
    scores = await groups.run_placement_score(cycle, [one])
    assert isinstance(scores, PlacementTotals)
    assert scores.total.tolist() == [0] and not scores.plugins


@pytest.mark.parametrize(
    ("answers", "code", "plugin"),
    [
        pytest.param([Status.success(), Status.success()], Code.SUCCESS, "", id="all agree"),
        pytest.param([Status(Code.WAIT, ("a",)), Status.success()], Code.WAIT, "P0", id="one waits"),
        pytest.param(
            [Status(Code.WAIT, ("a",)), Status(Code.WAIT, ("b",))], Code.WAIT, "P0", id="first wait counts"
        ),
        pytest.param(
            [Status(Code.WAIT), Status.unschedulable("no")], Code.UNSCHEDULABLE, "P1", id="rejection wins"
        ),
        pytest.param([Status.error("broken"), Status.success()], Code.ERROR, "P0", id="error ends it"),
    ],
)
async def test_feasible_is_what_all_plugins_agree_on(answers: list[Status], code: Code, plugin: str) -> None:
    plugins = [says(f"P{i}", placement_feasible=answer) for i, answer in enumerate(answers)]
    one = group_cycle().placement(Placement("", NODES))
    status = await framework_of(plugins).groups.run_placement_feasible(one, PlacementProgress(3, 0))
    assert (status.code, status.plugin) == (code, plugin)


WAITS: Any = [Status(Code.WAIT, ("a",)), Status(Code.WAIT, ("b",)), Status.success()]


@pytest.mark.parametrize(
    ("answers", "before", "since"),
    [
        pytest.param(WAITS, (Code.WAIT, "P0", "a"), (Code.WAIT, "P1", "b"), id="waits"),
        pytest.param(
            [Status.error("broken")],
            (Code.ERROR, "P0", "broken"),
            (Code.ERROR, "P0", "running PlacementFeasible plugin: broken"),
            id="error",
        ),
        pytest.param(
            [*WAITS, Status.unschedulable("no")],
            (Code.UNSCHEDULABLE, "P3", "no"),
            (Code.UNSCHEDULABLE, "P3", "no"),
            id="rejection",
        ),
    ],
)
async def test_last_wait_counts_and_errors_name_the_point_where_profiles_list_the_plugins(
    answers: list[Status], before: tuple[Code, str, str], since: tuple[Code, str, str]
) -> None:
    plugins = [says(f"P{i}", placement_feasible=answer) for i, answer in enumerate(answers)]
    groups, one = framework_of(plugins).groups, group_cycle().placement(Placement("", NODES))
    for is_list, want in ((False, before), (True, since)):
        status = await groups.run_placement_feasible(one, PlacementProgress(3, 0), is_list=is_list)
        assert (status.code, status.plugin, status.message) == want


async def test_scores_of_placements_are_normalised_weighted_and_added() -> None:
    class Most:
        """The more members, the better, of the most that any placement has."""

        def placement_score(
            self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
        ) -> int:
            return {"a": 2, "b": 8}[placement.name]

        def normalize_placements(
            self, state: CycleState, group: GroupView, scores: Any, placements: Sequence[Placement]
        ) -> Any:
            return scores * 100 // scores.max()

    plain = says("Plain", placement_score=lambda placement, _assigned: 10 if placement.name == "a" else 20)
    cycle = group_cycle()
    framework = framework_of([Most(), plain], weights={"Plain": 3})
    scores = await framework.groups.run_placement_score(cycle, trials(cycle, "a", "b"))
    assert isinstance(scores, PlacementTotals)
    assert [(one.plugin, one.raw.tolist(), one.normalized.tolist()) for one in scores.plugins] == [
        ("Most", [2, 8], [25, 100]),
        ("Plain", [10, 20], [10, 20]),
    ]
    assert scores.total.tolist() == [25 + 30, 100 + 60]


async def test_score_of_a_placement_out_of_range_is_kube_schedulers_error() -> None:
    cycle = group_cycle()
    framework = framework_of([says("Proud", placement_score=101)])
    status = await framework.groups.run_placement_score(cycle, trials(cycle, "a", "b"))
    assert isinstance(status, Status) and status.code is Code.ERROR
    assert status.message == (
        'plugin "Proud" returns an invalid score 101, it should in the range of [0, 100] after normalizing'
    )


async def test_generated_placements_are_rows_of_the_parent_in_its_order() -> None:
    class Halves:
        def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> Any:
            return [Placement("b", parent.nodes.take([3, 2])), Placement("a", parent.nodes.take([0, 1]))]

    parent = Placement("", NODES.take(np.array([2, 0, 3, 1])))
    found = await framework_of([Halves()]).groups.run_placement_generate(group_cycle(), parent)
    assert not isinstance(found, Status)
    assert [(one.name, one.nodes.names) for one in found] == [("b", ["n3", "n1"]), ("a", ["n2", "n0"])]


def divides(name: str, **rows: Sequence[int]) -> object:
    """Return a plugin that divides all nodes into placements: their names, and the rows of each."""

    def divide(parent: Placement) -> list[Placement]:
        return [Placement(key, parent.nodes.take(list(some))) for key, some in rows.items()]

    return says(name, placement_generate=divide)


async def merged(*plugins: object) -> list[tuple[str, list[str]]] | tuple[Code, str, str]:
    ran = framework_of(list(plugins)).groups.run_placement_generate(
        group_cycle(), Placement("above", NODES), merges=True
    )
    found = await ran
    if isinstance(found, Status):
        return found.code, found.plugin, found.message
    return [(one.name, one.nodes.names) for one in found]


async def test_placements_of_several_plugins_are_intersected() -> None:
    by_rack = divides("Racks", a=[0, 1], b=[3, 2])
    whole = says("Whole", placement_generate=lambda parent: [parent])
    by_kind = divides("Kinds", x=[1, 2, 3], y=[0])
    assert await merged(by_rack) == [("a", ["n0", "n1"]), ("b", ["n2", "n3"])]
    assert await merged(whole, by_rack, by_kind) == [("a/x", ["n1"]), ("a/y", ["n0"]), ("b/x", ["n2", "n3"])]
    assert await merged(whole) == await merged() == [("above", NODES.names)]


@pytest.mark.parametrize(
    ("plugins", "answer"),
    [
        pytest.param(
            [divides("Some", a=[0]), divides("Others", b=[1])],
            (Code.UNSCHEDULABLE, "", "no feasible merged placements found"),
            id="nothing in common",
        ),
        pytest.param(
            [divides("Some", a=[0]), divides("None")],
            (Code.UNSCHEDULABLE, "None", "no feasible placements found"),
            id="nothing",
        ),
        pytest.param(
            [divides("Some", **{"a/b": [0]})],
            (Code.ERROR, "Some", 'placement name "a/b" must not contain "/"'),
            id="ambiguous name",
        ),
        pytest.param(
            [divides("Some", a=[0]), says("Broken", placement_generate=Status.error("no key"))],
            (Code.ERROR, "Broken", "no key"),
            id="error",
        ),
        pytest.param(
            [divides("Some", a=[0]), divides("Others", b=[1]), divides("None")],
            (Code.UNSCHEDULABLE, "None", "no feasible placements found"),
            id="all plugins are asked before their placements are intersected",
        ),
    ],
)
async def test_placements_that_cannot_be_merged_end_the_cycle(plugins: list[object], answer: object) -> None:
    assert await merged(*plugins) == answer


async def test_rejection_of_placement_generate_names_its_plugin() -> None:
    framework = framework_of([says("Divider", placement_generate=Status.error("no topology domain"))])
    status = await framework.groups.run_placement_generate(group_cycle(), Placement("", NODES))
    assert isinstance(status, Status)
    assert (status.code, status.plugin, status.message) == (Code.ERROR, "Divider", "no topology domain")


class NothingFits:
    """What-ifs of a full cluster. `tried`: how many pods were removed in each."""

    def __init__(self) -> None:
        self.tried: list[int] = []

    def reached_pre_filter(self, plugin: str) -> bool:
        return plugin == "Keen"

    async def run_without(self, removed: Sequence[Pod]) -> Trial:
        self.tried.append(len(removed))
        return Trial(Status.unschedulable("full"))

    async def preempt(self) -> PodGroupPostFilterResult:
        self.tried.append(-1)
        return PodGroupPostFilterResult(Status.unschedulable("nobody may leave"))


async def test_post_filters_are_asked_until_one_ends_it_and_their_reasons_are_collected() -> None:
    last = says("Last", pod_group_post_filter=PodGroupPostFilterResult(Status.success()))
    first = says("First", pod_group_post_filter=Status.unschedulable("not I"))
    run = framework_of([first, last]).groups.run_pod_group_post_filter
    assert await run(group_cycle(), NothingFits()) == ("Last", PodGroupPostFilterResult(Status.success()))

    second = says("Second", pod_group_post_filter=Status.unschedulable("nor I"))
    plugin, result = await framework_of([first, second]).groups.run_pod_group_post_filter(
        group_cycle(), NothingFits()
    )
    assert (plugin, result.status.code) == ("First", Code.UNSCHEDULABLE)
    assert result.status.reasons == ("not I", "nor I")

    ends = says("Ends", pod_group_post_filter=Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("hopeless",)))
    plugin, result = await framework_of([ends, last]).groups.run_pod_group_post_filter(
        group_cycle(), NothingFits()
    )
    assert (plugin, result.status.message) == ("Ends", "hopeless")

    broken = says("Broken", pod_group_post_filter=Status.error("not found"))
    plugin, result = await framework_of([broken, last]).groups.run_pod_group_post_filter(
        group_cycle(), NothingFits()
    )
    assert result.status.message == 'error in "Broken" PodGroupPostFilter plugins: not found'


async def test_tries_are_bounded_and_end_with_the_call() -> None:
    class Keen:
        needs: Sequence[Need] = ()

        def __init__(self, args: Mapping[str, Any], handle: Handle | None) -> None:
            self.kept: Tries | None = None
            self.refused = ""

        async def pod_group_post_filter(self, state: CycleState, group: GroupView, tries: Tries) -> Status:
            self.kept = tries
            assert tries.reached_pre_filter
            found = await tries.preempt()  # type: ignore[misc]  # in process it is awaited
            assert found.status.message == "nobody may leave"
            try:
                for _ in range(MAX_TRIES + 1):
                    await tries.schedule([])  # type: ignore[misc]  # in process it is awaited
            except HandleError as err:
                self.refused = str(err)
            return Status.unschedulable("tried")

    keen = Keen({}, None)
    what_ifs = NothingFits()
    framework: Framework = framework_of([keen])
    await framework.groups.run_pod_group_post_filter(group_cycle(), what_ifs)
    assert what_ifs.tried == [-1, *[0] * (MAX_TRIES - 1)]
    assert "has made its 32 tries" in keen.refused
    assert keen.kept is not None and framework.groups.open_tries is None
    with pytest.raises(HandleError, match="no PodGroupPostFilter of Keen is open"):
        await keen.kept.schedule([])  # type: ignore[misc]  # as above
