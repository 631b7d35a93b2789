"""`berth scheduler` and a stateful plugin killed with -9 in the middle of gangs: every figure stays zero.

In each round two gangs arrive, one of Kubernetes' PodGroups and one of coscheduling's, and those of the round
before end. The host, the plugin or both are killed while members of one of the two are being placed or bound.
BERTH_GROUP_KILLS is the number of kills (`make soak`: 100).
"""

from __future__ import annotations

import itertools
import json
import os
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import RealServers
from support.gang_arena import KINDS, MOMENTS, VICTIMS, arena_on

KILLS = int(os.environ.get("BERTH_GROUP_KILLS", "6"))


@pytest.mark.long
@pytest.mark.timeout(60 * KILLS + 120)
async def test_gangs_survive_kills_of_host_and_plugin(
    pod_group_servers: RealServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = list(itertools.product(VICTIMS, MOMENTS, KINDS))
    random.Random(7).shuffle(turns)
    async with arena_on(pod_group_servers, tmp_path) as arena:
        for victim, moment, kind in itertools.cycle(turns):
            await arena.round(victim, moment, kind)
            if arena.figures.kills >= KILLS:
                break
        await arena.count_at_the_end()
    with capsys.disabled():
        print(f"\n{json.dumps(asdict(arena.figures))}")
    assert arena.figures.problems == {}
