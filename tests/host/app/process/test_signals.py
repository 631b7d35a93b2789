"""Signals become events; the second TERM ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from berth_host.app.process.signals import Signals
from support.waiting import PATIENCE_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_asks_and_the_second_ends_at_once(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with Signals().heard() as signals:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE_S):
            await signals.stopping.wait()
        assert codes == []

        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE_S):
            while not codes:
                await asyncio.sleep(0.01)
    assert codes == [1]


async def test_hup_is_an_event_that_can_come_again() -> None:
    with Signals().heard() as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                await signals.reloading.wait()
            signals.reloading.clear()
    assert not signals.stopping.is_set()
