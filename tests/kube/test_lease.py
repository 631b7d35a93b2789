"""The elector with a Lease that conflicts, hangs and loses answers, on a manual clock."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from berth_host.config.decoding.types_v1 import LeaderElection
from berth_host.errors.cluster import (
    ConflictError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    TimedOutError,
    UnavailableError,
)
from berth_host.model.clock import ManualClock
from berth_kube.lease import ElectorOptions, LeaderElector

START_S = 1_767_225_600.25  # 2026-01-01T00:00:00.25Z
SETTINGS = LeaderElection(
    leader_elect=True,
    lease_duration_s=15.0,
    renew_deadline_s=10.0,
    retry_period_s=2.0,
    resource_lock="leases",
    resource_name="kube-scheduler",
    resource_namespace="kube-system",
)


class Server:
    """A server with one Lease and a record of its writes."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.events: list[str] = []
        self._version = 0

    def store(self, verb: str, lease: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        kept = copy.deepcopy(dict(lease))
        kept["metadata"] = {**kept["metadata"], "uid": "u1", "resourceVersion": str(self._version)}
        self.lease = kept
        self.writes.append((verb, copy.deepcopy(dict(lease))))
        return copy.deepcopy(kept)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


@dataclass
class Calls:
    """One replica's connection. `fault`: "down", "hangs", "forbidden", or "loses" (done without answer)."""

    server: Server
    fault: str = ""
    reads: int = 0
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self) -> Mapping[str, Any] | None:
        self.reads += 1
        await self._suffer()
        return copy.deepcopy(self.server.lease)

    async def create(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._suffer()
        if self.server.lease is not None:
            raise ConflictError("leases", "kube-system/kube-scheduler", "already exists")
        return self._answer(self.server.store("create", lease))

    async def update(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._suffer()
        current = self.server.lease
        assert current is not None
        if lease["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            raise ConflictError("leases", "kube-system/kube-scheduler", "the object has been modified")
        return self._answer(self.server.store("update", lease))

    def record_event(self, lease: Mapping[str, Any], message: str) -> None:
        assert lease["metadata"]["uid"] == "u1"
        self.server.events.append(message)

    async def _suffer(self) -> None:
        if self.fault == "down":
            raise UnavailableError("leases", "kube-system/kube-scheduler", "connection refused")
        if self.fault == "forbidden":
            raise ForbiddenError("leases", "kube-system/kube-scheduler", "no")
        if self.fault == "invalid":
            problem = FieldProblem(path="metadata.name", problem="no name")
            raise InvalidError("leases", "kube-system/kube-scheduler", [problem])
        if self.fault == "hangs":
            await self.hanging.wait()

    def _answer(self, lease: dict[str, Any]) -> Mapping[str, Any]:
        if self.fault == "loses":
            raise TimedOutError("leases", "kube-system/kube-scheduler", "no answer")
        return lease


class Replica:
    """An elector as a process runs it: acquire, then renew until the end."""

    def __init__(self, name: str, server: Server, clock: ManualClock, draw: float = 0.0) -> None:
        self.calls = Calls(server)
        self.told: list[bool] = []
        self.slow_paths = 0
        options = ElectorOptions(
            clock=clock, draw=lambda: draw, on_leading=self.told.append, on_slow_path=self._slow
        )
        self.elector = LeaderElector(self.calls, name, SETTINGS, options)
        self.leads = False
        self.lost_at_s: float | None = None
        self._clock = clock
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        self.leads = True
        await self.elector.renew()
        self.leads = False
        self.lost_at_s = self._clock.monotonic_s()

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    def _slow(self) -> None:
        self.slow_paths += 1


async def run_for(clock: ManualClock, seconds: float) -> None:
    end_s = clock.monotonic_s() + seconds
    while True:
        for _ in range(30):
            await asyncio.sleep(0)
        due_s = clock.next_timer_s()
        if due_s is None or due_s > end_s:
            break
        clock.advance_to(due_s)
    clock.advance_to(end_s)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_S)


async def test_the_first_replica_makes_the_lease_and_renews_it_as_kube_scheduler_does(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 4.5)

    assert first.leads
    assert [verb for verb, _ in server.writes] == ["create", "update", "update", "update"]
    assert server.writes[0][1] == {
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": "kube-scheduler",
            "namespace": "kube-system",
            "labels": {"berth.io/scheduler": "1"},
        },
        "spec": {
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.250000Z",
            "renewTime": "2026-01-01T00:00:00.250000Z",
            "leaseTransitions": 0,
        },
    }
    renewal = server.writes[-1][1]
    assert renewal["metadata"] == {
        "name": "kube-scheduler",
        "namespace": "kube-system",
        "labels": {"berth.io/scheduler": "1"},
        "uid": "u1",
        "resourceVersion": "3",
    }
    assert renewal["spec"]["acquireTime"] == "2026-01-01T00:00:00.250000Z"
    assert renewal["spec"]["renewTime"] == "2026-01-01T00:00:04.250000Z"
    assert first.calls.reads == 1  # a leader writes without reading
    assert server.events == ["host_1 became leader"]
    assert first.told == [True]
    await first.kill()


async def test_a_follower_takes_over_when_the_holder_is_killed_and_not_before(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)
    second = Replica("host_2", server, clock)
    await run_for(clock, 60.0)
    assert first.leads
    assert not second.leads
    assert second.elector.holder == "host_1"

    await first.kill()
    await run_for(clock, 14.5)  # the last renewal was at most 2 s ago, and is believed for 15 s
    assert not second.leads or clock.monotonic_s() > 74
    await run_for(clock, 5.0)

    assert second.leads
    assert server.spec["holderIdentity"] == "host_2"
    assert server.spec["leaseTransitions"] == 1
    await second.kill()


async def test_never_two_leaders_at_once(server: Server, clock: ManualClock) -> None:
    """The leader's connection is cut: it must have stopped before the other begins."""
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    second = Replica("host_2", server, clock)
    await run_for(clock, 3.0)
    first.calls.fault = "down"
    for _ in range(200):
        await run_for(clock, 0.1)
        assert not (first.leads and second.leads)

    assert second.leads
    assert first.lost_at_s is not None
    assert first.lost_at_s <= 6.0 + 2.0 + SETTINGS.renew_deadline_s
    assert first.told == [True, False]
    await second.kill()


async def test_a_leader_keeps_its_lease_through_a_short_failure(server: Server, clock: ManualClock) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    first.calls.fault = "down"
    await run_for(clock, 8.0)
    first.calls.fault = ""
    await run_for(clock, 20.0)

    assert first.leads
    assert server.spec["leaseTransitions"] == 0
    await first.kill()


async def test_a_call_that_hangs_does_not_prolong_the_leadership(server: Server, clock: ManualClock) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    first.calls.fault = "hangs"
    await run_for(clock, 12.5)

    assert not first.leads
    assert first.lost_at_s == pytest.approx(14.0)


async def test_lease_of_a_suspended_leader_has_run_out_before_it_renews(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    follower = Replica("host_2", server, clock)
    await run_for(clock, 3.0)
    assert first.leads
    # As after SIGSTOP and SIGCONT: time has passed, and no task of the process has run yet.
    renewed_at_s = 2.0
    clock.advance_to(renewed_at_s + SETTINGS.lease_duration_s - 0.5)
    assert not first.elector.has_run_out
    clock.advance(1.0)
    assert first.elector.has_run_out
    assert not follower.elector.has_run_out
    await first.kill()
    await follower.kill()


async def test_renewal_whose_answer_was_lost_is_valid_from_its_sending(
    server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    assert first.leads
    answered = asyncio.Event()

    async def loses_late(lease: Mapping[str, Any]) -> Mapping[str, Any]:
        server.store("update", lease)
        monkeypatch.setattr(first.calls, "update", refuses)
        await answered.wait()
        raise TimedOutError("leases", "kube-system/kube-scheduler", "no answer")

    async def refuses(lease: Mapping[str, Any]) -> Mapping[str, Any]:
        raise UnavailableError("leases", "kube-system/kube-scheduler", "connection refused")

    monkeypatch.setattr(first.calls, "update", loses_late)
    await run_for(clock, 6.0)
    sent_at_s = 4.0
    answered.set()
    await run_for(clock, 0.5)
    assert first.leads
    # As after SIGSTOP and SIGCONT: another replica that read the renewal at once may lead by now.
    clock.advance_to(sent_at_s + SETTINGS.lease_duration_s - 0.1)
    assert not first.elector.has_run_out
    clock.advance(0.2)
    assert first.elector.has_run_out
    await first.kill()


async def test_lease_that_another_took_has_run_out_before_the_renewal_ends(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    assert server.lease is not None
    stolen = copy.deepcopy(server.lease)
    stolen["spec"]["holderIdentity"] = "somebody"
    server.store("update", stolen)
    clock.advance(2.0)
    while first.elector.is_leader:
        await asyncio.sleep(0)
    # The other's name was read in this turn of the loop, and the process has not been told yet.
    assert first.leads
    assert first.elector.has_run_out
    await first.kill()


async def test_a_leader_whose_lease_was_taken_stops_at_once(server: Server, clock: ManualClock) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    assert server.lease is not None
    stolen = copy.deepcopy(server.lease)
    stolen["spec"]["holderIdentity"] = "somebody"
    server.store("update", stolen)
    await run_for(clock, 2.0)

    assert not first.leads
    assert server.spec["holderIdentity"] == "somebody"


async def test_a_leader_reads_the_lease_again_after_a_foreign_write(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    assert server.lease is not None
    labelled = copy.deepcopy(server.lease)
    labelled["metadata"]["labels"] = {"team": "a"}
    server.store("update", labelled)
    await run_for(clock, 2.0)

    assert first.leads
    assert first.slow_paths == 1
    # It keeps what others wrote, and puts its own label back.
    assert server.lease["metadata"]["labels"] == {"team": "a", "berth.io/scheduler": "1"}
    await first.kill()


@pytest.mark.parametrize("labels", [None, {}, {"team": "a"}])
async def test_lease_without_the_label_gets_it_from_the_replica_that_takes_it_over(
    server: Server, clock: ManualClock, labels: dict[str, str] | None
) -> None:
    metadata: dict[str, Any] = {"name": "kube-scheduler", "namespace": "kube-system"}
    if labels is not None:
        metadata["labels"] = labels
    server.store("create", {"metadata": metadata, "spec": {"holderIdentity": ""}})
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)

    assert first.leads
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == {**(labels or {}), "berth.io/scheduler": "1"}
    await first.kill()
    await first.elector.release()
    assert server.spec["holderIdentity"] == ""
    assert server.lease["metadata"]["labels"]["berth.io/scheduler"] == "1"


async def test_a_write_whose_answer_was_lost_is_found_to_have_worked(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    first.calls.fault = "loses"
    await run_for(clock, 1.0)
    assert not first.leads
    first.calls.fault = ""
    await run_for(clock, 2.0)

    assert first.leads
    assert server.spec["leaseTransitions"] == 0
    await first.kill()


async def test_one_of_two_replicas_that_start_together_leads(server: Server, clock: ManualClock) -> None:
    replicas = [Replica("host_1", server, clock), Replica("host_2", server, clock, draw=0.5)]
    await run_for(clock, 30.0)

    assert sorted(replica.leads for replica in replicas) == [False, True]
    assert [verb for verb, _ in server.writes].count("create") == 1
    for replica in replicas:
        await replica.kill()


async def test_a_released_lease_is_acquired_at_the_next_try(server: Server, clock: ManualClock) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 3.0)
    second = Replica("host_2", server, clock, draw=1.0)
    await run_for(clock, 3.0)
    await first.kill()
    await first.elector.release()
    assert server.spec == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": "2026-01-01T00:00:06.250000Z",
        "renewTime": "2026-01-01T00:00:06.250000Z",
        "leaseTransitions": 0,
    }
    assert server.writes[-1][1]["metadata"]["resourceVersion"] == "5"
    await run_for(clock, 2.0 * 2.2)

    assert second.leads
    assert server.spec["leaseTransitions"] == 1
    await second.kill()


async def test_a_follower_releases_no_lease(server: Server, clock: ManualClock) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)
    second = Replica("host_2", server, clock)
    await run_for(clock, 1.0)
    await second.kill()
    written, read = len(server.writes), second.calls.reads
    await second.elector.release()

    assert (len(server.writes), second.calls.reads) == (written, read)
    await first.kill()


async def test_a_replica_stopped_during_its_first_write_releases_the_lease(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    first.calls.fault = "loses"
    await run_for(clock, 0.5)
    assert server.spec["holderIdentity"] == "host_1"
    await first.kill()
    first.calls.fault = ""
    await first.elector.release()

    assert server.spec["holderIdentity"] == ""


async def test_lease_that_cannot_be_released_does_not_hold_the_process(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)
    await first.kill()
    first.calls.fault = "hangs"
    releasing = asyncio.ensure_future(first.elector.release())
    await run_for(clock, 10.0)
    await run_for(clock, 0.0)

    assert releasing.done()
    releasing.result()


async def test_elector_that_is_cancelled_while_a_try_times_out_ends(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)
    second = Replica("host_2", server, clock)
    second.calls.fault = "hangs"
    await run_for(clock, 0.0)
    clock.advance(10.0)
    second.task.cancel()
    await run_for(clock, 1.0)
    assert second.task.cancelled()
    await first.kill()


@pytest.mark.parametrize(("fault", "error"), [("forbidden", ForbiddenError), ("invalid", InvalidError)])
async def test_a_refusal_is_raised_by_the_first_try_only(
    server: Server, clock: ManualClock, fault: str, error: type[Exception]
) -> None:
    refused = Replica("host_1", server, clock)
    refused.calls.fault = fault
    await run_for(clock, 0.1)
    with pytest.raises(error):
        refused.task.result()

    first = Replica("host_2", server, clock)
    await run_for(clock, 1.0)
    standing = Replica("host_3", server, clock)
    await run_for(clock, 1.0)
    standing.calls.fault = fault
    await run_for(clock, 30.0)
    assert not standing.task.done()
    await first.kill()
    await standing.kill()


async def test_the_health_check_fails_when_a_leader_is_long_overdue(
    server: Server, clock: ManualClock
) -> None:
    first = Replica("host_1", server, clock)
    await run_for(clock, 1.0)
    await first.kill()  # as if its task were stuck
    clock.advance(33.5)
    assert first.elector.complaint() == ""
    clock.advance(1.0)

    assert first.elector.complaint() == "failed election to renew leadership on lease kube-scheduler"
