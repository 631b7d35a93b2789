"""The file of a life: what it was on the first line, as JSON, and its trace on the others.

Written by `berth bench life --trace`, read by `--replay`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from berth_bench.life.life import Result


class TraceFileError(Exception):
    """The file is not that of a life. The text names the file, and ends with the cure."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded life. `hosts`: how many it had."""

    seed: int
    days: float
    hosts: int
    without: tuple[str, ...]
    lines: tuple[str, ...]


def write(path: Path, result: Result) -> None:
    """Write the file of a life whose trace was kept. Raises OSError."""
    path.write_text("\n".join([json.dumps(result.as_json()), *result.lines, ""]), encoding="utf-8")


def read(path: Path) -> Recorded:
    """Read the file of a life. Raises OSError and TraceFileError."""
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        head = json.loads(first)
        return Recorded(
            seed=int(head["seed"]),
            days=float(head["days"]),
            hosts=int(head["hosts"]),
            without=tuple(head.get("without", ())),
            lines=tuple(lines),
        )
    except (ValueError, KeyError, TypeError) as err:
        raise TraceFileError(
            f"{path} is not the trace of a life ({err}): write one with `berth bench life --trace {path}`"
        ) from err


def difference(recorded: Recorded, result: Result) -> str:
    """Return how the trace of a life differs from a recorded one, as a sentence; "" if both are equal."""
    for number, (old, new) in enumerate(zip(recorded.lines, result.lines, strict=False), start=1):
        if old != new:
            return f"line {number} of the trace was {old!r}, and is {new!r}"
    if len(recorded.lines) != len(result.lines):
        return f"the trace had {len(recorded.lines)} lines, and has {len(result.lines)}"
    return ""
