"""Record what kube-scheduler sends to HTTP extenders, in the form that `replay_extender` reads.

    python tests/cluster/record_extender.py [--servers N] DRAFTS RECORDINGS

DRAFTS has a scenario on each line, in the form of the recordings (tests/cluster/golden_extender/README.md),
with `answers` in the place of `expected`: for each step a list of `path`, `response` and, if wanted,
`sideEffect`. Requests on one path get its answers in order, and the last one again. Every scenario is played
twice; `secondRun` says where the second run differed first. Writes one line for each scenario to RECORDINGS,
and prints the names. Exits 1 if a scenario could not be played; RECORDINGS lacks it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.versus.real_servers import missing_programs
from support.observed.extender_recording import Json, record
from support.observed.stage import stages
from support.observed.trial import Stage


async def record_all(drafts: Sequence[Json], servers: int, folder: Path) -> list[Json | str]:
    """Record all scenarios in their order; a text in the place of one that could not be played says why."""
    waiting = list(reversed(list(enumerate(drafts))))
    recorded: dict[int, Json | str] = {}

    async def work(stage: Stage) -> None:
        while waiting:
            position, draft = waiting.pop()
            try:
                recorded[position] = await record(draft, stage)
                print(draft["name"], flush=True)
            except RuntimeError as err:
                recorded[position] = f"{draft['name']}: {err}"

    async with stages(folder, min(servers, len(drafts))) as ready, asyncio.TaskGroup() as group:
        for stage in ready:
            group.create_task(work(stage))
    return [recorded[position] for position in sorted(recorded)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Record kube-scheduler's exchanges with HTTP extenders.")
    parser.add_argument("--servers", type=int, default=2, metavar="N", help="API servers at a time")
    parser.add_argument("drafts", type=Path, metavar="DRAFTS", help="a .jsonl file of scenarios with answers")
    parser.add_argument("recordings", type=Path, metavar="RECORDINGS", help="the .jsonl file to write")
    options = parser.parse_args(argv)
    drafts = [json.loads(line) for line in options.drafts.read_text().splitlines() if line.strip()]
    problem = missing_programs(("etcd", "kube-apiserver", "kube-scheduler"))
    if problem or not drafts:
        parser.error(problem or f"no scenario in {options.drafts}")
    with TemporaryDirectory() as folder:
        recorded = asyncio.run(record_all(drafts, max(1, options.servers), Path(folder)))
    good = [one for one in recorded if not isinstance(one, str)]
    options.recordings.write_text("".join(json.dumps(one) + "\n" for one in good))
    for problem in (one for one in recorded if isinstance(one, str)):
        print(problem, file=sys.stderr)
    return 0 if len(good) == len(recorded) else 1


if __name__ == "__main__":
    sys.exit(main())
