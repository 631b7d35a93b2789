"""The host tries again to attach: after growing waits, and when another process listens."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

import pytest
from berth_host.attach import retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import Identity, identity_of
from berth_host.attach.retrying import (
    after_refusal,
    another_comes,
    attach_backoff,
    is_successor,
)
from support.attached import wanted
from support.waiting import PATIENCE_S


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BACKOFF_LOOK_S", 0.01)
    monkeypatch.setattr(retrying, "REJECTED_LOOK_S", 0.01)


def test_new_socket_at_the_same_path_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    endpoint = f"unix://{path}"
    assert identity_of(endpoint) is None
    with listening(path):
        first = identity_of(endpoint)
    path.unlink()
    with listening(path):
        assert identity_of(endpoint) not in (None, first)
    assert identity_of("127.0.0.1:1") is None


@pytest.mark.parametrize(
    ("now", "met", "in_folder", "want"),
    [
        pytest.param((1, 2, 3), (1, 2, 3), False, False, id="the same"),
        pytest.param(None, (1, 2, 3), False, False, id="nobody"),
        pytest.param((1, 5, 9), (1, 2, 3), False, True, id="another file"),
        pytest.param((1, 2, 9), (1, 2, 3), False, True, id="another file with the number of the one before"),
        pytest.param((1, 5, 9), (1, 2, 3), True, False, id="in a folder it is another attachment's"),
        pytest.param((1, 2, 9), (1, 2, 3), True, True, id="but not with the same number"),
        pytest.param((1, 2, 9), None, True, False, id="in a folder, where nothing was met"),
        pytest.param((1, 2, 9), None, False, True, id="where nothing was met"),
    ],
)
def test_successor_is_another_process_at_the_same_place(
    now: Identity | None, met: Identity | None, in_folder: bool, want: bool
) -> None:
    assert is_successor(now, met, in_folder=in_folder) is want


@pytest.mark.usefixtures("quick")
async def test_a_wait_ends_with_its_time_or_with_another_process(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    place = Place(endpoint=f"unix://{path}", plugins=(wanted("Demo"),))
    with listening(path):
        met = identity_of(place.endpoint)
        assert not await another_comes(place, met, 0.05)
        waiting = asyncio.create_task(another_comes(place, met, PATIENCE_S))
        path.unlink()
        with listening(path):
            assert await waiting


@pytest.mark.usefixtures("quick")
async def test_a_refusal_lasts_until_another_socket_is_there(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    place = Place(endpoint=f"unix://{path}", plugins=(wanted("Demo"),))
    with listening(path):
        waiting = asyncio.create_task(after_refusal(place))
        await asyncio.sleep(0.05)  # several looks
        path.unlink()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        with listening(path):
            async with asyncio.timeout(PATIENCE_S):
                await waiting


class Highest(random.Random):
    """Always draws the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_bound_doubles_from_one_second_to_a_minute() -> None:
    backoff = attach_backoff(Highest())
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_backoff_works_after_days_of_failures() -> None:
    backoff = attach_backoff(Highest())
    assert {backoff.next_s() for _ in range(5000)} == {1, 2, 4, 8, 16, 32, 60}


def test_reset_starts_at_the_first_wait() -> None:
    backoff = attach_backoff(Highest())
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == 1


def test_waits_are_spread_over_the_whole_range() -> None:
    drawn = [attach_backoff(random.Random(seed)).next_s() for seed in range(200)]
    assert min(drawn) < 0.1
    assert max(drawn) > 0.9
    assert all(0 <= wait <= 1 for wait in drawn)
