"""The minimum that a group had, by its status: of a PodGroup its condition, of coscheduling's its members."""

from __future__ import annotations

import pytest
from berth_host.scheduler.gang_minimum import has_condition_of_now, minimum_before
from berth_sdk.pod_group import COSCHEDULING, INITIALLY_SCHEDULED, GroupCondition, PodGroup


def gang(status: str, observed: int, *, generation: int = 2) -> PodGroup:
    condition = GroupCondition(type=INITIALLY_SCHEDULED, status=status, observed_generation=observed)
    conditions = (condition,) if status else ()
    return PodGroup(name="g", is_gang=True, min_count=3, generation=generation, conditions=conditions)


@pytest.mark.parametrize(
    ("group", "bound", "had"),
    [
        pytest.param(gang("True", 2), 1, 3, id="placed"),
        pytest.param(gang("True", 1), 2, 2, id="maybe raised since"),
        pytest.param(gang("True", 1), 5, 3, id="changed since, and there"),
        pytest.param(gang("False", 2), 2, 0, id="never placed"),
        pytest.param(gang("", 0), 2, 0, id="never tried"),
    ],
)
def test_condition_of_a_pod_group_says_what_it_had(group: PodGroup, bound: int, had: int) -> None:
    assert minimum_before(group, bound) == had
    assert has_condition_of_now(group) is (had == 3 and bound == 1)


@pytest.mark.parametrize(("bound", "had"), [(0, 0), (1, 3)])
def test_bound_members_say_it_for_a_group_of_coscheduling(bound: int, had: int) -> None:
    group = PodGroup(kind=COSCHEDULING, name="g", is_gang=True, min_count=3)
    assert minimum_before(group, bound) == had
