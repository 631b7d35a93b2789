"""Replay recorded scenarios of kube-scheduler against a real API server, and compare what users observe.

    python tests/cluster/replay_observability.py [--scheduler berth|kube-scheduler] [--scenario NAME]...
        [--servers N] DIR

Reads `events.jsonl` (or `.jsonl.gz`) of DIR. Every scenario starts from an empty cluster and a new scheduler
process. Prints one JSON line for each scenario when it ends, with its first difference, then the total. Exits
0 only if all are identical: the same pods with the same conditions, the same Events, the same writes with the
same bodies. `other_retries` marks scenarios that differ only in the number of attempts, which the recordings
leave open. With kube-scheduler, scenarios that need a plugin of their own are left out; such a run shows that
kube-scheduler matches its own recording.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.versus.real_servers import missing_programs
from berth_bench.versus.real_servers import program as program_of
from support.observed.scenario import Outcome, Stage, run
from support.observed.stage import stages

Json = dict[str, Any]
BERTH: Final = "berth"
_SERVERS: Final = 2


def read_scenarios(folder: Path) -> list[Json]:
    """Return all recorded scenarios of a folder."""
    texts = [path.read_text() for path in sorted(folder.glob("events*.jsonl"))]
    texts += [gzip.decompress(path.read_bytes()).decode() for path in sorted(folder.glob("events*.jsonl.gz"))]
    return [json.loads(line) for text in texts for line in text.splitlines() if line.strip()]


async def replay(scenarios: Sequence[Json], program: str, servers: int, folder: Path) -> list[Outcome]:
    """Replay all scenarios, as many at a time as there are servers; print each when it ends."""
    waiting = list(reversed(scenarios))
    outcomes: list[Outcome] = []

    async def work(stage: Stage) -> None:
        while waiting:
            outcome = await run(waiting.pop(), stage, program)
            outcomes.append(outcome)
            print(_line(outcome), flush=True)

    async with stages(folder, min(servers, len(scenarios))) as ready, asyncio.TaskGroup() as group:
        for stage in ready:
            group.create_task(work(stage))
    order = {record["name"]: position for position, record in enumerate(scenarios)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def _line(outcome: Outcome) -> str:
    identical = outcome.difference is None
    line: Json = {"name": outcome.name, "identical": identical, "difference": outcome.difference}
    if outcome.other_retries:
        line["other_retries"] = True
    return json.dumps({**line, "seconds": outcome.seconds})


def summary(outcomes: Sequence[Outcome]) -> Json:
    """Return the last line of the output."""
    different = [outcome for outcome in outcomes if outcome.difference is not None]
    first = {"name": different[0].name, **(different[0].difference or {})} if different else None
    return {
        "records": len(outcomes),
        "identical": len(outcomes) - len(different),
        "first_difference": first,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Replay recorded scenarios against a real API server.")
    parser.add_argument("--scheduler", choices=(BERTH, "kube-scheduler"), default=BERTH)
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME", help="this one only")
    parser.add_argument("--servers", type=int, default=_SERVERS, metavar="N", help="API servers at a time")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the schedulers' output there")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with events.jsonl")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    scenarios = read_scenarios(options.folder)
    if options.scenario:
        scenarios = [record for record in scenarios if record["name"] in options.scenario]
    if options.scheduler != BERTH:
        scenarios = [record for record in scenarios if "plugin" not in record]
    if not scenarios:
        parser.error("no such scenario")
    problem = missing_programs()
    if problem:
        parser.error(problem)
    program = BERTH if options.scheduler == BERTH else str(program_of("kube-scheduler"))
    with TemporaryDirectory() as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        outcomes = asyncio.run(replay(scenarios, program, options.servers, folder))
    total = summary(outcomes)
    print(json.dumps(total))
    return 0 if total["identical"] == total["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
