"""The minimum that a group had, by its status: of a PodGroup its condition, of coscheduling's its members."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.groups.gang_minimum import has_condition_of_now, is_of_earlier_group, minimum_before
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod_group import COSCHEDULING, INITIALLY_SCHEDULED, GroupCondition, PodGroup
from berth_sdk.rfc3339 import format_time


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


@pytest.mark.parametrize(
    ("bound", "generation", "had"),
    [
        pytest.param(0, 1, 0, id="nobody"),
        pytest.param(1, 1, 3, id="never changed"),
        pytest.param(2, 2, 2, id="maybe raised since"),
        pytest.param(4, 2, 3, id="changed, and there"),
    ],
)
def test_bound_members_say_it_for_a_group_of_coscheduling(bound: int, generation: int, had: int) -> None:
    group = PodGroup(kind=COSCHEDULING, name="g", is_gang=True, min_count=3, generation=generation)
    assert minimum_before(group, bound) == had


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("made_s", "ends_s", "is_earlier"),
    [
        pytest.param(10, [20, 30], True, id="ended before"),
        pytest.param(10, [20, 60], False, id="ended after"),
        pytest.param(50, [20], False, id="younger than the group, though its node's clock is slow"),
        pytest.param(10, [20, None], False, id="without an end"),
        pytest.param(10, [], False, id="without a status"),
    ],
)
def test_pod_that_ended_before_the_group_was_made_is_none_of_its_members(
    made_s: int, ends_s: list[int | None], is_earlier: bool
) -> None:
    states: list[dict[str, Any]] = [
        {"state": {"running": {}} if end is None else {"terminated": {"finishedAt": format_time(end)}}}
        for end in ends_s
    ]
    pod: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": format_time(made_s)},
        "status": {"containerStatuses": states},
    }
    assert is_of_earlier_group(KubeObject.of(pod), PodGroup(name="g", created_s=50.0)) is is_earlier
