"""What-ifs about new nodes that overlap or outlast their PostFilter: no cycle sees such a node."""

from __future__ import annotations

import asyncio

import pytest
from berth_sdk.errors import HandleError
from berth_sdk.status import SUCCESS
from support.asks_at_once import AsksAtOnce, TakesItsTime
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S

CONFIGURATION = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "profiles:\n- plugins: {multiPoint: {enabled: [{name: AsksAtOnce}, {name: TakesItsTime}]}}\n"
    "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\nplugins:\n"
    + "".join(
        f"- {{name: {name}, inProcess: 'support.asks_at_once:{name}'}}\n"
        for name in ("AsksAtOnce", "TakesItsTime")
    )
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    AsksAtOnce.answers.clear()
    TakesItsTime.asked.clear()
    TakesItsTime.gate = asyncio.Event()


async def test_two_questions_about_one_new_node_are_answered_one_after_the_other() -> None:
    async with World([node("n0", cpu="1"), pod("asks-twice", cpu="1")], configuration=CONFIGURATION) as world:
        await world.settle()
    assert AsksAtOnce.answers["asks-twice"] == [[SUCCESS], [SUCCESS]]


async def test_new_node_is_gone_when_its_post_filter_ends() -> None:
    asking = pod("asks-and-goes", cpu="1")
    async with World([node("n0", cpu="1"), asking], configuration=CONFIGURATION) as world:
        await world.settle()
        # Only the node that does not exist is large enough, until a node comes.
        world.server.create(pod("large", cpu="3"))
        world.server.create(pod("small", cpu="1"))
        await world.settle()
        assert [world.node_of(name) for name in ("small", "large")] == ["n0", ""]
        world.server.create(node("n1", cpu="4"))
        await world.settle()
        TakesItsTime.gate.set()
        for answer in AsksAtOnce.answers["asks-and-goes"]:
            with pytest.raises(HandleError, match="no PostFilter of AsksAtOnce is open"):
                await asyncio.wait_for(answer, PATIENCE_S)
        world.server.create(pod("last", cpu="1"))
        await world.settle()
        assert [world.node_of(name) for name in ("small", "large", "last")] == ["n0", "n1", "n1"]
