"""aiohttp's clients keep idle connections by virtual time, however fast the machine is."""

from __future__ import annotations

import itertools
import random

import pytest
from aiohttp import connector
from berth_bench.life.keep_alive import virtual_keep_alive
from berth_bench.life.life import live
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_sdk.clocks import monotonic_s

SEED = 1
DAYS = 0.0003


async def _begin(clocks: VirtualClocks) -> float:
    return float(vars(connector)["monotonic"]())


def test_aiohttp_reads_the_clocks_of_the_life_until_the_block_ends() -> None:
    before = vars(connector)["monotonic"]
    assert before is not monotonic_s
    with pytest.raises(ZeroDivisionError), virtual_keep_alive():
        assert run(_begin, random.Random(0)) == 0.0
        raise ZeroDivisionError
    assert vars(connector)["monotonic"] is before


def test_life_with_two_hosts_is_the_same_on_a_machine_on_which_minutes_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast = live(SEED, DAYS, hosts=2, keeps_trace=False)
    minutes = itertools.count(0.0, 60.0)
    monkeypatch.setattr(connector, "monotonic", lambda: next(minutes))
    slow = live(SEED, DAYS, hosts=2, keeps_trace=False)
    assert (slow.broken, slow.trace_sha256) == ("", fast.trace_sha256)
