"""The longest step of an event loop: which one it is, and what it took."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from berth_bench.hostile.loop_holds import LoopHolds


def burn(seconds: float) -> None:
    ends_s = time.thread_time() + seconds
    while time.thread_time() < ends_s:
        pass


async def burns(*steps: float) -> None:
    for seconds in steps:
        burn(seconds)
        await asyncio.sleep(0)


def run(holds: LoopHolds, *steps: float) -> None:
    with holds.measured(), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(burns(*steps))


def test_longest_step_is_measured_in_cpu_time_with_its_coroutine(tmp_path: Path) -> None:
    holds = LoopHolds(tmp_path / "holds")
    run(holds, 0.05, 0.2, 0.05)
    seconds, name = holds.longest()
    # One step, not their sum; waiting is no CPU time.
    assert 0.2 <= seconds < 0.3
    assert name == "burns"
    holds.reset()
    assert holds.longest() == (0.0, "")
    holds.close()


def test_step_that_is_left_out_does_not_count_and_the_next_one_does(tmp_path: Path) -> None:
    holds = LoopHolds(tmp_path / "holds")

    async def left_out() -> None:
        holds.leave_out_step()
        burn(0.2)
        await asyncio.sleep(0)
        burn(0.02)

    with holds.measured(), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(left_out())
    assert 0.02 <= holds.longest()[0] < 0.2
    holds.close()


def test_steps_outside_of_the_block_are_not_measured(tmp_path: Path) -> None:
    holds = LoopHolds(tmp_path / "holds")
    run(holds)
    holds.reset()
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(burns(0.01))
    assert holds.longest() == (0.0, "")


def test_another_process_reads_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "holds"
    mine = LoopHolds(path)
    program = (
        "import asyncio, pathlib; from berth_bench.hostile.loop_holds import LoopHolds\n"
        f"with LoopHolds(pathlib.Path({str(path)!r})).measured(): asyncio.run(asyncio.sleep(0))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert mine.longest()[0] > 0


def test_berth_runs_measured_with_its_own_arguments(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "berth_bench.hostile.loop_holds", str(tmp_path / "holds"), "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "berth"), done.stderr
