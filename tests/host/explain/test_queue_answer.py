"""The answer about the whole queue: parts, reasons, and the pods that wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from berth_host.explain.queue_answer import PARTS, REASONS_SHOWN, QueueQuery, queue_answer
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from support.holding_world import TRANSPORTS, holding_world
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S


async def answer(world: World, *, limit: int = 500, **more: Any) -> dict[str, Any]:
    found = await queue_answer(world.host, QueueQuery(limit=limit, **more))
    assert json.loads(json.dumps(found)) == found
    return found


def keys(found: dict[str, Any]) -> list[str]:
    return [item["key"].partition("/")[2] for item in found["pods"]]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_pods_are_counted_by_part_and_by_the_plugin_that_keeps_them(
    transport: str, tmp_path: Path
) -> None:
    async with holding_world(transport, tmp_path) as world:
        found = await answer(world)
        assert found["parts"] == dict.fromkeys(PARTS, 0) | {"unschedulable": 1, "gated": 2}
        assert {(item["plugin"], item["text"], item["pods"]) for item in found["reasons"]} == {
            ("NodeResourcesFit", "Insufficient cpu", 1),
            ("SchedulingGates", "scheduling gates: example.com/approval", 1),
            ("Holding", "no budget left", 1),
        }
        # The metric counts by the same plugins.
        assert sorted(plugin for _, plugin in world.host.queue.counts.by_plugin()) == sorted(
            item["plugin"] for item in found["reasons"]
        )
        huge = next(item for item in found["pods"] if item["key"] == "default/huge")
        assert (huge["part"], huge["attempts"], huge["reason"]["plugin"]) == (
            "unschedulable",
            1,
            "NodeResourcesFit",
        )
        assert huge["since"] == "2026-01-01T00:00:00.000000Z"
        kept = await answer(world, part="gated", reason="Holding")
        assert (keys(kept), kept["matching"], len(kept["reasons"])) == (["kept-out"], 1, 2)
        assert keys(await answer(world, reason="Insufficient cpu")) == ["huge"]
        assert keys(await answer(world, reason="Insufficient")) == []


async def test_oldest_pods_come_first_and_the_limit_cuts_the_youngest() -> None:
    async with World([node("a", cpu="1")]) as world:
        for name in ("c", "a", "b"):
            world.server.create(pod(name, cpu="2"))
            await world.settle()
            world.clock.advance(10)
        assert keys(await answer(world)) == ["c", "a", "b"]
        found = await answer(world, limit=2)
        assert (keys(found), found["matching"], found["parts"]["unschedulable"]) == (["c", "a"], 3, 3)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("oldest", ["c", "a", "d", "b"]),
        ("newest", ["b", "d", "a", "c"]),
        ("attempts", ["a", "b", "c", "d"]),
        ("priority", ["d", "c", "a", "b"]),
        ("name", ["a", "b", "c", "d"]),
    ],
    ids=["oldest", "newest", "attempts", "priority", "name"],
)
async def test_pages_of_the_list_follow_each_other_in_the_order_that_was_asked_for(
    order: str, names: list[str]
) -> None:
    async with World([node("a", cpu="1")]) as world:
        for name in ("c", "a", "d", "b"):
            world.server.create(pod(name, cpu="2", priority=5 if name == "d" else 0))
            await world.settle()
            world.clock.advance(10)
        for found in world.host.queue.pods():
            found.attempts = 2 if found.key == "default/a" else 1
        pages = [await answer(world, limit=3, offset=offset, order=order) for offset in (0, 3, 6)]
        assert [keys(page) for page in pages] == [names[:3], names[3:], []]
        assert [(page["matching"], page["offset"]) for page in pages] == [(4, 0), (4, 3), (4, 6)]


async def test_pods_are_chosen_by_a_part_of_their_name_or_reason(tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        assert keys(await answer(world, contains="LT/HU")) == ["huge"]
        assert keys(await answer(world, contains="fit: insuff")) == ["huge"]
        assert keys(await answer(world, contains="budget", part="gated")) == ["kept-out"]
        assert keys(await answer(world, contains="budget", part="active")) == []
        assert keys(await answer(world, reason="NodeResourcesFit: Insufficient cpu")) == ["huge"]
        assert keys(await answer(world, reason="NodeResourcesFit: Insufficient")) == []


class Failing(Plugin):
    """Fails for every pod at PreFilter, with a text of its own for each."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: object) -> Status:
        return Status.error(f"no quota for {pod.name}")


async def test_pod_in_backoff_names_the_failed_plugin_and_the_moment_of_the_retry() -> None:
    names = [f"p{i:03}" for i in range(REASONS_SHOWN + 1)]
    async with World([node("a")], [Failing]) as world:
        for name in names:
            world.server.create(pod(name))
        async with asyncio.timeout(PATIENCE_S):
            while world.host.queue.counts.pods()["backoff"] < len(names):
                await asyncio.sleep(0)
        found = await answer(world, part="backoff")
        first = found["pods"][0]
        assert first["reason"] == {
            "plugin": "Failing",
            "text": 'running PreFilter plugin "Failing": no quota for p000',
        }
        assert first["retryAt"] > first["since"]
        assert (len(found["reasons"]), found["reasonCount"]) == (REASONS_SHOWN, len(names))
        assert (await answer(world, part="active"))["pods"] == []


async def test_member_without_its_group_waits_for_the_object() -> None:
    member = pod("m-0", schedulingGroup={"podGroupName": "train"})
    async with World([node("a"), member], gates={"GenericWorkload": True}) as world:
        await world.settle()
        (row,) = (await answer(world, part="incomplete"))["pods"]
        assert row["reason"] == {"plugin": None, "text": f"waits for {row['group']}"}
        assert (row["attempts"], row["retryAt"]) == (0, None)


async def test_other_tasks_run_between_the_rows_of_many_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_host.explain.queue_answer.ROWS_PER_TURN", 2)
    async with World([node("a", cpu="1"), *(pod(f"p{i}", cpu="2") for i in range(5))]) as world:
        await world.settle()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        assert len((await answer(world))["pods"]) == 5
        assert turns == 2
        counting.cancel()
