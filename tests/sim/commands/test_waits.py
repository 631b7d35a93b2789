"""A run says for which plugins it waits."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import pytest
from berth_sim.commands import waits
from berth_sim.commands.waits import tell_waits


@dataclass(frozen=True)
class Titled:
    title: str


@dataclass(frozen=True)
class Lost:
    place: Titled
    served: tuple[str, ...]
    reason: str


GPU = Lost(Titled("unix:/run/gpu.sock"), ("Gpu", "Rack"), "lost its instance")
LICENCE = Lost(Titled("unix:/run/licence.sock"), ("Licence",), "")


async def told(looks: list[list[Lost]]) -> list[str]:
    """Return the reports of a run in which the checks find these."""
    said: list[str] = []
    left = iter(looks)
    over = asyncio.Event()

    def awaited() -> list[Lost]:
        found = next(left, None)
        if found is None:
            over.set()
        return found or []

    telling = asyncio.create_task(tell_waits(awaited, said.append))
    await over.wait()
    telling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await telling
    return said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LOOK_S", 0.0)


async def test_place_is_reported_once_after_two_checks_find_it_missing() -> None:
    (line,) = await told([[GPU], [GPU], [GPU], [], [GPU], [GPU]])
    assert line == (
        "waiting for plugin Gpu, Rack (unix:/run/gpu.sock), at most 60 s each time: lost its instance"
    )


async def test_place_that_is_soon_back_is_not_reported() -> None:
    assert await told([[GPU], [LICENCE], [GPU], []]) == []


async def test_place_that_was_never_attached_is_reported_as_such() -> None:
    first, second = await told([[GPU, LICENCE], [GPU, LICENCE]])
    assert "plugin Gpu, Rack" in first
    assert second.endswith("(unix:/run/licence.sock), at most 60 s each time: it has not answered yet")
