"""docs/explanation/security.md: each claim names an existing test that is not always skipped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from support.places import ROOT

PAGE = ROOT / "docs" / "explanation" / "security.md"
SECTIONS = (
    "What it cannot do",
    "On one machine: Unix sockets",
    "From machine to machine: mutual TLS",
    "Callers without rights at the host's ports",
    "Secrets and audit",
)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def claims(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield (section, claim, test) of every row of every table; the test is empty if a row names none."""
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 2 and cells[0] not in ("Claim", "---"):
            matched = _TEST.fullmatch(cells[1])
            yield section, cells[0], "" if matched is None else f"{matched[1]}::{matched[2]}"


CLAIMS = list(claims(PAGE.read_text(encoding="utf-8")))


def is_there(test: str) -> bool:
    """Return True if the file has that test at its top level, and nothing always skips it."""
    path, _, name = test.partition("::")
    file = ROOT / path
    if not file.is_file():
        return False
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return not any(re.search(r"\.(skip|xfail)\b", ast.unparse(mark)) for mark in node.decorator_list)
    return False


@pytest.mark.parametrize(("section", "claim", "test"), CLAIMS)
def test_each_claim_has_its_test(section: str, claim: str, test: str) -> None:
    assert test, f"{section}: {claim!r} names no test"
    assert is_there(test), f"{section}: {claim!r} names {test}, which is not there"


def test_every_section_with_claims_is_read_and_no_test_is_used_twice() -> None:
    assert tuple(dict.fromkeys(section for section, _, _ in CLAIMS)) == SECTIONS
    tests = [test for _, _, test in CLAIMS]
    assert len(set(tests)) == len(tests)


@pytest.mark.parametrize(
    "test",
    [
        "tests/docs/test_gone.py::test_each_claim_has_its_test",
        "tests/docs/test_security.py::test_gone",
        "tests/docs/test_security.py::is_there_not",
    ],
)
def test_missing_test_of_a_claim_is_reported(test: str) -> None:
    assert not is_there(test)


def test_claim_without_a_test_is_reported() -> None:
    page = "## A\n| Claim | Test |\n| --- | --- |\n| It is safe | believe me |\n"
    assert list(claims(page)) == [("A", "It is safe", "")]
