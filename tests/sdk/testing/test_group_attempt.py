"""A test host asks a plugin at the points about groups as a real host does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from berth_sdk.cycle_state import CycleState, TrialRef
from berth_sdk.errors import HandleError, PluginAnswerError
from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress, PodGroup
from berth_sdk.results import PodGroupPostFilterResult, Trial, Tries
from berth_sdk.status import Code, Status
from berth_sdk.testing import PluginHost, make_node, make_pod

GANG = PodGroup(name="train", is_gang=True, min_count=2, topology_key="rack")
MEMBERS = [make_pod(f"w{i}", uid=f"w{i}") for i in range(3)]


class Racks(Plugin):
    """One rack for a gang."""

    needs: Sequence[Need] = (Need.nodes(),)

    def placement_generate(
        self, state: CycleState, group: GroupView, parent: Placement
    ) -> list[Placement] | Status:
        racks = dict.fromkeys(node.labels[group.group.topology_key] for node in parent.nodes)
        return [
            Placement(
                rack,
                parent.nodes.take([i for i, node in enumerate(parent.nodes) if node.labels["rack"] == rack]),
            )
            for rack in racks
        ]

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        return len(assignments)

    def normalize_placements(
        self, state: CycleState, group: GroupView, scores: Any, placements: Sequence[Placement]
    ) -> Any:
        return scores * 100 // scores.max()

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        if progress.scheduled >= group.group.min_count:
            return Status.success()
        return Status(Code.WAIT, ("{scheduled} of " + str(group.group.min_count),))

    def pod_group_post_filter(
        self, state: CycleState, group: GroupView, tries: Tries
    ) -> PodGroupPostFilterResult:
        tried = tries.schedule([make_pod("victim", uid="victim")])
        assert isinstance(tried, Trial)
        return PodGroupPostFilterResult(tried.status, tried.assignments)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        assert state.group is not None
        state.group.write(pod.name, (state.cycle_id, state.trial))
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        assert state.group is not None
        state.group.delete(pod.name)


def host(plugin: type = Racks) -> PluginHost:
    return PluginHost(plugin, nodes=[make_node(f"n{i}", labels={"rack": f"r{i % 2}"}) for i in range(4)])


def test_placements_are_generated_tried_and_scored() -> None:
    group = host().attempt_group(GANG, MEMBERS)
    placements = group.generate()
    assert placements == {"r0": ["n0", "n2"], "r1": ["n1", "n3"]}
    first, second = (group.trial(name, nodes) for name, nodes in placements.items())
    assert (first.number, second.number) == (1, 2)
    assert first.feasible(scheduled=1, remaining=2) == Status(Code.WAIT, ("1 of 2",))
    assert first.feasible(scheduled=2, remaining=1).is_success
    assert group.score({first: {"w0": "n0"}, second: {"w0": "n1", "w1": "n3"}}) == {"r0": 50, "r1": 100}


def test_reservation_says_its_trial_and_reaches_the_state_of_the_group() -> None:
    group = host().attempt_group(GANG, MEMBERS)
    trial = group.trial("r0", ["n0", "n2"])
    attempt = trial.attempt(MEMBERS[0])
    assert attempt.reserve("n0").is_success
    tentative = TrialRef("podgroup/default/train", "r0", 1, True)
    assert group.state.read("w0") == ("group-1.1.1", tentative)
    attempt.unreserve("n0")
    assert group.state.get("w0") is None
    trial.decide(attempt)
    assert attempt.reserve("n0").is_success
    assert group.state.read("w0") == (
        "group-1.1.1-decided",
        TrialRef("podgroup/default/train", "r0", 1, False),
    )


def test_member_of_another_trial_cannot_be_decided() -> None:
    group = host().attempt_group(GANG, MEMBERS)
    other = group.trial("r1", ["n1"]).attempt(MEMBERS[0])
    with pytest.raises(ValueError, match="was not tried in this trial"):
        group.trial("r0", ["n0"]).decide(other)


def test_what_ifs_are_answered_by_the_test() -> None:
    group = host().attempt_group(GANG, MEMBERS)
    asked: list[list[str]] = []

    def fits(removed: Sequence[Pod]) -> Trial:
        asked.append([pod.name for pod in removed])
        return Trial(Status.success(), (Assignment(MEMBERS[0], "n1"),))

    assert group.post_filter(fits).nominations == (Assignment(MEMBERS[0], "n1"),)
    assert asked == [["victim"]]


def test_preemption_is_what_the_test_says() -> None:
    class Default(Plugin):
        def pod_group_post_filter(
            self, state: CycleState, group: GroupView, tries: Tries
        ) -> PodGroupPostFilterResult | Status:
            found = tries.preempt() if tries.reached_pre_filter else Status.error("not found")
            assert isinstance(found, PodGroupPostFilterResult | Status)
            return found

    group = host(Default).attempt_group(GANG, MEMBERS)
    wanted = PodGroupPostFilterResult(Status.success(), (Assignment(MEMBERS[0], "n1"),))

    def nothing_fits(removed: Sequence[Pod]) -> Trial:
        raise AssertionError("nobody tries")

    assert group.post_filter(nothing_fits, preemption=wanted) == wanted
    assert group.post_filter(nothing_fits).status == Status.unschedulable()
    assert group.post_filter(nothing_fits, reached_pre_filter=False).status.message == "not found"


def test_async_plugin_awaits_its_what_ifs_and_cannot_ask_later() -> None:
    class Later(Racks):
        kept: ClassVar[list[Tries]] = []

        async def pod_group_post_filter(  # type: ignore[override]  # any method may be async
            self, state: CycleState, group: GroupView, tries: Tries
        ) -> PodGroupPostFilterResult:
            self.kept.append(tries)
            tried = await tries.schedule([])  # type: ignore[misc]  # in an async method
            return PodGroupPostFilterResult(tried.status)

    group = host(Later).attempt_group(GANG, MEMBERS)
    result = group.post_filter(lambda removed: Trial(Status.unschedulable("full")))
    assert result.status == Status.unschedulable("full")
    with pytest.raises(HandleError, match="no PodGroupPostFilter is open"):
        Later.kept[0].schedule([])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(lambda parent: [parent, parent], "two placements named ''", id="one name twice"),
        pytest.param(
            lambda parent: [Placement("a", host().table())], "not among the given nodes", id="other nodes"
        ),
    ],
)
def test_placements_are_checked(answer: Any, text: str) -> None:
    class Wrong(Plugin):
        def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> Any:
            return answer(parent)

    group = host(Wrong).attempt_group(GANG, MEMBERS)
    with pytest.raises(PluginAnswerError, match=text):
        group.generate("n0", "n1")


def test_score_out_of_range_is_refused() -> None:
    class Proud(Plugin):
        def placement_score(
            self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
        ) -> int:
            return 101

    group = host(Proud).attempt_group(GANG, MEMBERS)
    with pytest.raises(PluginAnswerError, match="scores placement '' with 101"):
        group.score({group.trial(): {}})
