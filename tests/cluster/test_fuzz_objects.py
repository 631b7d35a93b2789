"""Random and hostile objects: what a real API server admits, berth reads, counts and answers.

BERTH_FUZZ_OBJECTS is the number of steps (`make soak`: 50 000), BERTH_FUZZ_SEED the seed. A failure is made
smaller and written as a case; a case in `fuzzed/` is played again by a test.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from berth_bench.versus.real_servers import RealServers
from support.fuzzed.objects import Fuzz, Step
from support.fuzzed.shrinking import shrunk
from support.fuzzed.world import Played, World

pytestmark = pytest.mark.long

OBJECTS: Final = int(os.environ.get("BERTH_FUZZ_OBJECTS", "2000"))
SEED: Final = int(os.environ.get("BERTH_FUZZ_SEED", "1"))
CASES: Final = sorted((Path(__file__).parent / "fuzzed").glob("*.json"))
_AT_ONCE: Final = 100
"""Steps on one cluster, before it is cleared."""
_TRIES: Final = 60


@asynccontextmanager
async def started(servers: RealServers, folder: Path) -> AsyncIterator[World]:
    world = World(servers, folder)
    try:
        await world.start()
        yield world
    finally:
        await world.stop()


def kinds(played: Played) -> set[str]:
    """Return the kinds of problems, without what is different each time."""
    return {problem.partition(":")[0] for problem in played.problems} - {"log"}


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
async def test_what_the_api_server_admits_is_read_counted_and_answered(
    empty_pod_group_servers: RealServers, tmp_path: Path
) -> None:
    print(f"BERTH_FUZZ_SEED={SEED} BERTH_FUZZ_OBJECTS={OBJECTS}")
    fuzz = Fuzz(SEED)
    whole = Played()
    failed: list[Step] = []
    async with started(empty_pod_group_servers, tmp_path / "all") as world:
        for begin in range(0, OBJECTS, _AT_ONCE):
            steps = fuzz.steps(min(_AT_ONCE, OBJECTS - begin))
            played = await world.play(steps)
            whole.add(played)
            if played.problems:
                failed = steps
                break
    print(f"{whole.admitted} admitted, {whole.refused} refused, longest hold {whole.hold_s:.3f} s of CPU,")
    print(f"{whole.cpu_s:.0f} s of CPU; {dict(whole.admitted_kinds.most_common())}")
    if failed:
        print("\n".join(whole.problems))
        path = await _made_smaller(empty_pod_group_servers, tmp_path, failed, whole)
        pytest.fail(
            f"seed {SEED}: {whole.problems}\nThe case, made smaller: {path}; a copy in"
            f" tests/cluster/fuzzed becomes a test:\n{path.read_text()[:5000]}"
        )
    # The judge admits some of every kind; a generator whose objects are all refused would test nothing.
    assert whole.admitted > whole.refused / 4
    assert len(whole.admitted_kinds) > 15


async def _made_smaller(servers: RealServers, folder: Path, steps: Sequence[Step], seen: Played) -> Path:
    """Write the smallest steps that were found to fail in the same way."""
    number = 0

    async def fails(some: Sequence[Step]) -> bool:
        nonlocal number
        number += 1
        async with started(servers, folder / f"try-{number}") as world:
            return bool(kinds(await world.play(some)) & kinds(seen))

    smallest = await shrunk(steps, fails, _TRIES)
    path = folder / f"seed-{SEED}.json"
    path.write_text(json.dumps({"seed": SEED, "problems": seen.problems, "steps": smallest}, indent=1))
    return path


@pytest.mark.slow
@pytest.mark.skipif(not CASES, reason="there is no case")
async def test_cases_of_earlier_failures_pass(empty_pod_group_servers: RealServers, tmp_path: Path) -> None:
    async with started(empty_pod_group_servers, tmp_path) as world:
        for path in CASES:
            played = await world.play(json.loads(path.read_text())["steps"])
            assert played.problems == [], path.name
