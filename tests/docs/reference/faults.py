"""List the tests that cause each failure of the table with real processes, by row.

All tests of `tests/host/faults` belong to the list; tests of other folders are named here.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from docs.pages import REPOSITORY
from docs.reference.markdown import codes, table

FOLDER: Final = REPOSITORY / "tests" / "host" / "faults"
ELSEWHERE: Final = (
    "tests/host/attach/test_contested_socket.py::"
    "test_row_5_attached_instance_is_kept_until_it_ends_and_the_other_one_starts_over",
    "tests/host/attach/test_contested_socket.py::"
    "test_row_5_no_call_goes_to_the_other_instance_by_a_connection_that_is_made_later",
    "tests/host/attach/test_folder.py::"
    "test_row_6_and_7_hot_swap_loses_no_cycle_and_falls_back_to_the_older_instance",
    "tests/host/attach/test_sidecars.py::test_row_7_hot_swap_and_fall_back_are_seen_by_whoever_watches",
    "tests/host/attach/test_sidecars.py::"
    "test_row_19_sidecar_whose_copy_drifts_gets_it_anew_and_is_in_quarantine_the_third_time",
    "tests/host/attach/test_failure_table.py::test_row_20_plugin_restarts_between_two_calls_of_a_cycle",
    "tests/host/attach/test_sidecars.py::"
    "test_row_23_hung_sidecar_costs_a_few_deadlines_and_is_asked_again_when_it_goes_on",
    "tests/host/attach/test_sidecars.py::"
    "test_row_24_sidecar_that_answers_wrongly_again_and_again_is_in_quarantine_until_another_comes",
    "tests/host/attach/test_failure_table.py::"
    "test_row_32_child_that_exits_at_once_is_started_again_with_growing_waits",
    "tests/host/attach/test_failure_table.py::test_row_32_child_that_floods_its_output_is_bounded_and_useful",
)
STARTS: Final = frozenset(
    {
        "PluginProcess",
        "launched",
        "plugin_process",
        "running",
        "served_cluster",
        "serving",
        "sidecar",
        "sidecars",
    }
)
"""Names that start a process in these tests; `.start()` does so as well."""


def process_tests() -> list[str]:
    """Return `file::test` of each test, by file and name. Raises LookupError for a test that does not exist,
    or starts no process.
    """
    wanted = {f"{path.relative_to(REPOSITORY)}::" for path in FOLDER.glob("test_*.py")}
    found: list[str] = []
    for file in sorted(wanted | {f"{name.partition('::')[0]}::" for name in ELSEWHERE}):
        for name, starts in _tests(REPOSITORY / file.removesuffix("::")).items():
            if file not in wanted and file + name not in ELSEWHERE:
                continue
            if not starts:
                raise LookupError(f"{file}{name} starts no process")
            found.append(file + name)
    if missing := set(ELSEWHERE) - set(found):
        raise LookupError(f"there is no {', '.join(sorted(missing))}")
    return found


def rows_of(name: str) -> list[int]:
    """Return [6, 7] for `file::test_row_6_and_7_hot_swap`."""
    words = name.partition("::test_row_")[2].split("_")
    rows = [int(words[0])]
    while len(words) > 2 and words[1] == "and" and words[2].isdigit():
        words = words[2:]
        rows.append(int(words[0]))
    return rows


def by_row() -> dict[int, list[str]]:
    """Return the tests of each row."""
    found: dict[int, list[str]] = {}
    for name in process_tests():
        for row in rows_of(name):
            found.setdefault(row, []).append(name)
    return dict(sorted(found.items()))


def fault_tests() -> str:
    """Return a table with one line for each row."""
    rows = [(str(row), codes(names)) for row, names in by_row().items()]
    return table(("Row", "Tests with real processes"), rows)


def _tests(path: Path) -> dict[str, bool]:
    """Return the tests of a file that are about rows, each with True if it starts a process."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: any(isinstance(part, ast.Call) and _starts(part.func) for part in ast.walk(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_row_")
    }


def _starts(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        return called.attr == "start"
    return isinstance(called, ast.Name) and called.id in STARTS
