"""Recorded decisions: reading a folder of them, and comparing what was recorded with what a host did.

Used by `parity/replay.py`. The format is described in `parity/golden/README.md`. Comparing is a step of its
own: it sees finished results, and every field counts.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def read_records(folder: Path, exclude: Collection[str] = ()) -> Iterator[Json]:
    """All records of `*.jsonl` and `*.jsonl.gz` in file and line order, those of `exclude` left out.

    One that does not say its name or category gets those of its place; one that cannot be read says why in
    `unreadable`.
    """
    for file in sorted(folder.iterdir()):
        if not file.name.endswith((".jsonl", ".jsonl.gz")):
            continue
        category = file.name.removesuffix(".gz").removesuffix(".jsonl")
        for number, line in _lines(file):
            place = {"name": f"{file.name}:{number}", "category": category}
            record = place | _read(line)
            if record["category"] not in exclude:
                yield record


def _lines(file: Path) -> Iterator[tuple[int, bytes | Exception]]:
    """Each line that is not empty, with its number; an error in place of what cannot be unpacked."""
    data = file.read_bytes()
    try:
        text = gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as err:
        yield 1, err
        return
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            yield number, line


def _read(line: bytes | Exception) -> Json:
    if isinstance(line, Exception):
        return {"unreadable": f"{type(line).__name__}: {line}"}
    try:
        record = json.loads(line)
    except ValueError as err:
        return {"unreadable": f"{type(err).__name__}: {err}"}
    if not isinstance(record, dict):
        return {"unreadable": "not a JSON object"}
    return record


def first_difference(expected: list[Json], actual: list[Json]) -> Json | None:
    """Where two lists of results differ first: `{path, expected, actual}`, or None."""
    return _difference("results", _comparable(expected), _comparable(actual))


def _comparable(value: Any) -> Any:
    """Without what is empty, which the format leaves out as well; error texts count by presence."""
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    shown: Json = {}
    for key, item in value.items():
        if key == "error":
            shown[key] = bool(item)
        elif key == "filter":
            # A plugin with {} ran and every node passed; one that is absent did not run.
            shown[key] = {plugin: _comparable(verdicts) for plugin, verdicts in item.items()}
        else:
            shown[key] = _comparable(item)
    return {key: item for key, item in shown.items() if item not in (None, "", [], {}, False)}


def _difference(path: str, expected: Any, actual: Any) -> Json | None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            found = _difference(f"{path}.{key}", expected.get(key), actual.get(key))
            if found is not None:
                return found
        return None
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for i, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
            found = _difference(f"{path}[{i}]", wanted, got)
            if found is not None:
                return found
        return None
    # False equals 0 and 1 equals 1.0 in Python; in the records they do not.
    if type(expected) is type(actual) and expected == actual:
        return None
    return {"path": path, "expected": expected, "actual": actual}
