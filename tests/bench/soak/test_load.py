"""The load of a soak: how many pods exist, and on which nodes they may run."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from berth_bench.soak import load as load_module
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import embedded_cluster
from berth_bench.soak.load import Load, nodes_of, open_nodes
from berth_bench.soak.plugins import CLOSED
from berth_bench.versus.objects import pod
from support.waiting import PATIENCE_S

NODES = 10


async def test_load_keeps_to_its_share_of_the_nodes(tmp_path: Path) -> None:
    account = Account(open_nodes(NODES))
    async with embedded_cluster(account, tmp_path) as cluster:
        load = Load(cluster, account, NODES, random.Random(1))
        for _ in range(400):
            await load.step(1)
    # Nine open nodes of 4000m, 0.6 of it full of pods of 1000m on average.
    assert load.created == account.seen == 400
    assert 15 <= len(account.unbound) <= 22
    assert account.vanished == set()


async def test_pod_that_waits_for_long_stays_until_it_has_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a lost pod would be deleted before the account reports it."""
    monkeypatch.setattr(load_module, "STAYS_S", 0.0)
    account = Account(open_nodes(NODES))
    async with embedded_cluster(account, tmp_path) as cluster:
        load = Load(cluster, account, NODES, random.Random(1))
        await load.step(1)
        await asyncio.sleep(0)
        lost = account.unbound[0]
        for _ in range(200):
            await load.step(1)
            for name in account.unbound:
                if name != lost:
                    account.is_there(pod(name, "1", nodeName="soak-1"))
        assert account.unbound == [lost]


async def test_no_pod_is_created_while_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "WAITING_MOST", 5)
    monkeypatch.setattr(load_module, "_TICK_S", 0.001)
    monkeypatch.setattr(load_module, "PODS_PER_S", 1000.0)
    monkeypatch.setattr(load_module, "_MOST_AT_ONCE", 1)
    account = Account(open_nodes(100))
    async with embedded_cluster(account, tmp_path) as cluster:
        load = Load(cluster, account, 100, random.Random(1))
        running = asyncio.create_task(load.run())
        for _ in range(3):
            assert await account.until(lambda: len(account.unbound) == 5, within_s=60)
            created = load.created
            await asyncio.sleep(0.05)  # many ticks
            assert load.created == created
            account.is_there(pod(account.unbound[0], "1", nodeName="soak-1"))
            assert await account.until(lambda created=created: load.created > created, within_s=60)  # type: ignore[misc]
        load.end()
        await running


async def test_load_ends_on_request_and_may_start_again(tmp_path: Path) -> None:
    account = Account(open_nodes(NODES))
    async with embedded_cluster(account, tmp_path) as cluster:
        load = Load(cluster, account, NODES, random.Random(1))
        for count in (1, 2):
            running = asyncio.create_task(load.run())
            assert await account.until(lambda count=count: account.seen >= count, within_s=60)  # type: ignore[misc]
            load.end()
            async with asyncio.timeout(PATIENCE_S):
                await running
    assert load.created == account.seen


def test_every_tenth_node_is_closed() -> None:
    closed = [one["metadata"]["name"] for one in nodes_of(20) if CLOSED in one["metadata"]["labels"]]
    assert closed == ["soak-0", "soak-10"]
    assert set(open_nodes(20)) == {one["metadata"]["name"] for one in nodes_of(20)} - set(closed)
