"""A host that dies in the middle of a preemption, and the next one on the same cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from berth_host.app import Host, HostOptions
from berth_host.config.loading import default_configuration
from berth_host.cycle.chooser import SeededChooser
from berth_host.model.clock import Clock, ManualClock
from berth_host.model.patch_type import PatchType
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.server import ApiServer
from berth_sim.run.settle import NEVER_FLUSHED_S, settle
from hypothesis import given, settings
from hypothesis import strategies as st
from support.groups import GROUPS, members, pod_group
from support.hosts import START_S, node, pod
from support.tiers import examples

NODES = 3
VICTIMS = 3
HIGH = ObjectRef(namespace="default", name="high")
FINALIZER = "example.com/stops-slowly"


class MortalCluster(MemoryCluster):
    """Every write takes a turn of the loop before it is done and another one before its answer is there; a
    dead host's writes do not happen. It is told of victims side by side, or in a row.
    """

    is_dead = False

    def __init__(self, clock: Clock, server: ApiServer, *, in_a_row: bool) -> None:
        super().__init__(clock, server)
        self.answers_at_once = in_a_row

    async def _turn(self) -> None:
        if self.is_dead:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        if self.is_dead:
            raise asyncio.CancelledError

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
        await self._turn()
        done = await super().patch(
            resource,
            ref,
            patch,
            patch_type=patch_type,
            subresource=subresource,
            expected_resource_version=expected_resource_version,
        )
        await self._turn()
        return done

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        await self._turn()
        await super().delete(resource, ref, grace_period_s=grace_period_s, same_uid=same_uid)
        await self._turn()

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        await self._turn()
        await super().bind(pod, node_name)
        await self._turn()

    def record_event(
        self,
        pod: Pod,
        type: str,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
        related_kind: str = "Pod",
    ) -> None:
        if self.is_dead:
            raise asyncio.CancelledError
        super().record_event(pod, type, reason, action, note, related, related_kind)


def a_host(
    server: ApiServer, seed: int, *, in_a_row: bool = False, groups: bool = False
) -> tuple[Host, MortalCluster]:
    clock = ManualClock(START_S)
    cluster = MortalCluster(clock, server, in_a_row=in_a_row)
    options = HostOptions(clock=clock, chooser=SeededChooser(seed), max_in_pool_s=NEVER_FLUSHED_S)
    configuration = default_configuration(
        registered=ClassRegistry().points(), feature_gates=GROUPS if groups else {}
    )
    return Host(configuration, cluster, options), cluster


@dataclass(frozen=True)
class Seen:
    """The state of the API server. `leaving`: names of low pods that are gone or on their way."""

    nominated: str
    bound: str
    leaving: frozenset[str]


def look(server: ApiServer) -> Seen:
    high = server.get("pods", HIGH)
    assert high is not None
    low = {item.ref.name: item for item in server.list("pods") if item.ref.name != HIGH.name}
    staying = {name for name, item in low.items() if item.get("metadata.deletionTimestamp") is None}
    every = {f"low-{i}-{j}" for i in range(NODES) for j in range(VICTIMS)}
    return Seen(
        high.get("status.nominatedNodeName", ""),
        high.get("spec.nodeName", ""),
        frozenset(every - staying),
    )


async def crash_and_take_over(
    turns: int, slowly: bool, seeds: tuple[int, int], *, in_a_row: bool
) -> tuple[Seen, Seen]:
    """Return the state after the crash, and at the end."""
    server = ApiServer(ManualClock(START_S))
    for i in range(NODES):
        server.create(node(f"n{i}", cpu="3"))
        for j in range(VICTIMS):
            low = pod(f"low-{i}-{j}", cpu="1", nodeName=f"n{i}")
            if slowly:
                low["metadata"]["finalizers"] = [FINALIZER]
            server.create(low)
    first, cluster = a_host(server, seeds[0], in_a_row=in_a_row)
    await first.start()
    server.create(pod(HIGH.name, cpu="3", priority=10))
    await _crash(cluster, turns)
    before = look(server)
    second, _ = a_host(server, seeds[1], in_a_row=in_a_row)
    await _take_over(second, server)
    return before, look(server)


async def _crash(cluster: MortalCluster, turns: int) -> None:
    """Let the host run for some turns of the loop, then end it as it is."""
    for _ in range(turns):
        await asyncio.sleep(0)
    cluster.is_dead = True
    await cluster.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _take_over(second: Host, server: ApiServer) -> None:
    """Start the next host, and let it run until nothing changes any more."""
    await second.start()
    try:
        await settle(second)
        while (left := _stopping(server)) is not None:
            server.patch("pods", left, {"metadata": {"finalizers": None}})
            await settle(second)
    finally:
        await second.stop()


def _stopping(server: ApiServer) -> ObjectRef | None:
    """Return a pod that is deleted and waits for its kubelet."""
    found = (item for item in server.list("pods") if item.get("metadata.deletionTimestamp") is not None)
    ref = next((item.ref for item in found), None)
    return None if ref is None else ObjectRef(namespace=ref.namespace, name=ref.name)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    turns=st.integers(0, 40),
    slowly=st.booleans(),
    seeds=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    in_a_row=st.booleans(),
)
def test_next_host_finishes_the_preemption_and_begins_no_second_one(
    turns: int, slowly: bool, seeds: tuple[int, int], in_a_row: bool
) -> None:
    before, after = asyncio.run(crash_and_take_over(turns, slowly, seeds, in_a_row=in_a_row))
    # No victim leaves before the nomination is written: without it the next host does not know its preemptor.
    assert before.nominated or before.bound or not before.leaving
    assert after.bound
    if before.nominated:
        assert after.bound == before.nominated
    assert after.leaving == {f"low-{after.bound[1:]}-{j}" for j in range(VICTIMS)}


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("in_a_row", [False, True])
def test_crashes_happen_before_between_and_after_the_evictions(in_a_row: bool) -> None:
    crashes = [crash_and_take_over(turns, False, (0, 1), in_a_row=in_a_row) for turns in range(41)]
    counts = {len(asyncio.run(crash)[0].leaving) for crash in crashes}
    assert {0, VICTIMS} < counts


# --- a group ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupSeen:
    """The state of the API server. `nominated`, `bound`: the nodes of members. `leaving`: as in `Seen`."""

    nominated: frozenset[str]
    bound: frozenset[str]
    leaving: frozenset[str]


def look_at_group(server: ApiServer) -> GroupSeen:
    pods = {item.ref.name: item for item in server.list("pods")}
    high = [item for name, item in pods.items() if name.startswith("hi-")]
    staying = {name for name, item in pods.items() if item.get("metadata.deletionTimestamp") is None}
    every = {f"low-{i}-{j}" for i in range(NODES) for j in range(VICTIMS)}
    nominated = {item.get("status.nominatedNodeName") for item in high}
    bound = {item.get("spec.nodeName") for item in high}
    return GroupSeen(
        frozenset(nominated - {None, ""}), frozenset(bound - {None, ""}), frozenset(every - staying)
    )


async def group_crashes(
    turns: int, slowly: bool, seeds: tuple[int, int], *, in_a_row: bool
) -> tuple[GroupSeen, GroupSeen]:
    """Return the state after the crash of a host that preempts for a group, and at the end."""
    server = ApiServer(ManualClock(START_S))
    for i in range(NODES):
        server.create(node(f"n{i}", cpu="3"))
        for j in range(VICTIMS):
            low = pod(f"low-{i}-{j}", cpu="1", nodeName=f"n{i}")
            if slowly:
                low["metadata"]["finalizers"] = [FINALIZER]
            server.create(low)
    server.create(pod_group("hi", least=2, priority=10))
    for high in members("hi", 2, cpu="3", priority=10):
        server.create(high)
    first, cluster = a_host(server, seeds[0], in_a_row=in_a_row, groups=True)
    await first.start()
    await _crash(cluster, turns)
    before = look_at_group(server)
    second, _ = a_host(server, seeds[1], in_a_row=in_a_row, groups=True)
    await _take_over(second, server)
    return before, look_at_group(server)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    turns=st.integers(0, 60),
    slowly=st.booleans(),
    seeds=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    in_a_row=st.booleans(),
)
def test_next_host_finishes_the_preemption_of_a_group(
    turns: int, slowly: bool, seeds: tuple[int, int], in_a_row: bool
) -> None:
    before, after = asyncio.run(group_crashes(turns, slowly, seeds, in_a_row=in_a_row))
    # No victim leaves before the nominations are written.
    assert len(before.nominated | before.bound) == 2 or not before.leaving
    assert len(after.bound) == 2
    if before.leaving:
        assert after.bound == before.nominated | before.bound
    assert after.leaving == {f"low-{name[1:]}-{j}" for name in after.bound for j in range(VICTIMS)}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("in_a_row", [False, True])
def test_crashes_happen_before_between_and_after_the_evictions_for_a_group(in_a_row: bool) -> None:
    crashes = [group_crashes(turns, False, (0, 1), in_a_row=in_a_row) for turns in range(61)]
    counts = {len(asyncio.run(crash)[0].leaving) for crash in crashes}
    assert {0, 2 * VICTIMS} < counts
