"""What the queue listens for follows from the classes of the plugins."""

from __future__ import annotations

import pytest
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk.events import EventInterest, Hint
from support.hosts import World, node, pod

TAINTS = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]


async def node_after_the_taint_went() -> str:
    """Where a pod runs that found its node tainted, after the taint was taken away and nothing else came."""
    async with World([node("n1", taints=TAINTS), pod("web")]) as world:
        await world.settle()
        assert world.node_of("web") == ""
        world.server.update(node("n1"))
        await world.settle()
        return world.node_of("web")


async def test_a_default_plugin_hears_what_its_class_declares() -> None:
    assert await node_after_the_taint_went() == "n1"


async def test_events_that_are_taken_from_a_default_plugins_class_wake_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_pods = EventInterest("Pod", ("update.tolerations",), Hint.ASK_PLUGIN)
    monkeypatch.setattr(TaintToleration, "events", (of_pods,))
    assert await node_after_the_taint_went() == ""
