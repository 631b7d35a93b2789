"""Trials of gangs in racks whose outcomes are kept: a host that keeps them does what one does that asks every
plugin about every member in every rack, whatever happens between two gangs. A test breaks each rule by which
a kept trial ends, and sees that the two hosts then differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
from berth_host.groups import kept_trials
from berth_host.groups.kept_trials import KeptTrials
from berth_host.groups.placements import Placements
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.status import Status
from berth_sdk.tables.node_view import NodeView
from hypothesis import given, settings
from hypothesis import strategies as st
from support.groups import condition_of, grouped, member, message_of, nodes_of, pod_group
from support.hosts import World, node, pod
from support.tiers import examples

RACKS = 3
NODES = 7
TOPOLOGY = {"TopologyAwareWorkloadScheduling": True}
IN_A_RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
Deed = tuple[Any, ...]


def rack_node(number: int, *, cpu: str = "3", rack: int | None = None, **more: Any) -> dict[str, Any]:
    made = node(f"n{number}", cpu=cpu, **more)
    where = number % RACKS if rack is None else rack
    made["metadata"].setdefault("labels", {})["rack"] = f"r{where}"
    return made


class Ranked(Plugin):
    """Refuses nodes with three pods and more, and prefers racks with few pods."""

    depends_on = DependsOn.ROW
    sign_fields: Sequence[PodField] | None = ()
    reads = (NodeColumn.POD_COUNT,)
    needs = (Need.nodes(),)
    judged: ClassVar[int] = 0
    scored: ClassVar[int] = 0

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status | None:
        type(self).judged += 1
        return Status.unschedulable("three pods are enough") if node.pod_count >= 3 else None

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        type(self).scored += 1
        return 100 - int(placement.nodes.pod_count.sum()) - len(assignments)


class Racks:
    """The same cluster on two hosts, with kept answers and without."""

    def __init__(self, plugins: Sequence[type] = (), emulated_version: str = "") -> None:
        self.worlds = [
            grouped(
                [rack_node(i) for i in range(NODES)],
                plugins,
                gates=TOPOLOGY,
                keep_answers=keeps,
                emulated_version=emulated_version,
            )
            for keeps in (True, False)
        ]
        self.groups: list[str] = []
        self.begun_again: list[str] = []
        """The groups of which a kept outcome was not that of the new trial."""
        self._groups_to_come: list[dict[str, Any]] = []
        self.singles = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Racks:
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        begin_again = Placements._choose_without_kept  # noqa: SLF001

        def noted(one: Placements, cycle: Any, branch: Any, parent: Any) -> Any:
            self.begun_again.append(branch.group.name)
            return begin_again(one, cycle, branch, parent)

        patch.setattr(Placements, "_choose_without_kept", noted)
        for world in self.worlds:
            await self._stack.enter_async_context(world)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def act(self, deed: Deed) -> None:
        """Do the same to both, and compare them."""
        getattr(self, deed[0])(*deed[1:])
        groups, self._groups_to_come = self._groups_to_come, []
        if groups:
            # After its members: a cycle of the group could begin while they come.
            for world in self.worlds:
                await world.settle()
                for group in groups:
                    world.server.create(group)
        for world in self.worlds:
            await world.settle()
            world.clock.advance(11)
            await world.settle()
        kept, asked = map(self.shown, self.worlds)
        assert kept == asked, deed
        assert not self.begun_again, deed

    def gang(self, size: int, least: int, cpu: int, *, label: str = "") -> None:
        name = f"g{len(self.groups)}"
        self.groups.append(name)
        self._groups_to_come.append(pod_group(name, least=min(least, size), **IN_A_RACK))
        for world in self.worlds:
            for i in range(size):
                made = member(f"{name}-{i}", name, cpu=str(cpu))
                made["metadata"]["labels"] = {"of": label or name}
                world.server.create(made)

    def end(self, place: int) -> None:
        """Delete the pods of an earlier gang."""
        if not self.groups:
            return
        name = self.groups[place % len(self.groups)]
        for world in self.worlds:
            for one in list(world.server.list("pods")):
                if one.get("spec.schedulingGroup.podGroupName") == name:
                    world.server.delete("pods", one.ref, grace_period_s=0)

    def single(self, number: int) -> None:
        self.singles += 1
        for world in self.worlds:
            made = pod(f"single-{self.singles}", cpu="1", nodeName=f"n{number % NODES}")
            world.server.create(made, restore=True)

    def node(self, number: int, cpu: int, rack: int, cordoned: bool) -> None:
        number %= NODES
        for world in self.worlds:
            ref = ObjectRef(name=f"n{number}")
            raw = dict(rack_node(number, cpu=str(cpu), rack=rack))
            raw["spec"] = {**raw.get("spec", {}), "unschedulable": cordoned}
            if world.server.get("nodes", ref) is not None:
                world.server.delete("nodes", ref)
            world.server.create(raw)

    def shown(self, world: World) -> Any:
        """Return what the host has done so far."""
        pods = {one.ref.name for one in world.server.list("pods")}
        return {
            name: (
                nodes_of(world, name),
                condition_of(world, name),
                world.host.group_records.get(f"podgroup/default/{name}") is None,
            )
            for name in self.groups
        } | {name: message_of(world, name) for name in sorted(pods)}


GANGS = st.tuples(st.just("gang"), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))
DEEDS = st.one_of(
    GANGS,
    GANGS,
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("single"), st.integers(0, NODES - 1)),
    st.tuples(
        st.just("node"),
        st.integers(0, NODES - 1),
        st.integers(1, 4),
        st.integers(0, RACKS - 1),
        st.booleans(),
    ),
)


@given(
    deeds=st.lists(DEEDS, min_size=3, max_size=9),
    ranked=st.booleans(),
    version=st.sampled_from(["1.37", "1.38"]),
)
@settings(max_examples=examples(60), deadline=None)
async def test_kept_trials_change_nothing(deeds: list[Deed], ranked: bool, version: str) -> None:
    async with Racks([Ranked] if ranked else [], version) as racks:
        for deed in deeds:
            await racks.act(deed)


FULL: list[Deed] = [
    ("gang", 3, 3, 1),
    ("gang", 3, 3, 2),
    ("gang", 3, 3, 1),
    ("single", 2),
    ("single", 2),
    ("single", 5),
    ("gang", 3, 3, 1),
    ("node", 2, 1, 1, False),
    ("gang", 3, 3, 1),
    ("gang", 4, 4, 2),
    ("end", 0),
    ("gang", 4, 4, 2),
    ("node", 0, 4, 2, True),
    ("gang", 3, 3, 1),
    ("gang", 2, 1, 1),
    ("end", 2),
    ("gang", 3, 3, 1),
]


async def _calls(*, keep_answers: bool) -> tuple[int, int]:
    """Return how often Filter and PlacementScore are called about the second of two equal gangs."""
    world = grouped([rack_node(i) for i in range(NODES)], [Ranked], gates=TOPOLOGY, keep_answers=keep_answers)
    async with world:
        for name in ("g0", "g1"):
            Ranked.judged = Ranked.scored = 0
            world.server.create(pod_group(name, least=2, **IN_A_RACK))
            for i in range(2):
                world.server.create(member(f"{name}-{i}", name))
            await world.settle()
            assert len(nodes_of(world, name)) == 2
    return Ranked.judged, Ranked.scored


async def test_kept_trials_save_calls() -> None:
    judged, scored = await _calls(keep_answers=True)
    judged_by_all, scored_by_all = await _calls(keep_answers=False)
    # The rack that the first gang went to is tried again.
    assert (scored, scored_by_all) == (1, RACKS)
    assert 0 < judged < judged_by_all


def _no_row_moves(patch: pytest.MonkeyPatch) -> None:
    caught_up = kept_trials._RowVersions.catch_up  # noqa: SLF001

    def once(self: Any, snapshot: Any) -> None:
        if not self._last:
            caught_up(self, snapshot)

    patch.setattr(kept_trials._RowVersions, "catch_up", once)  # noqa: SLF001


def _all_members_are_equal(patch: pytest.MonkeyPatch) -> None:
    signed = KeptTrials.signed
    patch.setattr(
        KeptTrials,
        "signed",
        lambda self, pods, snapshot: None if signed(self, pods, snapshot) is None else len(pods),
    )


def _nodes_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kept_trials, "same_summary", lambda old, new: True)
    caught_up = kept_trials._RowVersions.catch_up  # noqa: SLF001

    def quietly(self: Any, snapshot: Any) -> None:
        before = self.versions.copy(), self._last
        caught_up(self, snapshot)
        if before[1]:
            self.versions[: len(before[0])] = before[0]
            self.of_nodes = 1

    patch.setattr(kept_trials._RowVersions, "catch_up", quietly)  # noqa: SLF001


@pytest.mark.parametrize("mutant", [_no_row_moves, _all_members_are_equal, _nodes_do_not_count])
async def test_without_a_rule_that_ends_kept_trials_the_hosts_differ(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        async with Racks() as racks:
            for deed in FULL:
                await racks.act(deed)


async def test_the_same_deeds_with_all_rules_end_alike() -> None:
    async with Racks() as racks:
        for deed in FULL:
            await racks.act(deed)
