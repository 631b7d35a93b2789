"""Pods with very many volume claims: the choice of their volumes, and Reserve, Unreserve and PreBind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from berth_plugins.volumes.volume_binding import VolumeBinding
from berth_plugins.volumes.volume_binding.groups import NodeGroups, Taken, first_reached, positions_by_slot
from berth_sdk.cycle_state import CycleState
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.results import MAX_PATCHES, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.slices import PIECES, Slices, at_once
from berth_sdk.status import SUCCESS, Code
from berth_sdk.testing import make_node, make_table
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asking import IN_PROCESS, Plug
from support.storage import CLAIMS, CLASSES, VOLUMES, claim, pod_using, storage_class, volume
from support.tiers import examples

MANY = 200
NODES = make_table([make_node(f"n{i}", labels={"zone": "ab"[i % 2], "host": f"n{i}"}) for i in range(4)])
NAMES = [f"c{i}" for i in range(MANY)]


def plug(count: int = MANY, volumes: int = 0) -> Plug:
    objects = {
        CLAIMS: [claim(f"c{i}") for i in range(count)],
        CLASSES: [storage_class()],
        VOLUMES: [volume(f"v{i:04}") for i in range(volumes)],
    }
    return Plug(VolumeBinding, objects=objects)


async def value(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Make every slice one batch of pieces, and count the slices."""
    counted: list[None] = []

    def one_batch(work: Any, slice_s: float, clock: Any) -> None:
        counted.append(None)
        for _ in range(PIECES):
            next(work)

    monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
    return counted


async def chosen(plugin: Any, state: CycleState) -> None:
    pod = pod_using("web", *NAMES)
    assert await value(plugin.pre_filter(state, pod, NODES)) == SUCCESS
    verdicts = await value(plugin.filter_nodes(state, pod, NODES))
    assert verdicts.to_list() == [SUCCESS] * 4


@pytest.mark.parametrize("volumes", [0, MANY], ids=["provisioned", "matched"])
async def test_claims_of_a_pod_are_reserved_written_and_given_back_in_slices(
    volumes: int, batches: list[None]
) -> None:
    plugin: Any = plug(volumes=volumes).runtime().plugin
    pod, state = pod_using("web", *NAMES), CycleState("a")
    await chosen(plugin, state)
    answer = plugin.reserve(state, pod, "n0")
    assert isinstance(answer, Slices)
    assert await answer == SUCCESS
    patched, written = list[PatchResult](), list[str]()
    for _ in range(-(-MANY // MAX_PATCHES)):
        batches.clear()
        made = await plugin.pre_bind(state, pod, "n0", patched)
        assert isinstance(made, PreBindResult)
        assert 0 < len(made.patches) <= MAX_PATCHES
        assert len(batches) <= (MAX_PATCHES + (MAX_PATCHES if written else MANY)) // PIECES + 1
        patched = [PatchResult(outcome=PatchOutcome.APPLIED, ref=one.ref) for one in made.patches]
        written += [one.ref.key for one in made.patches]
    assert len(written) == len(set(written)) == MANY
    made = await plugin.pre_bind(state, pod, "n0", patched)
    assert (made.status, made.patches) == (SUCCESS, ())
    batches.clear()
    await plugin.unreserve(state, pod, "n0")
    assert len(batches) >= MANY // PIECES


async def test_unreserve_gives_back_what_an_unfinished_reserve_has_assumed(batches: list[None]) -> None:
    plugin: Any = plug(volumes=MANY).runtime().plugin
    pod, state = pod_using("web", *NAMES), CycleState("a")
    await chosen(plugin, state)
    in_work = asyncio.ensure_future(value(plugin.reserve(state, pod, "n0")))
    while len(batches) < MANY // PIECES * 3:
        await asyncio.sleep(0)
    in_work.cancel()
    await asyncio.gather(in_work, return_exceptions=True)
    other = CycleState("b")
    await plugin.unreserve(state, pod, "n0")
    # Every volume can be assumed for another pod.
    await chosen(plugin, other)
    assert await value(plugin.reserve(other, pod, "n0")) == SUCCESS


async def test_volume_that_is_gone_is_an_error_and_nothing_stays_assumed() -> None:
    plugged = plug(count=3, volumes=3)
    runtime = plugged.runtime()
    plugin: Any = runtime.plugin
    pod, state = pod_using("web", "c0", "c1", "c2"), CycleState("a")
    assert await value(plugin.pre_filter(state, pod, NODES)) == SUCCESS
    await value(plugin.filter_nodes(state, pod, NODES))
    store = plugin.handle.objects(VOLUMES)
    store.remove("", "v0001", 10)
    status = await value(plugin.reserve(state, pod, "n0"))
    assert status.code is Code.ERROR
    # Before Unreserve, another pod gets the first volume.
    other, after = pod_using("other", "c2"), CycleState("b")
    assert await value(plugin.pre_filter(after, other, NODES)) == SUCCESS
    await value(plugin.filter_nodes(after, other, NODES))
    assert await value(plugin.reserve(after, other, "n0")) == SUCCESS
    made = await plugin.pre_bind(after, other, "n0", [])
    assert [one.ref.name for one in made.patches] == ["v0000"]


@contextmanager
def python_calls() -> Iterator[list[str]]:
    """Count the calls of functions that are written in Python, and the steps of generators."""
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if "call" in event else None)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_work_of_matching_follows_the_number_of_claims() -> None:
    counts = []
    for count in (50, 200):
        names = [f"c{i}" for i in range(count)]
        with python_calls() as calls:
            await IN_PROCESS.filter(plug(count, count), pod_using("web", *names), NODES)
        counts.append(len(calls))
    assert counts[1] < 5 * counts[0]


SELECTORS = [
    None,
    *(
        {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
        for one in (
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "host", "operator": "In", "values": ["n1"]},
            {"key": "host", "operator": "In", "values": ["n2"]},
            {"key": "zone", "operator": "Exists"},
            {"key": "other", "operator": "Exists"},
        )
    ),
]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.sampled_from(range(len(SELECTORS))), min_size=1, max_size=12), st.integers(1, 8))
def test_each_taker_gets_the_first_candidate_that_nobody_has_taken(kinds: list[int], takers: int) -> None:
    groups = NodeGroups()
    selectors = [None if raw is None else NodeSelector.of(raw) for raw in SELECTORS]
    codes = np.array([groups.code_of(selectors[kind]) for kind in kinds])
    at_once(groups.catch_up(NODES))
    positions, candidates = positions_by_slot(NODES), np.arange(len(kinds))
    everywhere = np.ones(4, dtype=np.bool_)
    reach = [everywhere if one is None else one.over(NODES) for one in (selectors[kind] for kind in kinds)]
    taken, seen = Taken(4), [set[int]() for _ in range(4)]
    for _ in range(takers):
        picks = first_reached(candidates, codes, groups, positions, taken, 4)
        for row in range(4):
            free = [n for n in range(len(kinds)) if reach[n][row] and n not in seen[row]]
            assert picks[row] == (free[0] if free else -1)
            seen[row].add(int(picks[row]))
        is_alone = np.array([n >= 0 and groups.single[codes[n]] >= 0 for n in picks.tolist()])
        taken.add(picks, is_alone)
