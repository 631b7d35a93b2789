"""Lives find mutants of the host about served plugins: each lets a pod pass, or leaves a reservation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from berth_bench.life.life import Result, live
from berth_bench.life.weights import Weights
from berth_host import log
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.relay import PluginRelay
from berth_host.rpc.served.sender import LinkSender

DAYS = 0.01
HELD = "reservations of the served plugin"
SEEDS = [
    seed
    for seed in range(60)
    if (weights := Weights.drawn(random.Random(seed))).served is not None and not weights.is_calm
]
"""Seeds of lives with a served plugin to which something happens."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log.configure("CRITICAL")
    yield
    log.configure("INFO")


def first_broken() -> Result:
    for seed in SEEDS:
        result = live(seed, DAYS, hosts=1, keeps_trace=False)
        if result.broken:
            return result
    raise AssertionError(f"no life of {SEEDS} broke a law")


def _lets_pass(self: PluginRelay, *failed: Any) -> Policy:
    return Policy.IGNORE


async def _tells_nobody(self: LinkSender, items: Any) -> None:
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "mutant", "law"),
    [
        pytest.param(PluginRelay, "_failed", _lets_pass, "nodes that take none", id="a failed call passes"),
        pytest.param(LinkSender, "send_post_bind", _tells_nobody, HELD, id="PostBind"),
    ],
)
def test_host_that_mistreats_a_served_plugin_breaks_a_law(
    owner: type, name: str, mutant: Any, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert law in first_broken().broken
