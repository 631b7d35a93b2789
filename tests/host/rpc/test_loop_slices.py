"""Long work lets others run after a step, and not before."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.rpc import loop_slices
from berth_host.rpc.loop_slices import LoopSlices


async def others_turns(monkeypatch: pytest.MonkeyPatch, step_s: float, pieces: int) -> int:
    """How often another task ran while `pieces` pieces of work were done."""
    monkeypatch.setattr(loop_slices, "STEP_S", step_s)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    work = LoopSlices()
    for _ in range(pieces):
        await work.step()
    beside.cancel()
    return turns


async def test_each_piece_lets_others_run_where_a_step_has_no_length(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await others_turns(monkeypatch, 0.0, 10) == 10


async def test_nobody_else_runs_before_the_step_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await others_turns(monkeypatch, 3600.0, 10) == 0


async def test_a_rest_lets_others_run_whatever_the_time() -> None:
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await LoopSlices().rest()
    assert ran.is_set()
