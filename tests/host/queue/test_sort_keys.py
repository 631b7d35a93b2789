"""QueueSort under the whole host: the order of attempts is the same in process and served."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.sorts_queue import TURNS
from support.waiting import until

CLASS = "support.sorts_queue:SortsQueue"
COUNT = 200
TURN_AT = frozenset({20, 110, 150})
"""The ranks of the pods that turn the order round."""


def configuration(where: str, folder: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    queueSort: {disabled: [{name: '*'}], enabled: [{name: SortsQueue}]}\n"
        "    reserve: {enabled: [{name: SortsQueue}]}\n"
        f"  pluginConfig: [{{name: SortsQueue, args: {{folder: {folder}}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: SortsQueue\n  {where}\n  required: true\n"
        "  points: {queueSort: {deadline: 10s}, reserve: {deadline: 10s}}\n"
    )


@pytest.fixture(params=["in process", "served"])
async def text(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Return a configuration with the plugin in process or served."""
    if request.param == "in process":
        yield configuration(f"inProcess: '{CLASS}'", tmp_path)
        return
    async with plugin_process(tmp_path / "p.sock", CLASS) as process:
        yield configuration(f"endpoint: '{process.endpoint}'", tmp_path)


def expected() -> list[str]:
    """Return the names in the order of their ranks, which is reversed for some pods."""
    left, down, names = list(range(COUNT)), False, []
    while left:
        rank = left.pop(-1 if down else 0)
        down ^= rank in TURN_AT
        names.append(f"p{rank}")
    return names


async def test_200_pods_are_tried_in_the_order_of_their_keys_from_the_first_pod_on(
    text: str, tmp_path: Path
) -> None:
    ranks = list(range(COUNT))
    random.Random(7).shuffle(ranks)
    pods = [
        pod(f"p{rank}", cpu="1m", labels={"rank": str(rank), **({TURNS: ""} if rank in TURN_AT else {})})
        for rank in ranks
    ]
    async with World([node("n0", pods="300"), *pods], configuration=text) as world:
        # Not `settle`, which waits for everything that moves before each pop.
        await until(lambda: world.host.queue.scheduling_cycle == COUNT)
        await world.settle()
    assert (await asyncio.to_thread((tmp_path / "log").read_text)).splitlines() == expected()


async def test_pod_without_a_key_is_ordered_by_priority_and_an_event_says_so(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with World([node("n0"), pod("p0", labels={"rank": "broken"})], configuration=text) as world:
        await until(lambda: world.node_of("p0") == "n0")
        await world.settle()
        notes = [event.note for event in world.server.events.recent if event.reason == "SortKeyMissing"]
    assert notes == ['plugin "SortsQueue" gave no sort key: the pod is queued by priority and time']
    assert "queue.sorted_by_fallback" in capsys.readouterr().out
