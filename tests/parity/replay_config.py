"""Replay recorded configurations through the host's own loader, and compare the results.

    python tests/parity/replay_config.py [--emulated-version VERSION] [--actual FILE] DIR

Reads every `*.jsonl` and `*.jsonl.gz` of the folder. Prints one JSON line with the number of records, how
many are identical, and the first difference; exits 0 only if all are identical. `--actual` also writes the
host's result for each record, in the form of the recording.

The two steps are independent: `actual_of` translates a record's input and never reads the expected result;
`first_difference` compares. Of errors it compares kind, types and field paths, and of texts only whether they
exist; everything else must be equal.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration
from berth_host.config.rendering import configuration_to_json, error_to_json
from support.emulated_version import OLDEST, add_option

Record: TypeAlias = dict[str, Any]
_TEXTS = ("error", "text")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a record: the path inside, the recorded value, and the host's value."""

    name: str
    path: str
    expected: object
    actual: object


def read_records(folder: Path) -> Iterator[Record]:
    """Yield all records of a folder, by file name and line."""
    files = [file for file in sorted(folder.iterdir()) if file.name.endswith((".jsonl", ".jsonl.gz"))]
    for file in files:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
        yield from (json.loads(line) for line in text.split("\n") if line.strip())


def actual_of(given: Record, emulated_version: str = OLDEST) -> Record:
    """Return the host's result for a record's input, in the form of `expected`."""
    registered = {name: frozenset(points) for name, points in given.get("outOfTreePlugins", {}).items()}
    try:
        loaded = load_configuration(
            given["input"],
            source=given["name"],
            registered=registered,
            feature_gates=given.get("featureGates", {}),
            emulated_version=emulated_version,
        )
    except ConfigurationError as err:
        return _recorded_error(error_to_json(err))
    shown = configuration_to_json(loaded)
    return {"config": shown["config"], "profiles": shown["profiles"]}


def _actual_or_problem(given: Record, emulated_version: str) -> Record:
    try:
        return actual_of(given, emulated_version)
    except Exception as err:  # noqa: BLE001 (the loop over records goes on: this one is not identical)
        return {"problem": f"{type(err).__name__}: {err}"}


def _recorded_error(shown: Record) -> Record:
    error = shown["error"]
    result = {"kind": error["kind"], "error": error["text"]}
    if error["errors"]:
        result["errors"] = error["errors"]
    if "config" in shown:
        result["config"] = shown["config"]
    return result


def first_difference(name: str, expected: Record, actual: Record) -> Difference | None:
    """Compare the recorded result with the host's; return None if they are equal."""
    variants = expected.get("errorVariants")
    wanted = {key: value for key, value in expected.items() if key != "errorVariants"}
    if variants and "errors" in wanted and "errors" in actual:
        # The order of the parts is not the same every time.
        wanted["errors"], actual = (
            _by_field(wanted["errors"]),
            {**actual, "errors": _by_field(actual["errors"])},
        )
    found = next(_differences(wanted, actual, ""), None)
    return None if found is None else Difference(name, *found)


def _by_field(errors: Sequence[Record]) -> list[Record]:
    return sorted(errors, key=lambda error: (error["field"], error["type"]))


def _differences(expected: Any, actual: Any, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            where = f"{path}.{key}" if path else key
            if key not in expected or key not in actual:
                yield where, expected.get(key, "(absent)"), actual.get(key, "(absent)")
            elif key in _TEXTS and _is_error_text(path):
                if bool(expected[key]) != bool(actual[key]):
                    yield where, expected[key], actual[key]
            else:
                yield from _differences(expected[key], actual[key], where)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield path, expected, actual
        for index, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
            yield from _differences(wanted, got, f"{path}[{index}]")
    elif not _is_same_scalar(expected, actual):
        yield path, expected, actual


def _is_error_text(path: str) -> bool:
    return path == "" or path.startswith("errors[")


def _is_same_scalar(expected: object, actual: object) -> bool:
    # 1 and 1.0 are one JSON number, 1 and true are not.
    return isinstance(expected, bool) == isinstance(actual, bool) and expected == actual


def replay(folder: Path, actual_file: Path | None, emulated_version: str = OLDEST) -> dict[str, object]:
    """Replay a folder; return the printed line."""
    records = list(read_records(folder))
    inputs = [{key: value for key, value in record.items() if key != "expected"} for record in records]
    actual = [_actual_or_problem(given, emulated_version) for given in inputs]
    if actual_file is not None:
        shown = ({"name": r["name"], "expected": a} for r, a in zip(records, actual, strict=True))
        actual_file.write_text("".join(f"{json.dumps(line)}\n" for line in shown), encoding="utf-8")
    found = (
        first_difference(record["name"], record.get("expected") or {}, answer)
        for record, answer in zip(records, actual, strict=True)
    )
    differences = [difference for difference in found if difference is not None]
    return {
        "records": len(records),
        "identical": len(records) - len(differences),
        "first_difference": _shown(differences[0]) if differences else None,
    }


def _shown(difference: Difference) -> dict[str, object]:
    return {
        "name": difference.name,
        "path": difference.path,
        "expected": difference.expected,
        "actual": difference.actual,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Replay recorded scheduler configurations.")
    add_option(parser)
    parser.add_argument("--actual", type=Path, metavar="FILE", help="write what the host did, one line each")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with *.jsonl or *.jsonl.gz")
    given = parser.parse_args(argv)
    result = replay(given.folder, given.actual, given.emulated_version)
    print(json.dumps(result))
    return 0 if result["records"] and result["identical"] == result["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
