"""What is said of a plugin's exception: its author's last line, and the author's frames alone."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from berth_sdk.quantity import nano_value
from berth_sdk.runtime.raised import author_trace, author_traceback, place_of, raised_text

FAILS_EARLY = """
def read():
    raise KeyError("gpu")
try:
    read()
except KeyError as err:
    raise ValueError("no table") from err
"""
FILE = __name__.replace(".", "/") + ".py"


def caught(call: Callable[[], Any]) -> Exception:
    """Return the exception, as machinery catches it: the frames begin with this one."""
    try:
        call()
    except Exception as err:  # noqa: BLE001 (a plugin may raise anything)
        return err
    raise AssertionError("nothing was raised")


def missing() -> Any:
    nodes: dict[str, int] = {}
    return nodes["x"]


def from_file(trace: TracebackType | None, file: str) -> TracebackType | None:
    """Return the traceback from a file's first frame on; this file's own come before it, and are not
    installed.
    """
    while trace is not None and not trace.tb_frame.f_code.co_filename.endswith(file):
        trace = trace.tb_next
    return trace


def after(function: Callable[..., Any], lines: int) -> str:
    return f"{FILE}:{function.__code__.co_firstlineno + lines}"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write a module (`name` with dots, in `folder`) that can be imported, and is forgotten afterwards."""
    before = set(sys.modules)

    def written(name: str, text: str, folder: str = ".") -> Path:
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        path = tmp_path / folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    yield written
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_text_has_type_message_file_line_and_source() -> None:
    assert raised_text(caught(missing)) == f"KeyError: 'x' at {after(missing, 2)}: return nodes[\"x\"]"


def test_line_is_the_authors_that_called_a_library_not_the_librarys() -> None:
    def reads() -> Any:
        return json.loads("{")

    def counts() -> Any:
        return nano_value("many")

    assert place_of(caught(reads)) == f' at {after(reads, 1)}: return json.loads("{{")'
    assert place_of(caught(counts)) == f' at {after(counts, 1)}: return nano_value("many")'


def test_function_that_a_library_calls_back_is_the_authors() -> None:
    def fails(total: int, one: int) -> int:
        raise ValueError(one)

    text = raised_text(caught(lambda: functools.reduce(fails, [1, 2])))
    assert text == f"ValueError: 2 at {after(fails, 1)}: raise ValueError(one)"


def test_exception_without_a_line_of_the_authors_has_no_place() -> None:
    err = LookupError()
    assert (raised_text(err), place_of(err), author_traceback(err)) == ("LookupError", "", "")
    assert author_trace(err) is None


def test_installed_library_is_left_out_and_an_installed_plugin_is_not(module: Callable[..., Path]) -> None:
    site = "lib/site-packages"
    module("some_library", "def check(value):\n    raise ValueError(value)\n", site)
    module("their_plugins.gpu", "import some_library\ndef ask():\n    some_library.check(3)\n", site)
    module("their_plugins.__init__", "", site)
    gpu = importlib.import_module("their_plugins.gpu")
    err = caught(gpu.ask)
    err.__traceback__ = from_file(err.__traceback__, "gpu.py")
    assert raised_text(err) == "ValueError: 3 at their_plugins/gpu.py:3: some_library.check(3)"


def test_syntax_error_has_the_place_that_python_names(module: Callable[..., Path]) -> None:
    module("unreadable", "x = 1\ndef f(:\n")
    err = caught(lambda: importlib.import_module("unreadable"))
    assert "at unreadable.py:2: def f(:" in raised_text(err)


def test_long_messages_and_lines_are_cut_so_that_the_place_stays() -> None:
    def wordy() -> None:
        raise ValueError("x" * 10_000)

    text = raised_text(caught(wordy))
    assert len(text) < 600
    assert text.endswith(f'... at {after(wordy, 1)}: raise ValueError("x" * 10_000)')


def test_traceback_has_the_authors_frames_alone_and_those_of_the_cause(module: Callable[..., Path]) -> None:
    module("fails_early", FAILS_EARLY)
    err = caught(lambda: importlib.import_module("fails_early"))
    shown = author_traceback(err)
    assert "<frozen importlib" not in shown
    assert "importlib/__init__" not in shown
    assert shown.count("Traceback (most recent call last):") == 2
    assert "KeyError: 'gpu'" in shown
    assert shown.rstrip().endswith("ValueError: no table")


def test_trace_begins_with_the_authors_first_frame() -> None:
    def fails() -> None:
        missing()

    err = caught(functools.partial(functools.reduce, lambda total, one: fails(), [1, 2]))
    trace = author_trace(err)
    assert trace is not None
    assert trace.tb_frame.f_code.co_filename == __file__
