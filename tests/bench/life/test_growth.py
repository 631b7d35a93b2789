"""Nothing of a host grows with virtual days; what does is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from berth_bench.life.growth import grown
from berth_host import log
from berth_host.cycle.schedule_one import BindingCycle
from berth_plugins.dynamic_resources.reservations import ClaimReservations

ACTS_S = 300.0
DAYS = 6


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log.configure("CRITICAL")
    yield
    log.configure("INFO")


def grown_names() -> set[str]:
    return {line.partition(":")[0] for line in grown(DAYS, ACTS_S)}


@pytest.mark.long
def test_nothing_grows_with_virtual_days() -> None:
    assert grown(DAYS, ACTS_S) == []


@pytest.mark.long
def test_container_that_is_never_emptied_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimReservations, "_end_use", lambda self, cycle_id: None)
    # What the mutant keeps may have others keep more, too.
    assert {"ClaimReservations._used", "ClaimReservations._users"} <= grown_names()


@pytest.mark.long
def test_task_that_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = BindingCycle._tell  # noqa: SLF001 (the mutant)
    left = []

    def leave_a_task(self: BindingCycle, attempt: Any) -> None:
        tell(self, attempt)
        left.append(asyncio.ensure_future(asyncio.sleep(10**9)))

    monkeypatch.setattr(BindingCycle, "_tell", leave_a_task)
    assert {"tasks", "timers"} <= grown_names()
