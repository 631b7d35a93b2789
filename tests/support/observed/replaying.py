"""The command line of the replays on a real API server: `replay_observability` and `replay_extender`."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from berth_bench.versus.real_servers import missing_programs
from berth_bench.versus.real_servers import program as program_of
from support.emulated_version import add_option
from support.observed.scenario import BERTH, Outcome, run
from support.observed.stage import stages
from support.observed.trial import Stage, Trials

Json = dict[str, Any]
_SERVERS: Final = 2


def read_scenarios(folder: Path, files: str = "*") -> list[Json]:
    """Return the scenarios of a folder's `.jsonl` and `.jsonl.gz` files, by name of the file.

    `files`: a pattern for their names, without the suffix. Raises ValueError for a line that is no scenario.
    """
    paths = [*sorted(folder.glob(f"{files}.jsonl")), *sorted(folder.glob(f"{files}.jsonl.gz"))]
    return [scenario for path in paths for scenario in _scenarios(path)]


def _scenarios(path: Path) -> list[Json]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    scenarios = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            scenario = json.loads(line)
            lacks = {"name", "schedulerConfig", "setup", "steps", "expected"} - scenario.keys()
        except (ValueError, AttributeError):
            raise ValueError(f"{path}, line {number}: no JSON object") from None
        if lacks:
            raise ValueError(f"{path}, line {number}: a scenario needs {', '.join(sorted(lacks))}")
        scenarios.append(scenario)
    return scenarios


async def replay(
    scenarios: Sequence[Json],
    program: str,
    servers: int,
    folder: Path,
    trials: Trials,
    emulated_version: str,
) -> list[Outcome]:
    """Replay all scenarios, as many at a time as there are servers; print each when it ends."""
    waiting = list(reversed(list(enumerate(scenarios))))
    outcomes: dict[int, Outcome] = {}

    async def work(stage: Stage) -> None:
        while waiting:
            position, record = waiting.pop()
            outcomes[position] = await run(
                record, stage, program, trials=trials, emulated_version=emulated_version
            )
            print(_line(outcomes[position]), flush=True)

    async with stages(folder, min(servers, len(scenarios))) as ready, asyncio.TaskGroup() as group:
        for stage in ready:
            group.create_task(work(stage))
    return [outcomes[position] for position in sorted(outcomes)]


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


def main(argv: Sequence[str] | None, trials: Trials, files: str = "*") -> int:
    """Run the command line for one kind of recordings. `files`: as for `read_scenarios`."""
    parser = argparse.ArgumentParser(description="Replay recorded scenarios against a real API server.")
    parser.add_argument("--scheduler", choices=(BERTH, "kube-scheduler"), default=BERTH)
    add_option(parser)
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME", help="this one only")
    parser.add_argument("--servers", type=_count, default=_SERVERS, metavar="N", help="API servers at a time")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the schedulers' output there")
    parser.add_argument("folder", type=Path, metavar="DIR", help=f"folder with {files}.jsonl or .jsonl.gz")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    try:
        scenarios = read_scenarios(options.folder, files)
    except (ValueError, OSError) as err:
        parser.error(str(err))
    if options.scenario:
        unknown = set(options.scenario) - {record["name"] for record in scenarios}
        if unknown:
            parser.error(f"{options.folder} has no scenario {', '.join(sorted(unknown))}")
        scenarios = [record for record in scenarios if record["name"] in options.scenario]
    if options.scheduler != BERTH:
        scenarios = [record for record in scenarios if "plugin" not in record]
    if not scenarios:
        parser.error(f"no scenario in {options.folder}/{files}.jsonl or .jsonl.gz")
    needed = ("etcd", "kube-apiserver", *(() if options.scheduler == BERTH else (options.scheduler,)))
    problem = missing_programs(needed)
    if problem:
        parser.error(problem)
    program = BERTH if options.scheduler == BERTH else str(program_of("kube-scheduler"))
    with TemporaryDirectory() as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        outcomes = asyncio.run(
            replay(scenarios, program, options.servers, folder, trials, options.emulated_version)
        )
    total = summary(outcomes)
    print(json.dumps(total))
    return 0 if total["identical"] == total["records"] else 1


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return count
