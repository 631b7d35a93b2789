"""Measure the cost of choosing a node: `python tests/docs/measure_cycle.py [--nodes N]`.

From PreFilter to the best node, with all default plugins in-process, plain pods, and one node changed since
the previous pod. Once with equal pods, once with pods that each have a label of their own, for which no
answers are kept. The figure is CPU time of the thread, the best of several rounds; waiting for a core does
not count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from dataclasses import replace
from typing import Final

from berth_host import log
from berth_host.app.alone import FrameworkAlone
from berth_host.framework.framework import all_rows
from berth_host.framework.score_table import ScoreTable
from berth_host.model.node_statuses import NodeStatuses
from berth_sdk.pod import Pod
from berth_sdk.testing import make_node, make_pod

_CYCLES: Final = 300
_ROUNDS: Final = 5


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000, help="default: 5000")
    options = parser.parse_args()
    log.configure("ERROR")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.nodes} nodes")
    alone = FrameworkAlone()
    for i in range(options.nodes):
        alone.add_node(make_node(f"n{i}", cpu=4, memory="32Gi", pods=110))
    asyncio.run(_measure(alone, options.nodes))
    return 0


async def _measure(alone: FrameworkAlone, node_count: int) -> None:
    made = 0
    for what, labels in (("equal", 1), ("unlike", _CYCLES * _ROUNDS)):
        best_s = float("inf")
        for _ in range(_ROUNDS):
            spent_s = 0.0
            for _ in range(_CYCLES):
                made += 1
                label = str(made % labels) if labels > 1 else "all"
                pod = make_pod(
                    f"p{made}", uid=f"p{made}", cpu="10m", memory="5Mi", images=["pause"], labels={"l": label}
                )
                spent_s += await _cycle(alone, pod)
                alone.add_pod(replace(pod, node_name=f"n{made % node_count}"))
            best_s = min(best_s, spent_s / _CYCLES)
        print(f"{what:7} pods: {1e6 * best_s:6.0f} us of CPU time per cycle")


async def _cycle(alone: FrameworkAlone, pod: Pod) -> float:
    """Return the CPU time in seconds."""
    cycle = alone.cycle(pod)
    started_s = time.thread_time()
    await alone.framework.run_pre_filter(cycle)
    statuses = cycle.statuses = NodeStatuses(cycle.nodes)
    passed = await alone.framework.run_filter(cycle, statuses, all_rows(cycle.nodes), cycle.nominated)
    assert len(passed) == len(cycle.nodes)
    scores = await alone.framework.run_score(cycle, cycle.nodes)
    assert isinstance(scores, ScoreTable)
    scores.best()
    return time.thread_time() - started_s


if __name__ == "__main__":
    raise SystemExit(main())
