"""The strategic merge patch of one condition, as kube-scheduler sends it, and how often it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.cycle.repeating import TRIES
from berth_host.cycle.status_patch import condition_patch, patch_status
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.strategic_merge import merged
from hypothesis import given
from hypothesis import strategies as st
from support.hosts import START_S, pod

NOW = "2026-01-01T00:10:00Z"
BEFORE = "2026-01-01T00:00:00Z"
WANTED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "full",
    "observedGeneration": 1,
}
WRITTEN = {**WANTED, "lastProbeTime": None, "lastTransitionTime": BEFORE}
OTHER = {"type": "example.com/Mine", "status": "True"}
MINE = {"type": "example.com/Mine"}
SCHEDULED = {"type": "PodScheduled"}


@pytest.mark.parametrize(
    ("conditions", "wanted", "patch"),
    [
        pytest.param(
            [], WANTED, {"conditions": [{**WRITTEN, "lastTransitionTime": NOW}]}, id="the first condition"
        ),
        pytest.param(
            [OTHER],
            WANTED,
            {
                "$setElementOrder/conditions": [MINE, SCHEDULED],
                "conditions": [{**WRITTEN, "lastTransitionTime": NOW}],
            },
            id="beside another's",
        ),
        pytest.param([OTHER, WRITTEN], WANTED, None, id="the same"),
        pytest.param(
            [WRITTEN, OTHER],
            {**WANTED, "message": "fuller"},
            {
                "$setElementOrder/conditions": [SCHEDULED, MINE],
                "conditions": [{**SCHEDULED, "message": "fuller"}],
            },
            id="another message has no time",
        ),
        pytest.param(
            [WRITTEN],
            {**WANTED, "message": "", "reason": "SchedulerError"},
            {
                "$setElementOrder/conditions": [SCHEDULED],
                "conditions": [{**SCHEDULED, "message": None, "reason": "SchedulerError"}],
            },
            id="what is empty is removed",
        ),
        pytest.param(
            [{**SCHEDULED, "status": "True", "lastTransitionTime": BEFORE}],
            WANTED,
            {
                "$setElementOrder/conditions": [SCHEDULED],
                "conditions": [{**WANTED, "lastTransitionTime": NOW}],
            },
            id="another status is a transition",
        ),
        pytest.param(
            [{**WRITTEN, "lastProbeTime": BEFORE}],
            WANTED,
            {
                "$setElementOrder/conditions": [SCHEDULED],
                "conditions": [{**SCHEDULED, "lastProbeTime": None}],
            },
            id="a time that somebody set is removed",
        ),
        pytest.param(
            [WRITTEN], {**WANTED, "observedGeneration": 2}, None, id="a generation alone is no change"
        ),
        pytest.param(
            [WRITTEN],
            {**WANTED, "observedGeneration": 2, "message": "fuller"},
            {
                "$setElementOrder/conditions": [SCHEDULED],
                "conditions": [{**SCHEDULED, "message": "fuller", "observedGeneration": 2}],
            },
            id="a generation comes along",
        ),
    ],
)
def test_status_patch_has_only_the_changes(
    conditions: list[dict[str, Any]], wanted: dict[str, Any], patch: dict[str, Any] | None
) -> None:
    assert condition_patch(conditions, wanted, NOW) == patch


WORDS = st.sampled_from(["", "a", "b"])
STATUS = st.sampled_from(["True", "False"])


@given(
    st.lists(st.tuples(st.sampled_from("PQRS"), STATUS, WORDS, WORDS), unique_by=lambda item: item[0]),
    st.tuples(STATUS, WORDS, WORDS),
)
def test_status_patch_sets_a_condition_and_keeps_the_others(
    before: list[tuple[str, str, str, str]], wanted: tuple[str, str, str]
) -> None:
    def condition(type: str, status: str, reason: str, message: str) -> dict[str, Any]:
        said = {"type": type, "status": status, "reason": reason, "message": message}
        return {key: value for key, value in said.items() if value}

    conditions = [{**condition(*item), "lastTransitionTime": BEFORE} for item in before]
    patch = condition_patch(conditions, {**condition("P", *wanted)}, NOW)
    target = {"status": {"conditions": conditions} if conditions else {}}
    after = merged("Pod", target, {"status": patch or {}})["status"].get("conditions", [])
    (mine,) = [item for item in after if item["type"] == "P"]
    old = next((item for item in conditions if item["type"] == "P"), None)
    kept = old is not None and old["status"] == wanted[0]
    assert mine == {**condition("P", *wanted), "lastTransitionTime": BEFORE if kept else NOW}
    assert [item for item in after if item["type"] != "P"] == [i for i in conditions if i["type"] != "P"]


class Failing(MemoryCluster):
    """Fails with `errors`, one after the other, before it does what it is asked."""

    def __init__(self, errors: list[ClusterError]) -> None:
        super().__init__(ManualClock(START_S))
        self._errors = list(errors)
        self.asked = 0

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Fail, or patch."""
        assert (patch_type, subresource, expected_resource_version) == (PatchType.STRATEGIC, "status", "")
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        return await super().patch(resource, ref, patch, patch_type=patch_type, subresource=subresource)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the pauses between tries, and return their lengths."""
    taken: list[float] = []

    async def pause(duration_s: float) -> None:
        taken.append(duration_s)

    monkeypatch.setattr("berth_host.cycle.repeating.asyncio.sleep", pause)
    return taken


async def send(cluster: Failing) -> None:
    """One status patch."""
    await patch_status(cluster, cluster.server.create(pod("web")).ref, {"nominatedNodeName": "n1"})


async def test_status_patch_is_tried_four_times_after_conflicts_and_outages(pauses: list[float]) -> None:
    away = UnavailableError("pods", "web", "away")
    cluster = Failing([away, ConflictError("pods", "web", "modified"), away])
    await send(cluster)
    assert cluster.asked == TRIES
    assert [
        wait_s <= taken <= 1.1 * wait_s for wait_s, taken in zip((0.01, 0.05, 0.25), pauses, strict=True)
    ] == [True] * 3
    found = await cluster.get("pods", ObjectRef(namespace="default", name="web"))
    assert found is not None
    assert found.get("status.nominatedNodeName") == "n1"


async def test_status_patch_fails_after_the_fourth_try(pauses: list[float]) -> None:
    cluster = Failing([ConflictError("pods", "web", "modified")] * (TRIES + 1))
    with pytest.raises(ConflictError):
        await send(cluster)
    assert (cluster.asked, len(pauses)) == (TRIES, TRIES - 1)


@pytest.mark.parametrize("error", [ForbiddenError, NotFoundError, TimedOutError])
async def test_status_patch_is_not_repeated_after_other_failures(
    error: type[ClusterError], pauses: list[float]
) -> None:
    cluster = Failing([error("pods", "web", "no")])
    with pytest.raises(error):
        await send(cluster)
    assert (cluster.asked, pauses) == (1, [])
