"""The snapshot changes when the host asks for it, and never while a cycle holds it."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cache.snapshot_state import SnapshotState
from berth_sdk.needs import Need
from berth_sdk.selection import StateSelection
from berth_sdk.testing import make_node


@pytest.fixture
def cache() -> Cache:
    """A cache with one node, which the snapshot does not have yet."""
    made = Cache(Generations())
    made.add_node(make_node("n0"))
    return made


@pytest.fixture
def snapshot(cache: Cache) -> Snapshot:
    return Snapshot(ObjectStores(cache.generations))


@pytest.fixture
def state(snapshot: Snapshot, cache: Cache) -> SnapshotState:
    return SnapshotState(snapshot, cache)


async def test_a_refresh_takes_over_the_state_of_the_cache(state: SnapshotState) -> None:
    assert (state.node_names(), state.index_of("n0")) == ([], None)
    before = state.version
    await state.refresh()
    assert (state.node_names(), state.index_of("n0")) == (["n0"], 0)
    changes = state.changes_since(before, StateSelection.of([Need.nodes()]))
    assert changes is not None
    assert [change.index for change in changes.nodes] == [0]
    assert changes.target == state.version


async def test_a_refresh_waits_for_the_cycle_that_holds_the_snapshot(
    state: SnapshotState, snapshot: Snapshot
) -> None:
    snapshot.hold()
    refreshed = asyncio.ensure_future(state.refresh())
    await asyncio.sleep(0)
    assert not refreshed.done()
    assert state.node_names() == []
    snapshot.release()
    await refreshed
    assert state.node_names() == ["n0"]


async def test_the_cycle_goes_on_when_the_refresh_is_cancelled(
    state: SnapshotState, snapshot: Snapshot
) -> None:
    snapshot.hold()
    refreshed = asyncio.ensure_future(state.refresh())
    await asyncio.sleep(0)
    refreshed.cancel()
    await asyncio.wait({refreshed})
    snapshot.release()
    assert state.node_names() == ["n0"]


def test_an_idle_refresh_leaves_a_snapshot_that_is_held_alone(
    state: SnapshotState, snapshot: Snapshot
) -> None:
    snapshot.hold()
    state.refresh_if_idle()
    assert state.node_names() == []
    snapshot.release()
    state.refresh_if_idle()
    assert state.node_names() == ["n0"]
