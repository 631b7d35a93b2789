"""Replay recorded scripts of pod groups through the host's own queue, cycles and writers.

    python tests/parity/replay_podgroups.py [--remote] [--emulated-version VERSION] [--only CATEGORY]...
        [--exclude CATEGORY]... [--actual FILE] DIR

Reads every `*.jsonl` and `*.jsonl.gz` of the folder. Prints one JSON line for each script, then the total
with the first difference; exits 0 only if all are identical. A script that cannot be run is not identical.
`--actual` writes what the host did, one line `{"name", "expected"}` for each script, in the form of the
recording. With `--remote` all default plugins are served from another process. `--emulated-version`: the
version that was recorded, 1.37 by default.

The two steps are independent: `support.scripted_groups.actual_of` runs a script without its `expected`;
`first_difference` compares every field.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.log import configure
from support.emulated_version import add_option
from support.scripted_groups import actual_of, first_difference
from support.served import default_plugin_server

Json = dict[str, Any]
RECORDED: Final = "1.37"
_SCRIPT_S: Final = 900.0


def read_records(folder: Path, only: Collection[str] = (), exclude: Collection[str] = ()) -> Iterator[Json]:
    """Yield the scripts of a folder, by file name and line. `only`: the categories; empty for all."""
    for file in sorted(folder.iterdir()):
        if file.name.endswith((".jsonl", ".jsonl.gz")):
            data = file.read_bytes()
            text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
            for line in text.split("\n"):
                record = json.loads(line) if line.strip() else None
                if record and record["category"] not in exclude and (not only or record["category"] in only):
                    yield record


def outcome(record: Json, emulated_version: str = RECORDED, endpoint: str = "") -> tuple[Json | None, Json]:
    """Run one script. Return its first difference, None if it is identical, and what the host did."""
    script = {key: value for key, value in record.items() if key != "expected"}
    try:
        actual = asyncio.run(_in_time(script, emulated_version, endpoint))
    except Exception as err:  # noqa: BLE001 (the loop over scripts goes on: this one is not identical)
        return {"problem": f"{type(err).__name__}: {err}"}, {}
    return first_difference(record["expected"], actual, served=bool(endpoint)), actual


async def _in_time(script: Json, emulated_version: str, endpoint: str) -> Json:
    """Run a script with a time limit, so that a script that never ends does not block the others."""
    async with asyncio.timeout(_SCRIPT_S):
        return await actual_of(script, emulated_version, endpoint)


def replay(options: argparse.Namespace, endpoint: str = "") -> Json:
    """Run all scripts, print a line for each, and return the total."""
    total: Json = {"records": 0, "identical": 0, "first_difference": None}
    lines = []
    for record in read_records(options.folder, options.only, options.exclude):
        difference, actual = outcome(record, options.emulated_version, endpoint)
        name = {"name": record["name"], "category": record["category"]}
        print(
            json.dumps({**name, "identical": difference is None, "first_difference": difference}), flush=True
        )
        total["records"] += 1
        total["identical"] += difference is None
        if difference is not None and total["first_difference"] is None:
            total["first_difference"] = {"name": record["name"], **difference}
        lines.append(json.dumps({"name": record["name"], "expected": actual}, sort_keys=True))
    if options.actual is not None:
        options.actual.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Replay recorded scripts of pod groups.")
    parser.add_argument("--remote", action="store_true", help="serve all plugins from another process")
    add_option(parser, default=RECORDED)
    parser.add_argument("--only", action="append", default=[], metavar="CATEGORY", help="no other ones")
    parser.add_argument("--exclude", action="append", default=[], metavar="CATEGORY", help="leave it out")
    parser.add_argument("--actual", type=Path, metavar="FILE", help="write what the host did, one line each")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with *.jsonl or *.jsonl.gz")
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    configure("CRITICAL")  # standard output has the lines, so the log goes to standard error
    if options.remote:
        with TemporaryDirectory() as folder, default_plugin_server(Path(folder)) as endpoint:
            total = replay(options, endpoint)
    else:
        total = replay(options)
    print(json.dumps(total))
    return 0 if total["records"] and total["identical"] == total["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
