"""Recorded decisions: reading a folder of them, and comparing what was recorded with what a host did.

Used by `parity/replay.py`. The format is described in `parity/golden/README.md`. Comparing is a step of its
own: it sees finished results, and every field counts. What a build cannot have said, because it lacks the
plugin, is taken out of what was recorded first (`without`); with no plugin missing nothing is taken out.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
DEFAULT_PREEMPTION: Final = "DefaultPreemption"
DYNAMIC_RESOURCES: Final = "DynamicResources"
_NO_CLAIMS: Final = "no new claims to deallocate"


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


def first_difference(expected: list[Json], actual: list[Json], missing: Collection[str]) -> Json | None:
    """Where two lists of results differ first: `{path, expected, actual}`, or None.

    `missing`: default plugins that the build does not have; what they said is not expected.
    """
    wanted = [_comparable(without(result, missing)) for result in expected]
    got = [_comparable(result) for result in actual]
    if DYNAMIC_RESOURCES in missing and DEFAULT_PREEMPTION not in missing:
        # Where its PreFilter was not reached, its PostFilter fails, and nobody is asked after it.
        for one, other in zip(wanted, got, strict=False):
            if (one.get("preemption") or {}).get("code") == "Error":
                other |= {"preemption": one["preemption"], "fitError": one["fitError"]}
    return _difference("results", wanted, got)


def without(result: Json, missing: Collection[str]) -> Json:
    """A recorded result as a build without the plugins `missing` can give it.

    Their own entries go, and their scores out of `total`; `best` and `chosen` follow from the new total.
    Without DefaultPreemption there is no `preemption`, and its sentence is not in `fitError`.
    """
    if not missing:
        return result
    result = dict(result)
    for field in ("preFilter", "filter", "scores"):
        if field in result:
            result[field] = {name: value for name, value in result[field].items() if name not in missing}
    if "skippedScorePlugins" in result:
        result["skippedScorePlugins"] = [
            name for name in result["skippedScorePlugins"] if name not in missing
        ]
    if "scores" in result and "total" in result:
        result["total"] = _total(result["scores"], len(result["feasible"]))
        best = _best(result["feasible"], result["total"])
        result |= {"best": best, "chosen": best[0]}
    if DEFAULT_PREEMPTION in missing:
        message = (result.pop("preemption", None) or {}).get("message", "")
        if message:
            result["fitError"] = result["fitError"].removesuffix(f" {message}")
    elif DYNAMIC_RESOURCES in missing and "preemption" in result:
        result |= _without_dynamic_resources(result)
    return result


def _without_dynamic_resources(result: Json) -> Json:
    """Its PostFilter comes first and says that it found no claims; then DefaultPreemption is the first."""
    preemption = dict(result["preemption"])
    message = preemption.get("message", "").removeprefix(f"{_NO_CLAIMS}, ")
    fit_error = result["fitError"].replace(f" {_NO_CLAIMS}, ", " ", 1)
    if preemption.get("plugin") == DYNAMIC_RESOURCES:
        preemption["plugin"] = DEFAULT_PREEMPTION
    return {"fitError": fit_error, "preemption": preemption | {"message": message}}


def _total(scores: Mapping[str, Json], count: int) -> list[int]:
    total = [0] * count
    for item in scores.values():
        total = [have + item["weight"] * more for have, more in zip(total, item["normalized"], strict=True)]
    return total


def _best(feasible: list[str], total: list[int]) -> list[str]:
    return [name for name, value in zip(feasible, total, strict=True) if value == max(total)]


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
