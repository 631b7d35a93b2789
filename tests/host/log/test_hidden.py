"""Secrets are found wherever a text may have them, and words that only contain one are left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from berth_host.log.hidden import MASK, forget, hide, without_hidden

SECRET = "hunter2-of-the-log"


@pytest.fixture(autouse=True)
def _hidden() -> Iterator[None]:
    hide([SECRET])
    yield
    forget([SECRET])


@pytest.mark.parametrize("write", [json.dumps, repr, str], ids=["json", "repr", "str"])
@pytest.mark.parametrize(
    "before",
    ["\n", "\t", "\r", "\x07", "\x1b", "\x1b[0m", "\x1b[35m", "\x1b[1;31m"],
    ids=["line", "tab", "return", "bell", "escape", "plain", "colour", "bright"],
)
def test_secret_behind_a_line_end_or_a_colour_is_hidden(write: Callable[[str], str], before: str) -> None:
    # A colour is written to a terminal as it is.
    says = str if before.startswith("\x1b[") else write
    shown = without_hidden(says(f"it says{before}{SECRET}"))
    assert SECRET not in shown
    assert MASK in shown


def test_protobufs_escape_before_a_secret_is_read() -> None:
    assert without_hidden(f"\\007{SECRET}") == f"\\007{MASK}"


@pytest.mark.parametrize("text", [f"x{SECRET}", f"{SECRET}s", f"12{SECRET}"])
def test_a_longer_word_is_not_the_secret(text: str) -> None:
    assert without_hidden(text) == text
