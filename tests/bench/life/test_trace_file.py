"""The file of a life is written, read, and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from berth_bench.life.life import Result
from berth_bench.life.trace_file import TraceFileError, difference, read, write

RESULT = Result(
    seed=7,
    days=0.5,
    hosts=2,
    mood="calm",
    broken="",
    hours=12.0,
    pods=1,
    bound=1,
    acts=2,
    faults=0,
    trace_lines=2,
    trace_sha256="ab",
    cpu_s=1.0,
    without=("taint",),
    lines=("0.000000 one", "1.000000 two"),
)


def test_file_that_was_written_is_read_with_seed_days_and_lines(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    write(file, RESULT)
    found = read(file)
    assert (found.seed, found.days, found.hosts) == (7, 0.5, 2)
    assert (found.without, found.lines) == (("taint",), RESULT.lines)
    assert difference(found, RESULT) == ""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("0.000000 one", "1.000000 other"),
            "line 2 of the trace was '1.000000 two', and is '1.000000 other'",
        ),
        (("0.000000 one",), "the trace had 2 lines, and has 1"),
    ],
)
def test_first_difference_is_named(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    file = tmp_path / "trace"
    write(file, RESULT)
    assert difference(read(file), replace(RESULT, lines=lines)) == said


@pytest.mark.parametrize("text", ["", "0.0 life\n", "{}\n", "[1]\n"])
def test_other_file_is_refused_with_the_cure(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(TraceFileError, match=r"is not the trace of a life .*berth bench life --trace"):
        read(file)
