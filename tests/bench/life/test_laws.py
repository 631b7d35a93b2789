"""The laws see what the API server and the host's calls show."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.life.faulty_cluster import Fault
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.plugins import Ledger
from berth_bench.life.trace import Trace
from berth_bench.life.world import Gang
from berth_bench.versus.objects import node, pod
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sim.cluster.server import ApiServer
from support.hosts import World

SLACK_S = 10.0


class Watched:
    """An API server with one node of one CPU, and its laws."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = ApiServer(self.clock)
        self.trace = Trace(self.clock.monotonic_s)
        self.gangs: dict[str, Gang] = {}
        self.laws = Laws(self.server, self.clock, self.trace, SLACK_S, self.gangs)
        self.server.create(node("n1", "1"))

    def create(self, name: str, cpu: str = "600m", **spec: Any) -> None:
        self.server.create(pod(name, cpu, **spec))

    def bind(self, name: str, where: str = "n1") -> None:
        self.server.bind(ObjectRef(name=name, namespace="default"), where)

    def delete(self, name: str) -> None:
        self.server.delete("pods", ObjectRef(name=name, namespace="default"))


def test_world_without_a_fault_breaks_no_law() -> None:
    watched = Watched()
    watched.create("a")
    watched.bind("a")
    watched.laws.account.leaves("a")
    watched.delete("a")
    watched.laws.check()
    seen = [line.split()[1:4] + line.split()[5:] for line in watched.trace.lines if " Namespace " not in line]
    assert seen == [
        ["new", "Node", "n1"],
        ["new", "Pod", "default/a"],
        ["changed", "Pod", "default/a", "on", "n1"],
        ["gone", "Pod", "default/a", "on", "n1"],
    ]


def test_pod_that_nobody_deleted_is_missed() -> None:
    watched = Watched()
    watched.create("a")
    watched.delete("a")
    with pytest.raises(LawBrokenError, match="pods disappeared that nobody deleted: a"):
        watched.laws.check()


def test_node_with_more_pods_than_it_holds_is_found() -> None:
    watched = Watched()
    for name in "ab":
        watched.create(name)
        watched.bind(name)
    with pytest.raises(LawBrokenError, match="nodes got more than they can hold: n1"):
        watched.laws.check()


def test_pod_that_has_ended_takes_no_room() -> None:
    watched = Watched()
    watched.create("a")
    watched.bind("a")
    ref = ObjectRef(name="a", namespace="default")
    watched.server.patch("pods", ref, {"status": {"phase": "Succeeded"}}, subresource="status")
    watched.create("b")
    watched.bind("b")
    watched.laws.check()


@pytest.mark.parametrize("where", ["n1", "unknown"])
def test_pod_on_a_node_that_takes_none_is_found(where: str) -> None:
    watched = Watched()
    watched.server.patch("nodes", ObjectRef(name="n1"), {"spec": {"unschedulable": True}})
    watched.clock.advance(SLACK_S + 1)
    watched.create("a")
    watched.bind("a", where)
    with pytest.raises(LawBrokenError, match=r"(hold: unknown|takes none|take none: a)"):
        watched.laws.check()


@pytest.mark.parametrize(("priority", "breaks"), [(0, True), (100, False)])
def test_preemption_needs_a_pending_pod_with_more_priority(priority: int, breaks: bool) -> None:
    watched = Watched()
    watched.create("victim", priority=0)
    watched.bind("victim")
    watched.create("pending", priority=priority)
    watched.laws.note("begun", "delete", "pods", "default/victim", Fault.NONE)
    watched.delete("victim")
    if breaks:
        with pytest.raises(LawBrokenError, match="without a pending pod of more priority: default/victim"):
            watched.laws.check()
    else:
        watched.laws.check()


def test_pod_that_leaves_while_its_victims_are_evicted_may_preempt_for_a_minute() -> None:
    watched = Watched()
    for name in ("victim", "late"):
        watched.create(name, "100m", priority=0)
        watched.bind(name)
    watched.create("preemptor", priority=100)
    watched.laws.account.leaves("preemptor")
    watched.delete("preemptor")
    watched.clock.advance(59)
    watched.laws.note("begun", "delete", "pods", "default/victim", Fault.NONE)
    watched.laws.check()
    watched.clock.advance(2)
    watched.laws.note("begun", "delete", "pods", "default/late", Fault.NONE)
    with pytest.raises(LawBrokenError, match="without a pending pod of more priority: default/late"):
        watched.laws.check()


@pytest.mark.parametrize("is_short", [False, True])
def test_gang_may_be_partly_bound_for_a_minute(is_short: bool) -> None:
    watched = Watched()
    watched.gangs["g"] = Gang(2, ["a", "b"], 100, "low", is_short=is_short)
    for name in "ab":
        watched.create(name, "100m", schedulingGroup={"podGroupName": "g"})
    watched.bind("a")
    watched.laws.check_gangs()
    watched.clock.advance(60)
    watched.laws.check_gangs()
    watched.clock.advance(1)
    if is_short:
        watched.laws.check_gangs()
        return
    with pytest.raises(
        LawBrokenError, match="a gang was partly bound for 60 s: g of 2, of which 1 had nodes"
    ):
        watched.laws.check_gangs()
    watched.bind("b")
    watched.laws.check_gangs()


def test_pod_over_the_quota_is_found_and_one_that_was_there_before_is_not() -> None:
    watched = Watched()
    watched.create("before")
    metadata = {"name": "q", "namespace": "default"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": {"pods": "1"}},
    }
    watched.server.create(quota)
    watched.create("a")
    watched.laws.account.leaves("a")
    watched.delete("a")
    watched.create("b")
    watched.laws.check()
    watched.create("c")
    with pytest.raises(LawBrokenError, match="more pods than the quota allows: default/c"):
        watched.laws.check()


@pytest.mark.parametrize(
    ("spec", "law"),
    [
        (
            {"resourceClaims": [{"name": "d", "resourceClaimName": "c"}]},
            "devices: default/a .d does not exist",
        ),
        (
            {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]},
            r"volumes: default/a .c\)",
        ),
    ],
)
def test_pod_that_is_bound_without_what_it_claims_is_found(spec: dict[str, Any], law: str) -> None:
    watched = Watched()
    watched.create("a", **spec)
    watched.bind("a")
    with pytest.raises(LawBrokenError, match=f"pods were bound without their {law}"):
        watched.laws.check()


@pytest.mark.parametrize(
    ("note", "fault", "breaks"),
    [
        ('running Bind plugin "DefaultBinder": no answer', Fault.TIME_OUT_AFTER, True),
        ('running Bind plugin "DefaultBinder": no answer', Fault.NONE, False),
        ("0/3 nodes are available", Fault.TIME_OUT_AFTER, False),
    ],
)
def test_attempt_that_fails_although_its_binding_took_effect_is_found(
    note: str, fault: Fault, breaks: bool
) -> None:
    watched = Watched()
    watched.create("a")
    made = Pod.from_object(watched.server.list("pods")[0])
    watched.laws.note("begun", "bind", "pods", "default/a", fault)
    watched.bind("a")
    watched.laws.note("done", "bind", "pods", "default/a", fault)
    watched.laws.note_event(made, "FailedScheduling", note)
    if breaks:
        with pytest.raises(LawBrokenError, match="failed although its binding took effect: default/a"):
            watched.laws.check()
    else:
        watched.laws.check()


def test_gang_with_a_member_that_the_keeper_rejected_may_be_partly_bound() -> None:
    watched = Watched()
    watched.gangs["g"] = Gang(2, ["a", "b"], 100, "low")
    watched.create("a", "100m", schedulingGroup={"podGroupName": "g"})
    made = Pod.from_object(watched.server.list("pods")[0])
    watched.laws.note_event(made, "FailedScheduling", 'timeout: plugin "LifeKeeper"')
    assert watched.gangs["g"].is_short


def test_faults_are_counted_once_and_traced() -> None:
    watched = Watched()
    for moment in ("begun", "done"):
        watched.laws.note(moment, "bind", "pods", "default/a", Fault.TIME_OUT_AFTER)
    assert watched.laws.faults == 1
    assert watched.trace.lines[-1] == "0.000000 call done bind pods default/a TIME_OUT_AFTER"


async def test_host_at_rest_agrees_with_the_api_server() -> None:
    async with World([node("n1", "1"), pod("a", "100m"), pod("b", "100m")]) as world:
        laws = Laws(world.server, world.clock, Trace(world.clock.monotonic_s), SLACK_S, {})
        await world.settle()
        laws.check_end(world.host, Ledger())
        ledger = Ledger()
        ledger.held["u"] = "default/a"
        with pytest.raises(LawBrokenError, match="reservations were neither undone nor ended: default/a"):
            laws.check_end(world.host, ledger)
        world.server.create(node("n2", "1"))
        with pytest.raises(LawBrokenError, match="the cache has other nodes than the API server: n2"):
            laws.check_end(world.host, Ledger())
        await world.settle()
        found = world.server.get("pods", ObjectRef(name="a", namespace="default"))
        assert found is not None
        world.host.cache.remove_pod(Pod.from_object(found))
        with pytest.raises(LawBrokenError, match="the cache has other pods on nodes than the API server"):
            laws.check_end(world.host, Ledger())
