"""A program that runs a host hears of every attempt, after the host has counted it."""

from __future__ import annotations

from support.hosts import World, node, pod


async def test_attempt_counts_before_its_callback() -> None:
    counts: list[int] = []
    world = World([node("a"), pod("web")], on_attempt=lambda _: counts.append(ended()))

    def ended() -> int:
        return sum(series.count for _, series in world.host.metrics.attempt_durations.items())

    async with world:
        await world.settle()
    assert counts == [1]
