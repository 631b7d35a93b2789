"""uvloop is used where it is installed."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from berth_host.process import event_loop


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_loop_of_uvloop_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.SelectorEventLoop())
        return made[-1]

    uvloop: Any = SimpleNamespace(new_event_loop=new_event_loop)
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    assert event_loop.run(_loop()) is made[0]


def test_loop_of_uvloop_is_not_used_by_a_process_that_dials_the_api_server() -> None:
    assert isinstance(event_loop.run_dialling(_loop()), asyncio.SelectorEventLoop)


def test_loop_of_asyncio_is_used_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    uninstalled: Any = None
    monkeypatch.setitem(sys.modules, "uvloop", uninstalled)
    assert event_loop.loop_factory() is None
    assert isinstance(event_loop.run(_loop()), asyncio.SelectorEventLoop)
