"""Steps of a trial in their order, and what a plugin's methods about groups may answer."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.cycle_state import GroupState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.pod_group import GroupView, Placement, PlacementProgress, PodGroup
from berth_sdk.runtime.group_runtime import FeasibleRun, FeasibleSteps, PlacementScored
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.status import Code, Status
from berth_sdk.testing.builders import make_node, make_table
from hypothesis import given
from hypothesis import strategies as st

GROUP = GroupView(PodGroup(name="train"))
PLACEMENT = Placement("", make_table([make_node("n0"), make_node("n1")]))
numbers = st.integers(0, 12)


def runtime(**methods: Any) -> PluginRuntime:
    def made(answer: Any) -> Any:
        return lambda self, state, group, *rest: answer(*rest) if callable(answer) else answer

    return PluginRuntime(type("Demo", (), {name: made(answer) for name, answer in methods.items()})())


@given(scheduled=numbers, remaining=numbers, most=st.one_of(st.none(), numbers))
def test_each_step_is_found_at_its_place_and_no_other_is(
    scheduled: int, remaining: int, most: int | None
) -> None:
    steps = FeasibleSteps(scheduled, remaining, most, 2)
    all_steps = steps.all()
    assert len(all_steps) == len(steps) == len(set(all_steps))
    assert [steps.position(step) for step in all_steps] == list(range(len(steps)))
    assert all(
        step.remaining + step.scheduled + step.unschedulable == remaining + scheduled + 2
        for step in all_steps
    )
    known = {(step.remaining, step.scheduled) for step in all_steps}
    around = {(left, placed) for left in range(remaining + 2) for placed in range(scheduled + 14)}
    assert all(steps.position(PlacementProgress(*step)) is None for step in around - known)


def test_equal_answers_in_a_row_are_one_run() -> None:
    def answer(progress: PlacementProgress) -> Status | None:
        return None if progress.scheduled >= 2 else Status(Code.WAIT, ("{scheduled} of 2",))

    demo = runtime(placement_feasible=answer)
    judged = demo.placement_feasible(GroupState("g"), GROUP, FeasibleSteps(0, 4, 0))
    assert judged.runs == (  # type: ignore[union-attr]  # it does not wait
        FeasibleRun(2, Status(Code.WAIT, ("{scheduled} of 2",))),
        FeasibleRun(3, Status.success()),
    )


async def test_async_methods_are_awaited_step_by_step() -> None:
    class Later:
        async def placement_feasible(
            self, state: GroupState, group: GroupView, progress: PlacementProgress
        ) -> Status:
            return Status.unschedulable(str(progress.remaining))

    found = await PluginRuntime(Later()).placement_feasible(GroupState("g"), GROUP, FeasibleSteps(0, 2, 0))  # type: ignore[misc]  # it waits
    assert [run.status.message for run in found.runs] == ["2", "1", "0"]


def test_failed_status_in_place_of_a_score_is_the_plugins_error() -> None:
    demo = runtime(placement_score=Status.unschedulable("no idea"))
    scored = demo.placement_score(GroupState("g"), GROUP, PLACEMENT, ())
    assert scored == PlacementScored(Status(Code.ERROR, ("no idea",)))


@pytest.mark.parametrize(
    ("method", "answer", "args", "text"),
    [
        pytest.param("placement_generate", None, (PLACEMENT,), "a Status or a list of Placement", id="none"),
        pytest.param("placement_generate", ["zone"], (PLACEMENT,), "a list of Placement", id="names"),
        pytest.param("placement_score", 0.5, (PLACEMENT, ()), "an integer", id="fraction"),
        pytest.param("placement_feasible", True, (FeasibleSteps(0, 1),), "answer a Status", id="flag"),
        pytest.param("pod_group_post_filter", "n1", (None,), "answer a Status", id="node name"),
    ],
)
def test_answer_of_another_type_is_an_error_that_names_the_method(
    method: str, answer: Any, args: tuple[Any, ...], text: str
) -> None:
    demo = runtime(**{method: answer})
    with pytest.raises(PluginAnswerError, match=text) as raised:
        getattr(demo, method)(GroupState("g"), GROUP, *args)
    assert f"Demo.{method} answered" in str(raised.value)
