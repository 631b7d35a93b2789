"""Trials of gangs in racks whose outcomes are kept, and plugins' answers that are kept within trials: a host
that keeps them does what one does that asks every plugin about every member in every rack, whatever happens
between two gangs. A test breaks each rule by which a kept trial or answer ends, and sees that the two hosts
then differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import numpy as np
import pytest
from berth_host.framework.kept import keep_answers
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.kept.merged_answers import MergedAnswers
from berth_host.framework.kept.merged_scores import MergedScores
from berth_host.framework.kept.merged_verdicts import MergedVerdicts
from berth_host.groups import kept_trials
from berth_host.groups.kept_trials import KeptTrials
from berth_host.groups.placements import Placements
from berth_host.groups.schedule_group import GroupScheduler
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NodeColumn, Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
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
    made["metadata"].setdefault("labels", {}).update(rack=f"r{where}", half=f"h{number % 2}")
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


class Largest(Plugin):
    """Refuses nodes that are smaller than the largest node of the rack. The answers differ by rack."""

    depends_on = DependsOn.NODES
    sign_fields: Sequence[PodField] | None = ()
    needs = (Need.nodes(),)
    begun: ClassVar[int] = 0
    judged: ClassVar[int] = 0

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        type(self).begun += 1
        state.write("most", int(nodes.allocatable("cpu").max()))

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status | None:
        type(self).judged += 1
        is_small = node.allocatable["cpu"] < state.read("most")
        return Status.unschedulable("a larger node is there") if is_small else None


class Racks:
    """The same cluster on two hosts, with kept answers and without."""

    def __init__(
        self, plugins: Sequence[type] = (), emulated_version: str = "", *, keeps_trials: bool = True
    ) -> None:
        self._keeps_trials = keeps_trials
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
        if not self._keeps_trials:
            patch.setattr(GroupScheduler, "_kept_trials", lambda self, profile: None)
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

    def gang(self, size: int, least: int, cpu: int, key: str = "rack", *, label: str = "") -> None:
        name = f"g{len(self.groups)}"
        self.groups.append(name)
        together: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": key}]}}
        self._groups_to_come.append(pod_group(name, least=min(least, size), **together))
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

    def nominee(self, number: int, cpu: int) -> None:
        """Create a pod of high priority that another scheduler has nominated to a node, and that waits."""
        self.singles += 1
        for world in self.worlds:
            made = pod(f"nominee-{self.singles}", cpu=str(cpu), priority=100)
            made["spec"]["schedulingGates"] = [{"name": "later"}]
            made["status"] = {**made.get("status", {}), "nominatedNodeName": f"n{number % NODES}"}
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

    def resize(self, number: int, cpu: int) -> None:
        """Change the size of a node, which keeps its slot."""
        amounts = {"capacity": {"cpu": str(cpu)}, "allocatable": {"cpu": str(cpu)}}
        for world in self.worlds:
            ref = ObjectRef(name=f"n{number % NODES}")
            world.server.patch("nodes", ref, {"status": amounts}, subresource="status")

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


GANGS = st.tuples(
    st.just("gang"),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 2),
    st.sampled_from(["rack", "rack", "half"]),
)
DEEDS = st.one_of(
    GANGS,
    GANGS,
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("single"), st.integers(0, NODES - 1)),
    st.tuples(st.just("resize"), st.integers(0, NODES - 1), st.integers(1, 4)),
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
    plugins=st.lists(st.sampled_from([Ranked, Largest]), unique=True),
    keeps_trials=st.booleans(),
    version=st.sampled_from(["1.37", "1.38"]),
)
@settings(max_examples=examples(60), deadline=None)
async def test_kept_trials_and_answers_within_trials_change_nothing(
    deeds: list[Deed], plugins: list[type], keeps_trials: bool, version: str
) -> None:
    async with Racks(plugins, version, keeps_trials=keeps_trials) as racks:
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


def _nominations_do_not_count(patch: pytest.MonkeyPatch) -> None:
    keeping = Placements._keeping  # noqa: SLF001

    def without(self: Any, cycle: Any, branch: Any, found: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._steps.nominations, "slots", lambda nodes: np.zeros(0, dtype=np.intp))
            return keeping(self, cycle, branch, found)

    patch.setattr(Placements, "_keeping", without)


NOMINATED: list[Deed] = [
    *[("node", number, 3, number % RACKS, True) for number in (2, 3, 5, 6)],
    ("gang", 2, 2, 1),
    ("end", 0),
    ("nominee", 0, 3),
    ("nominee", 1, 3),
    ("gang", 2, 2, 1),
]
"""Nodes 0, 1 and 4 are open. Trials of a gang are kept before other pods are nominated to two of them."""


@pytest.mark.parametrize("breaks", [False, True])
async def test_without_the_rule_of_nominations_the_hosts_differ(
    *, breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not breaks:
        async with Racks() as racks:
            for deed in NOMINATED:
                await racks.act(deed)
        return
    _nominations_do_not_count(monkeypatch)
    with pytest.raises(AssertionError):
        async with Racks() as racks:
            for deed in NOMINATED:
                await racks.act(deed)


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


# --- answers within trials -----------------------------------------------------------------------------


def _racks_share_states(patch: pytest.MonkeyPatch) -> None:
    in_placement = MergedAnswers.in_placement
    patch.setattr(
        MergedAnswers, "in_placement", lambda self, nodes: in_placement(self, NodeTable(nodes.columns))
    )


def _states_outlive_nodes(patch: pytest.MonkeyPatch) -> None:
    caught_up = MergedAnswers.catch_up

    def catch_up(self: Any, columns: Any) -> None:
        kept = self._placements.copy()
        caught_up(self, columns)
        self._placements.update(kept)

    patch.setattr(MergedAnswers, "catch_up", catch_up)


def _no_row_is_asked_about_again(patch: pytest.MonkeyPatch) -> None:
    for kept in (MergedVerdicts, MergedScores):
        patch.setattr(kept, "forget", lambda self, moved, node_moved: None)


def _all_answers_are_those_of_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keep_answers, "_judges_alike_in_placements", lambda client: True)


def _all_members_are_of_a_kind(patch: pytest.MonkeyPatch) -> None:
    known_for = KeepAnswers._known_for  # noqa: SLF001

    def known(self: Any, key: Any, nodes: NodeTable) -> Any:
        return known_for(self, key if nodes.is_whole else "one", nodes)

    patch.setattr(KeepAnswers, "_known_for", known)


WITHIN: list[Deed] = [
    ("node", 1, 2, 1, False),
    ("node", 2, 4, 2, False),
    ("gang", 3, 3, 1),
    ("gang", 3, 3, 1),
    ("gang", 3, 3, 2),
    ("node", 4, 1, 1, False),
    ("gang", 2, 2, 1),
    ("node", 4, 4, 1, False),
    ("gang", 2, 2, 2),
    ("gang", 2, 2, 1, "half"),
    ("gang", 3, 3, 1),
    ("gang", 2, 2, 1, "half"),
    ("gang", 4, 4, 1),
]
ONE_RACK: list[Deed] = [
    *[("node", number, 3, number % RACKS, True) for number in (0, 2, 3, 5, 6)],
    ("gang", 2, 2, 1),
    ("resize", 4, 4),
    ("gang", 2, 2, 1),
]


@pytest.mark.parametrize(
    ("mutant", "deeds"),
    [
        (None, WITHIN),
        (None, ONE_RACK),
        (_racks_share_states, WITHIN),
        (_states_outlive_nodes, ONE_RACK),
        (_no_row_is_asked_about_again, WITHIN),
        (_all_answers_are_those_of_rows, WITHIN),
        (_all_members_are_of_a_kind, WITHIN),
    ],
)
async def test_without_a_rule_of_answers_within_trials_the_hosts_differ(
    mutant: Callable[[pytest.MonkeyPatch], None] | None, deeds: list[Deed], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        async with Racks([Largest], keeps_trials=False) as racks:
            for deed in deeds:
                await racks.act(deed)

    if mutant is None:
        await act()
        return
    mutant(monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        await act()


async def test_members_in_a_rack_share_answers_within_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupScheduler, "_kept_trials", lambda self, profile: None)
    asked: list[tuple[int, int]] = []
    for keeps in (True, False):
        world = grouped([rack_node(i) for i in range(NODES)], [Largest], gates=TOPOLOGY, keep_answers=keeps)
        async with world:
            for name in ("g0", "g1"):
                Largest.begun = Largest.judged = 0
                world.server.create(pod_group(name, least=3, **IN_A_RACK))
                for i in range(3):
                    world.server.create(member(f"{name}-{i}", name))
                await world.settle()
                assert len(nodes_of(world, name)) == 3
        asked.append((Largest.begun, Largest.judged))
    # PreFilter is kept by rack. Filter is not: such a plugin takes what it knows of all Nodes from there.
    (begun, judged), (begun_by_all, judged_by_all) = asked
    assert (begun, begun_by_all) == (0, 3 * RACKS)
    assert judged == judged_by_all
