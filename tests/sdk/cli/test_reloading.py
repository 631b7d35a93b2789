"""`berth-sdk serve --reload` starts again when a file of the plugins changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from berth_sdk.__main__ import build_parser
from berth_sdk.cli.reloading import stamps, watched, without_flag
from support.places import ROOT
from support.sdk_server import RawHost


@pytest.mark.slow
def test_changed_file_is_served_anew_also_after_an_error_in_it_and_the_old_plugin_is_closed(
    tmp_path: Path,
) -> None:
    plugin = tmp_path / "changing.py"
    text = (
        "import sys\n"
        "from berth_sdk import Plugin, Status\n"
        "class Changing(Plugin):\n"
        "    version = '{version}'\n"
        "    def filter(self, state, pod, node):\n"
        "        return Status.success()\n"
        "    def close(self):\n"
        "        print('closed', self.version, file=sys.stderr, flush=True)\n"
    )
    plugin.write_text(text.format(version="one"))
    socket = tmp_path / "p.sock"
    command = [sys.executable, "-m", "berth_sdk", "serve", "--reload", "changing:Changing"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "sdk"), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [*command, "--listen", f"unix:{socket}"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            _until(process.stderr, "serving Changing")
            host = RawHost(f"unix://{socket}")
            host.attach()
            host.close()
            plugin.write_text("not Python at all\n")
            _until(process.stderr, "closed one")
            _until(process.stderr, "waiting for a change")
            plugin.write_text(text.format(version="two, and longer"))
            _until(process.stderr, "serving Changing")
        finally:
            process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def heeded_hangup() -> Iterator[None]:
    """Let children heed SIGHUP, also where these tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("heeded_hangup")
def test_terminal_that_closes_ends_the_server_too(tmp_path: Path) -> None:
    (tmp_path / "closing.py").write_text(
        "from berth_sdk import Plugin, Status\n"
        "class Closing(Plugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return Status.success()\n"
    )
    command = [sys.executable, "-m", "berth_sdk", "serve", "--reload", "closing:Closing"]
    with subprocess.Popen(
        [*command, "--listen", f"unix:{tmp_path / 'p.sock'}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "sdk")},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            _until(process.stderr, "serving Closing")
            process.send_signal(signal.SIGHUP)
            _until(process.stderr, "stopping")
            assert process.wait(30) == 0
        finally:
            if process.poll() is None:
                process.kill()


def _until(lines: Iterable[str], word: str) -> None:
    """Read the lines until one has the word."""
    for line in lines:
        if word in line:
            return
    raise AssertionError(f"ended without {word!r}")


def test_files_of_a_package_are_watched_and_none_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "watched_one"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "rules.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    folders = watched(["watched_one.rules:Rule"])
    assert folders == {package}
    before = stamps(folders)
    assert sorted(Path(name).name for name in before) == ["__init__.py", "rules.py"]
    (package / "rules.py").write_text("changed")
    assert stamps(folders) != before


@pytest.mark.parametrize("flag", ["--reload", "--reloa", "--re", "--r"])
def test_child_does_not_reload_whichever_way_the_flag_was_written(flag: str) -> None:
    words = ["serve", "some:Rule", flag, "--listen", "unix:/run/p.sock"]
    assert build_parser().parse_args(words).reload
    child = without_flag(words)
    assert child == ["serve", "some:Rule", "--listen", "unix:/run/p.sock"]
    assert not build_parser().parse_args(child).reload


def test_plugin_that_nobody_has_has_no_files() -> None:
    assert watched(["no_such_module:Rule", "NoSuchPlugin"]) == set()
