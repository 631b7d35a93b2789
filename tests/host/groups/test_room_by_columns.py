"""Racks without room for a gang of equal members, which the columns refuse: a host that counts decides as one
that tries every member in every rack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from berth_host.explain import group_record
from berth_host.groups.placements import Placements
from hypothesis import given, settings
from hypothesis import strategies as st
from support.groups import condition_of, grouped, member, message_of, nodes_of, pod_group
from support.hosts import World, node, pod
from support.tiers import examples

RACKS = 6
IN_A_RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


class Node(NamedTuple):
    """A node: its whole cores, the pods that it may have, and the cores that a pod uses."""

    cpu: int
    most: int
    used: int


class Gang(NamedTuple):
    """A gang of equal members; `differs`: the last member requests one core more."""

    size: int
    least: int
    cpu: int
    port: bool = False
    spreads: bool = False
    differs: bool = False


class Refusals:
    """Counts the racks that the columns refused."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, patch: pytest.MonkeyPatch) -> None:
        """Count from now on."""
        refusal = Placements._refusal  # noqa: SLF001

        async def noted(placements: Placements, *args: Any) -> Any:
            found = await refusal(placements, *args)
            self.count += found is not None
            return found

        patch.setattr(Placements, "_refusal", noted)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    # The racks on record are tried; with six racks, those would be nearly all.
    monkeypatch.setattr(group_record, "PLACEMENTS_KEPT", 1)
    counted = Refusals()
    counted.note(monkeypatch)
    return counted


def cluster(nodes: list[Node], version: str, *, keeps: bool) -> World:
    made = [
        node(f"n{i:02}", cpu=str(one.cpu), pods=str(one.most), labels={"rack": f"r{i % RACKS}"})
        for i, one in enumerate(nodes)
    ]
    running = [
        pod(f"running-{i}", cpu=str(one.used), nodeName=f"n{i:02}") for i, one in enumerate(nodes) if one.used
    ]
    return grouped(
        [*made, *running],
        gates={"TopologyAwareWorkloadScheduling": True},
        keep_answers=keeps,
        emulated_version=version,
    )


def manifests(name: str, gang: Gang) -> Iterator[dict[str, Any]]:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"of": name}},
    }
    more = {"topologySpreadConstraints": [spread]} if gang.spreads else {}
    for i in range(gang.size):
        cpu = gang.cpu + (gang.differs and i == gang.size - 1)
        made = member(f"{name}-{i}", name, cpu=str(cpu), labels={"of": name}, **more)
        if gang.port:
            made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        yield made


def shown(world: World, gangs: list[Gang]) -> Any:
    """Return what became of the gangs, and what the host says of the racks in which it tried them."""
    found = {}
    for number, gang in enumerate(gangs):
        name = f"g{number}"
        record = world.host.group_records.get(f"podgroup/default/{name}")
        tried = [] if record is None else record[0].placements
        found[name] = (
            nodes_of(world, name),
            condition_of(world, name),
            [message_of(world, f"{name}-{i}") for i in range(gang.size)],
            None if record is None else record[0].placement_count,
            [(one.name, one.untried, one.message, one.placed, one.unfit_message) for one in tried],
        )
    return found


async def both(nodes: list[Node], gangs: list[Gang], version: str) -> tuple[Any, Any]:
    """Return `shown` of a host that keeps answers, and so counts, and of one that does neither."""
    async with AsyncExitStack() as stack:
        outcomes = []
        for keeps in (True, False):
            world = await stack.enter_async_context(cluster(nodes, version, keeps=keeps))
            for number, gang in enumerate(gangs):
                for made in manifests(f"g{number}", gang):
                    world.server.create(made)
                await world.settle()
                world.server.create(pod_group(f"g{number}", least=min(gang.least, gang.size), **IN_A_RACK))
                await world.settle()
            outcomes.append(shown(world, gangs))
        return outcomes[0], outcomes[1]


NODES = st.lists(
    st.builds(Node, st.integers(1, 5), st.integers(1, 5), st.integers(0, 5)).filter(
        lambda one: one.used <= one.cpu
    ),
    min_size=RACKS,
    max_size=3 * RACKS,
)
GANGS = st.lists(
    st.builds(
        Gang,
        size=st.integers(1, 4),
        least=st.integers(1, 4),
        cpu=st.integers(1, 3),
        port=st.booleans(),
        spreads=st.sampled_from([False, False, False, True]),
        differs=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=4,
)


@given(nodes=NODES, gangs=GANGS, version=st.sampled_from(["1.37", "1.38"]))
@settings(max_examples=examples(40), deadline=None)
async def test_counted_racks_and_tried_racks_end_alike(
    nodes: list[Node], gangs: list[Gang], version: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_record, "PLACEMENTS_KEPT", 1)
        counted, tried = await both(nodes, gangs, version)
    assert counted == tried


FULL = [Node(4, 9, 4)] * (2 * RACKS)
NEARLY_FULL = [Node(4, 9, 3)] * (2 * RACKS)
ROOMY = [Node(4, 9, 0)] * (2 * RACKS)


@pytest.mark.parametrize("version", ["1.37", "1.38"])
@pytest.mark.parametrize(
    ("nodes", "gang", "refused"),
    [
        (FULL, Gang(3, 3, 1), True),
        (NEARLY_FULL, Gang(3, 3, 1), True),
        (NEARLY_FULL, Gang(3, 2, 1), False),
        (ROOMY, Gang(3, 3, 1), False),
        (ROOMY, Gang(3, 3, 1, port=True), True),
        (ROOMY, Gang(3, 3, 3), True),
        (FULL, Gang(3, 3, 1, differs=True), False),
        (FULL, Gang(3, 3, 1, spreads=True), False),
    ],
)
async def test_racks_without_room_are_refused_without_a_trial(
    nodes: list[Node], gang: Gang, refused: bool, version: str, refusals: Refusals
) -> None:
    counted, tried = await both(nodes, [gang], version)
    assert counted == tried
    assert (refusals.count > 0) == refused


async def test_rack_with_room_is_found_among_full_ones(refusals: Refusals) -> None:
    nodes = [*FULL, *[Node(4, 9, 4 if i != RACKS - 2 else 0) for i in range(RACKS)]]
    counted, tried = await both(nodes, [Gang(4, 4, 1), Gang(2, 2, 1)], "1.37")
    assert counted == tried
    assert set(counted["g0"][0].values()) == {f"n{3 * RACKS - 2:02}"}
    assert refusals.count >= RACKS


@pytest.mark.parametrize(("nodes", "counted"), [(ROOMY, False), (NEARLY_FULL, True)])
async def test_room_is_counted_once_a_rack_has_failed(
    nodes: list[Node], counted: bool, refusals: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    count_room = Placements._count_room  # noqa: SLF001

    async def noted(placements: Placements, *args: Any) -> Any:
        asked.append(args)
        return await count_room(placements, *args)

    monkeypatch.setattr(Placements, "_count_room", noted)
    await both(nodes, [Gang(3, 3, 1)], "1.37")
    assert bool(asked) == counted
