"""How often a plugin may ask, on a clock of the test."""

from __future__ import annotations

import pytest
from berth_host.handle.rates import (
    BURST_CALLS,
    BURST_REFUSED,
    CALLS_PER_S,
    REFUSED_PER_S,
    CallRates,
    RefusedRates,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_each_plugin_has_its_own_rate_limit() -> None:
    clock = Clock()
    rates = CallRates(clock)
    assert {rates.take("A") for _ in range(int(BURST_CALLS))} == {0.0}
    assert rates.take("A") == pytest.approx(1 / CALLS_PER_S)
    assert rates.take("B") == 0.0


async def test_peer_that_is_refused_again_and_again_waits_for_each_refusal() -> None:
    clock = Clock()
    waited_s: list[float] = []

    async def sleep(seconds: float) -> None:
        waited_s.append(seconds)
        clock.now_s += seconds

    rates = RefusedRates(clock, sleep)
    for _ in range(int(BURST_REFUSED)):
        await rates.hold("unix:")
    assert waited_s == []
    for _ in range(20):
        await rates.hold("unix:")
    assert sum(waited_s) == pytest.approx(20 / REFUSED_PER_S, rel=0.01)
    waited_s.clear()
    await rates.hold("ipv4:127.0.0.1:4711")
    assert waited_s == []  # another peer


async def test_peer_escapes_the_limit_with_no_other_port() -> None:
    clock = Clock()
    waited_s: list[float] = []

    async def sleep(seconds: float) -> None:
        waited_s.append(seconds)
        clock.now_s += seconds

    rates = RefusedRates(clock, sleep)
    for port in range(int(BURST_REFUSED) + 1):
        await rates.hold(f"ipv4:127.0.0.1:{port}")
    assert sum(waited_s) == pytest.approx(1 / REFUSED_PER_S, rel=0.02)
