"""The condition that an attempt writes to the status of a PodGroup."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.life.faulty_cluster import FaultyCluster
from berth_host.cycle.repeating import TRIES
from berth_host.groups import group_status
from berth_host.groups.group_status import POD_GROUPS, GroupStatusWriter
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod_group import INITIALLY_SCHEDULED, PodGroup
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.kinds import BY_KIND
from support.hosts import START_S
from support.waiting import until

REF = ObjectRef(namespace="default", name="train")


class Written:
    """A cluster with one group, and the writer."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.server.create(
            {
                "apiVersion": BY_KIND["PodGroup"].api_version,
                "kind": "PodGroup",
                "metadata": {"name": "train"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            }
        )
        self.writer = GroupStatusWriter(self.cluster, self.clock)

    @property
    def group(self) -> PodGroup:
        """The group as it is now."""
        found = self.cluster.server.get(POD_GROUPS, REF)
        assert found is not None
        return PodGroup.of(found)

    async def fail(self, message: str, group: PodGroup | None = None) -> None:
        self.writer.attempted(group or self.group, placed=False, reason="Unschedulable", message=message)
        await self.writer.flush(60)

    async def place(self, group: PodGroup | None = None) -> None:
        self.writer.attempted(group or self.group, placed=True, reason="Scheduled", message="")
        await self.writer.flush(60)

    def condition(self) -> dict[str, Any]:
        assert self.group.object is not None
        (found,) = self.group.object.get("status.conditions")
        assert isinstance(found, dict)
        return found


@pytest.fixture
def written() -> Written:
    return Written()


async def test_failed_attempt_sets_the_condition_with_the_generation(written: Written) -> None:
    await written.fail("minCount (2) cannot be satisfied: 0 scheduled, 1 remaining")
    assert written.condition() == {
        "type": INITIALLY_SCHEDULED,
        "status": "False",
        "reason": "Unschedulable",
        "message": "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_placed_group_has_an_empty_message_that_is_there(written: Written) -> None:
    await written.place()
    assert (written.condition()["status"], written.condition()["message"]) == ("True", "")


async def test_same_outcome_again_writes_nothing(written: Written) -> None:
    await written.fail("full")
    before = written.group.resource_version
    await written.fail("full")
    assert written.group.resource_version == before


async def test_changed_message_keeps_the_time_and_a_changed_status_does_not(written: Written) -> None:
    await written.fail("full")
    written.clock.advance(60)
    await written.fail("still full")
    assert written.condition()["message"] == "still full"
    assert written.condition()["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    await written.place()
    assert written.condition()["lastTransitionTime"] == "2026-01-01T00:01:00Z"


async def test_new_generation_alone_is_written(written: Written) -> None:
    await written.fail("full")
    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    written.cluster.server.patch(POD_GROUPS, REF, change)
    await written.fail("full")
    assert written.condition()["observedGeneration"] == 2


async def test_condition_never_goes_back_from_true(written: Written) -> None:
    await written.place()
    await written.fail("full")
    assert written.condition()["status"] == "True"


async def test_group_that_the_watch_has_not_shown_again_counts_as_it_was_written(written: Written) -> None:
    seen_before = written.group
    await written.place(seen_before)
    await written.fail("full", seen_before)
    assert written.condition()["status"] == "True"


async def test_outcomes_are_written_in_order(written: Written) -> None:
    group = written.group
    for message in ("one", "two"):
        written.writer.attempted(group, placed=False, reason="Unschedulable", message=message)
    assert written.writer.pending_count == 1
    assert await written.writer.flush(60)
    assert written.condition()["message"] == "two"


async def test_other_conditions_stay(written: Written) -> None:
    condition = {"type": "Other", "status": "True", "reason": "R", "message": "", "lastTransitionTime": None}
    written.cluster.server.patch(
        POD_GROUPS, REF, {"status": {"conditions": [condition]}}, subresource="status"
    )
    await written.fail("full")
    assert {one.type for one in written.group.conditions} == {"Other", INITIALLY_SCHEDULED}


async def test_group_that_is_gone_is_dropped(written: Written) -> None:
    group = written.group
    written.cluster.server.delete(POD_GROUPS, REF)
    await written.fail("full", group)
    assert written.writer.pending_count == 0


class Away(Written):
    """A cluster that a test can make unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.faulty = FaultyCluster(self.cluster, self.clock)
        self.writer = GroupStatusWriter(self.faulty, self.clock)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(group_status, "FIRST_PAUSE_S", 0.01)
    return Away()


async def test_outcome_is_written_when_the_api_server_is_back(away: Away) -> None:
    away.faulty.die()
    away.writer.attempted(away.group, placed=True, reason="Scheduled", message="")
    await until(lambda: len(away.faulty.calls) > TRIES)
    away.faulty.revive()
    assert await away.writer.flush(60)
    assert away.condition()["status"] == "True"


async def test_later_outcome_replaces_the_one_that_could_not_be_written(away: Away) -> None:
    away.faulty.die()
    away.writer.attempted(away.group, placed=False, reason="Unschedulable", message="one")
    await until(lambda: len(away.faulty.calls) > TRIES)
    away.writer.attempted(away.group, placed=False, reason="Unschedulable", message="two")
    away.faulty.revive()
    assert await away.writer.flush(60)
    assert away.condition()["message"] == "two"
    assert len(away.faulty.done) <= 2
    assert away.writer.pending_count == 0
