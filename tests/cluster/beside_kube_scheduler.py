"""Measures berth beside kube-scheduler on one real API server, in turns.

    python tests/cluster/beside_kube_scheduler.py [--nodes N]... [--pods N] [--runs N] [--latency-pods N]
        [-o json]

Throughput: so many pending pods, from the first that is bound to the last, with the scheduler's CPU time per
pod and its memory. Latency: pods made one by one on the idle cluster. Prints the median of the runs of each,
with `-o json` every run as well. Needs `make envtest`. The figures of docs/performance.md are from here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.beside import Latency, Throughput, Yard, middle
from support.observed.stage import api_of
from support.real_servers import SCHEDULER, RealServers, missing_programs, program

Json = dict[str, Any]
NODES: Final = (1000, 5000)
PODS: Final = 3000
RUNS: Final = 3
LATENCY_PODS: Final = 200
_COLUMNS: Final = {
    "Throughput": ("scheduler", "nodes", "pods_per_s", "cpu_ms_per_pod", "memory_mb", "startup_s", "load"),
    "Latency": ("scheduler", "nodes", "p50_ms", "p99_ms", "worst_ms", "cpu_ms_per_pod", "load"),
}


async def measure(options: argparse.Namespace, folder: Path) -> list[Throughput | Latency]:
    """All runs, the schedulers in turns."""
    servers = RealServers(folder / "servers", more=("--max-requests-inflight=2000",))
    programs = options.scheduler or ["berth", "kube-scheduler"]
    paths = [name if name == "berth" else str(program(name)) for name in programs]
    results: list[Throughput | Latency] = []
    with servers:
        async with api_of(servers) as api:
            yard = Yard(api, servers.kubeconfig(SCHEDULER), folder)
            for nodes in options.nodes or NODES:
                await yard.have_nodes(nodes)
                for _ in range(options.runs):
                    for path in paths:
                        if options.pods:
                            results.append(await yard.throughput(path, nodes, options.pods))
                            print(results[-1], file=sys.stderr)
                        if options.latency_pods:
                            results.append(await yard.latency(path, nodes, options.latency_pods))
                            print(results[-1], file=sys.stderr)
    return results


def table(rows: Sequence[Json]) -> str:
    """Markdown, one table for each kind of figure."""
    parts = []
    for kind, columns in _COLUMNS.items():
        chosen = [row for row in rows if row["kind"] == kind]
        if chosen:
            lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
            lines += [f"| {' | '.join(str(row[column]) for column in columns)} |" for row in chosen]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure berth beside kube-scheduler.")
    parser.add_argument(
        "--nodes", type=int, action="append", metavar="N", help="plain nodes; may be repeated"
    )
    parser.add_argument("--pods", type=int, default=PODS, metavar="N", help="pending pods; 0: no throughput")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="of each scheduler")
    parser.add_argument("--latency-pods", type=int, default=LATENCY_PODS, metavar="N", help="0: no latency")
    parser.add_argument("--scheduler", action="append", choices=("berth", "kube-scheduler"))
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args(argv)
    if problem := missing_programs():
        parser.error(problem)
    with TemporaryDirectory() as scratch:
        results = asyncio.run(measure(options, Path(scratch)))
    rows = middle(results)
    if options.output == "json":
        print(json.dumps({"median": rows, "runs": [asdict(result) for result in results]}))
    else:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
