"""Run Kubernetes' own scheduling specs with kube-scheduler and berth, and compare them spec by spec.

    python tests/cluster/e2e/run.py [--scheduler berth|kube-scheduler]... [--runs N] [--at-once]
        [--focus REGEX]... [--pod-groups] [--keep DIR]

Each scheduler is the `default-scheduler` of a cluster of its own: kube-apiserver, etcd, kwok's nodes and
kube-controller-manager. Prints a Markdown table and why specs failed. Exit code 1: in some run berth fails a
spec that kube-scheduler passes; 2: something could not be run. Called by `make e2e`, which builds the
programs.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.versus.real_servers import SCHEDULER, ServerError, missing_programs, program
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup
from support.e2e_cluster import POD_GROUP_GATE, cluster, missing_e2e_programs, run_specs
from support.e2e_report import BERTH, KUBE, ReportError, Run, lost, read_run, reasons, table


async def one_run(scheduler: str, folder: Path, focus: Sequence[str], *, pod_groups: bool) -> Run:
    """Run the specs with one scheduler, on a new cluster. Raises ServerError, SchedulerError, ReportError."""
    folder.mkdir(parents=True)
    with cluster(folder, pod_groups=pod_groups) as servers:
        setup = SchedulerSetup(
            program=BERTH if scheduler == BERTH else str(program(KUBE)),
            kubeconfig=servers.kubeconfig(SCHEDULER),
            folder=folder,
            flags=POD_GROUP_GATE if pod_groups else (),
        )
        process = SchedulerProcess(setup)
        await process.start()
        try:
            await process.ready()
            report = await run_specs(servers, folder, focus=focus, pod_groups=pod_groups)
            if process.ended_with is not None:
                raise SchedulerError(f"{scheduler} ended with {process.ended_with}:\n{process.last_lines()}")
        finally:
            await process.stop()
    run = read_run(scheduler, report)
    print(f"{scheduler}: {len(run.passed)} of {len(run.specs)} specs pass", file=sys.stderr, flush=True)
    return run


async def all_runs(
    schedulers: Sequence[str],
    runs: int,
    folder: Path,
    focus: Sequence[str],
    *,
    at_once: bool,
    pod_groups: bool,
) -> list[Run]:
    """Run every scheduler `runs` times, in turns; with `at_once` the schedulers of a turn run
    concurrently.
    """
    found: list[Run] = []
    for number in range(1, runs + 1):
        turn = (
            one_run(name, folder / f"{name}-{number}", focus, pod_groups=pod_groups) for name in schedulers
        )
        if at_once:
            found += await asyncio.gather(*turn)
        else:
            found += [await one for one in turn]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run Kubernetes' scheduling specs against both schedulers.")
    parser.add_argument("--scheduler", action="append", choices=(KUBE, BERTH), help="default: both, in turns")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of each scheduler")
    parser.add_argument("--at-once", action="store_true", help="both at the same time, on a cluster each")
    parser.add_argument("--focus", action="append", default=[], metavar="REGEX", help="only specs named so")
    parser.add_argument(
        "--pod-groups", action="store_true", help="the specs of pod groups, with their gate on"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for logs and reports")
    options = parser.parse_args(argv)
    if problem := missing_programs() or missing_e2e_programs():
        parser.error(problem)
    if options.keep and options.keep.exists():
        parser.error(f"--keep: {options.keep} is there already")
    schedulers = options.scheduler or [KUBE, BERTH]
    with TemporaryDirectory() as scratch:
        folder = options.keep.absolute() if options.keep else Path(scratch) / "runs"
        work = all_runs(
            schedulers,
            options.runs,
            folder,
            options.focus,
            at_once=options.at_once,
            pod_groups=options.pod_groups,
        )
        try:
            runs = asyncio.run(work)
        except (ServerError, SchedulerError, ReportError) as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            if options.keep:
                _without_data(folder)
    print(table(runs))
    if text := reasons(runs):
        print(f"\n{text}")
    behind = lost(runs)
    for line in behind:
        print(f"berth fails what kube-scheduler passes: {line}", file=sys.stderr)
    return 1 if behind else 0


def _without_data(folder: Path) -> None:
    # Keep only the logs of a cluster.
    for data in folder.glob("*/servers/etcd"):
        shutil.rmtree(data)


if __name__ == "__main__":
    sys.exit(main())
