"""Replay recorded decisions of kubernetes-sigs/scheduler-plugins through the plugins of the same names.

    python tests/parity/replay_scheduler_plugins.py [--remote] [--plugins NAME,NAME] DIR

Reads every `*.jsonl.gz` of the folder. Prints one JSON line for each plugin: the number of cases, how many
are identical, how many differ as the page's table of mended faults says, and the first other difference.
Exits 0 only if there is no other difference and each plugin exists. `--plugins`: replay these alone.
`--remote`: the plugins are served from another process.

A case may differ only if it is marked `fault` and the table of docs/reference/scheduler-plugins.md has the
fault. A crash of the plugin ends the replay: it is never a mended fault.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.log import configure
from support.places import ROOT
from support.scheduler_plugin_cases import decide
from support.served import SCHEDULER_PLUGINS, plugin_server

Json = dict[str, Any]
PAGE: Final = ROOT / "docs" / "reference" / "scheduler-plugins.md"
_ROW: Final = re.compile(r"^\| `(\w+)` \| ([^|]+?) \|", re.MULTILINE)


@dataclass(slots=True)
class Tally:
    """Counts of one plugin. `different`: the first case that is neither identical nor a mended fault."""

    plugin: str
    cases: int = 0
    identical: int = 0
    mended: int = 0
    different: Json | None = None

    def line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(
            {
                "plugin": self.plugin,
                "cases": self.cases,
                "identical": self.identical,
                "mended": self.mended,
                "first_difference": self.different,
            }
        )

    @property
    def is_good(self) -> bool:
        """True if every case is identical or a mended fault."""
        return self.identical + self.mended == self.cases


def read_cases(folder: Path) -> list[Json]:
    """Return the cases of every recording of a folder."""
    cases = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            cases += [json.loads(line) for line in lines]
    return cases


def compare(case: Json, actual: Json, mended: Collection[tuple[str, str]]) -> tuple[str, Json | None]:
    """Return `identical`, `mended` or `different`, and the difference.

    `mended`: the plugin and the fault of each row of the page's table.
    """
    recorded = case["expected"]
    expected: Json = {
        "configError": "configError" in recorded,
        "filter": recorded.get("filter") or {},
        "scores": None if "configError" in recorded else recorded.get("scores"),
    }
    if "panic" not in recorded and actual == expected:
        return "identical", None
    if (case["plugin"], case.get("fault")) in mended:
        return "mended", None
    return "different", {"name": case["name"], "expected": recorded, "actual": actual}


def mended_faults() -> frozenset[tuple[str, str]]:
    """Return the plugin and the recorded fault of each row of the page's table of mended faults."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("\n## Mended faults\n")
    return frozenset((plugin, fault) for plugin, fault in _ROW.findall(table))


async def replayed(cases: Sequence[Json], endpoint: str = "") -> list[Tally]:
    """Return the tally of each plugin that has cases. `endpoint`: where the plugins are served, "" here."""
    tallies: dict[str, Tally] = {}
    mended = mended_faults()
    for case in cases:
        tally = tallies.setdefault(case["plugin"], Tally(case["plugin"]))
        tally.cases += 1
        actual = await decide(case, endpoint)
        outcome, difference = compare(case, actual, mended)
        if outcome == "identical":
            tally.identical += 1
        elif outcome == "mended":
            tally.mended += 1
        elif tally.different is None:
            tally.different = difference
    return list(tallies.values())


def replay(cases: Sequence[Json], endpoint: str = "") -> list[Tally]:
    """Return what `replayed` does. One event loop serves all cases: gRPC holds on to its first one."""
    return asyncio.run(replayed(cases, endpoint))


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a folder; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--remote", action="store_true", help="serve the plugins from another process")
    parser.add_argument("--plugins", default="", help="replay the cases of these plugins alone")
    options = parser.parse_args(arguments)
    configure(level="ERROR")
    wanted = set(filter(None, options.plugins.split(",")))
    cases = [case for case in read_cases(options.folder) if not wanted or case["plugin"] in wanted]
    there = [case for case in cases if case["plugin"] in SCHEDULER_PLUGINS]
    recorded = {case["plugin"] for case in cases}
    missing = sorted((recorded - set(SCHEDULER_PLUGINS)) | (wanted - recorded))
    if options.remote and there:
        with (
            TemporaryDirectory(prefix="berth-") as folder,
            plugin_server(Path(folder), SCHEDULER_PLUGINS) as endpoint,
        ):
            tallies = replay(there, endpoint)
    else:
        tallies = replay(there)
    for tally in tallies:
        print(tally.line())
    for name in missing:
        print(json.dumps({"plugin": name, "missing": "there is no such plugin here, or no case of it"}))
    return 0 if cases and not missing and all(tally.is_good for tally in tallies) else 1


if __name__ == "__main__":
    sys.exit(main())
