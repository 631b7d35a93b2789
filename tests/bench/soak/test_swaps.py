"""Which upgrades count, and which calls count as lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.swaps import Failures, Swaps


class Swapped(PluginProcess):
    """A plugin without processes: only whether the host calls it matters here."""

    def __init__(self, folder: Path, *, old: bool, new: bool) -> None:
        super().__init__("SoakFit", folder, folder)
        self._old, self._new = old, new

    async def is_asked(self, within_s: float) -> bool:
        return self._old

    async def upgrade(self) -> bool:
        return self._new


async def counted(folder: Path, seen: list[Failures | None], *, old: bool = True, new: bool = True) -> Swaps:
    found: Iterator[Failures | None] = iter(seen)

    async def failures_of(plugin: str) -> Failures | None:
        assert plugin == "SoakFit"
        return next(found)

    swaps = Swaps(failures_of)
    await swaps.swap(Swapped(folder, old=old, new=new))
    return swaps


async def test_calls_that_found_no_instance_during_an_upgrade_are_lost(tmp_path: Path) -> None:
    swaps = await counted(tmp_path, [Failures(1, 4), Failures(1, 5), Failures(1, 7)])
    assert (swaps.counted, swaps.lost_calls) == (1, 2)


@pytest.mark.parametrize(
    "seen",
    [
        [Failures(1, 4), Failures(1, 5), Failures(2, 0)],
        [Failures(1, 4), Failures(2, 0), Failures(2, 3)],
        [Failures(1, 4), Failures(1, 5), None],
        [None, Failures(1, 5), Failures(1, 5)],
    ],
)
async def test_upgrade_does_not_count_if_the_host_was_killed_meanwhile(
    tmp_path: Path, seen: list[Failures | None]
) -> None:
    assert (await counted(tmp_path, seen)).counted == 0


@pytest.mark.parametrize(("old", "new"), [(False, True), (True, False)])
async def test_upgrade_does_not_count_if_the_plugin_was_not_called_before_or_after(
    tmp_path: Path, *, old: bool, new: bool
) -> None:
    swaps = await counted(tmp_path, [Failures(1, 0), Failures(1, 0), Failures(1, 9)], old=old, new=new)
    assert (swaps.counted, swaps.lost_calls) == (0, 0)
