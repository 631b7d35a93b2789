"""Replay recorded decisions of kube-scheduler through the host, and report the differences.

    python tests/parity/replay.py [--remote] [--emulated-version VERSION] [--exclude CATEGORY]...
        [--actual FILE] DIR

Reads every `*.jsonl` and `*.jsonl.gz` of the folder. Prints one JSON line for each category, with its first
difference, then the total; exits 0 only if all are identical. A record that cannot be run is not identical.
`--actual` writes the host's results, one line `{"name", "results"}` for each record. With `--remote` all
default plugins are served from another process. `--emulated-version`: the version that was recorded, 1.36
by default.

The two steps are independent: `decision_host` turns a record without its `expected` into the host's inputs
and writes down its answers; `decision_records` compares.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.log import configure
from support.decision_host import decide
from support.decision_records import first_difference, read_records
from support.emulated_version import OLDEST, add_option
from support.served import default_plugin_server

Json = dict[str, Any]
_RECORD_S: Final = 1800.0


@dataclass(slots=True)
class Tally:
    """Counts of one category, or of all."""

    category: str
    records: int = 0
    identical: int = 0
    first_difference: Json | None = None

    def add(self, difference: Json | None) -> None:
        """Count one more record."""
        self.records += 1
        if difference is None:
            self.identical += 1
        elif self.first_difference is None:
            self.first_difference = difference

    def line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(
            {
                "category": self.category,
                "records": self.records,
                "identical": self.identical,
                "first_difference": self.first_difference,
            }
        )


@dataclass(slots=True)
class Replay:
    """The result of a folder. `actual`: one line for each record that could be run."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    total: Tally = field(default_factory=lambda: Tally("total"))
    actual: list[Json] = field(default_factory=list)


def run(record: Json, emulated_version: str, endpoint: str = "") -> tuple[list[Json] | None, str]:
    """Return the host's results, or None and the reason why the record could not be run."""
    given = {key: value for key, value in record.items() if key != "expected"}
    if "unreadable" in given:
        return None, str(given["unreadable"])
    try:
        results = asyncio.run(_in_time(given, emulated_version, endpoint))
    except Exception as err:  # noqa: BLE001 (the loop over records goes on: this one counts as not identical)
        return None, f"{type(err).__name__}: {err}"
    return results, ""


async def _in_time(record: Json, emulated_version: str, endpoint: str) -> list[Json]:
    """Run a record with a time limit, so that a record that never ends does not block the others."""
    async with asyncio.timeout(_RECORD_S):
        return await decide(record, emulated_version, endpoint)


def replay(records: Iterable[Json], endpoint: str = "", *, emulated_version: str = OLDEST) -> Replay:
    """Run and compare all records. `endpoint`: the address of served default plugins; "" for in-process
    ones. `emulated_version`: the version to decide as; "" for no emulation.
    """
    done = Replay()
    for record in records:
        results, problem = run(record, emulated_version, endpoint)
        if results is None:
            difference: Json | None = {"problem": problem}
        else:
            done.actual.append({"name": record["name"], "results": results})
            expected = (record.get("expected") or {}).get("results") or []
            difference = first_difference(expected, results)
        if difference is not None:
            difference = {"record": record["name"], **difference}
        category = str(record["category"])
        done.tallies.setdefault(category, Tally(category)).add(difference)
        done.total.add(difference)
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Replay recorded scheduling decisions.")
    parser.add_argument("--remote", action="store_true", help="serve all plugins from another process")
    add_option(parser)
    parser.add_argument("--exclude", action="append", default=[], metavar="CATEGORY", help="leave it out")
    parser.add_argument("--actual", type=Path, metavar="FILE", help="write what the host did")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with *.jsonl or *.jsonl.gz")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    configure("CRITICAL")
    records = read_records(options.folder, options.exclude)
    if options.remote:
        with TemporaryDirectory() as folder, default_plugin_server(Path(folder)) as endpoint:
            done = replay(records, endpoint, emulated_version=options.emulated_version)
    else:
        done = replay(records, emulated_version=options.emulated_version)
    if options.actual is not None:
        options.actual.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in done.actual))
    for category in sorted(done.tallies):
        print(done.tallies[category].line())
    print(done.total.line())
    return 0 if done.total.records and done.total.identical == done.total.records else 1


if __name__ == "__main__":
    sys.exit(main())
