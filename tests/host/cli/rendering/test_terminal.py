"""Width and colours that the stream's terminal allows, with a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from berth_host.cli.rendering.terminal import PLAIN, Terminal


@pytest.fixture
def narrow() -> Iterator[TextIO]:
    """Yield the ends of a terminal with 61 columns."""
    host, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 61, 0, 0))
    with os.fdopen(side, "w") as stream:
        yield stream
    os.close(host)


def test_terminal_has_its_own_width_and_colours(narrow: TextIO) -> None:
    assert Terminal.of(narrow, {}) == Terminal(61, has_colour=True)


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"COLUMNS": "90"}, Terminal(90, has_colour=True)),
        ({"COLUMNS": "wide"}, Terminal(61, has_colour=True)),
        ({"NO_COLOR": "1"}, Terminal(61)),
        ({"TERM": "dumb"}, Terminal(61)),
    ],
)
def test_environment_overrides_width_and_colours_of_the_terminal(
    narrow: TextIO, environment: dict[str, str], want: Terminal
) -> None:
    assert Terminal.of(narrow, environment) == want


def test_file_has_no_width_and_no_colours(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        assert Terminal.of(stream, {"COLUMNS": "90"}) == PLAIN
        assert Terminal.of(stream, {"FORCE_COLOR": "1"}) == Terminal(None, has_colour=True)


def test_text_is_folded_to_the_width_of_the_terminal() -> None:
    text = "some words that do not fit"
    assert PLAIN.wrapped(text, 2) == f"  {text}"
    assert Terminal(20).wrapped(text, 2, 4) == "  some words that do\n    not fit"
    assert (Terminal(200).at_most(110).width, PLAIN.at_most(110).width, Terminal(80).at_most(110).width) == (
        110,
        110,
        80,
    )


def test_styles_need_a_terminal_with_colours() -> None:
    assert PLAIN.heading("x") + PLAIN.alarming("y") == "xy"
    assert Terminal(80, has_colour=True).heading("x") == "\x1b[1mx\x1b[0m"
