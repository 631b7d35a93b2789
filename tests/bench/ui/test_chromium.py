"""The browser ends with its block, also where its command is a shell script that waits for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from berth_bench.ui import chromium

SCRIPT = """#!/bin/sh
for flag in "$@"; do case $flag in --user-data-dir=*) folder=${flag#*=};; esac; done
sleep 600 &
echo $! >"$KEPT"
printf '1\\n/devtools\\n' >"$folder/DevToolsActivePort"
wait
"""


def test_program_that_a_script_started_ends_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, kept = tmp_path / chromium.SHELL, tmp_path / "pid"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KEPT", str(kept))
    with chromium.chromium(shell_first=True) as address:
        assert address == "ws://127.0.0.1:1/devtools"
        program = int(kept.read_text())
        os.kill(program, 0)
    ends_s = time.monotonic() + 30
    while _runs(program):
        assert time.monotonic() < ends_s, "the program that the script started still runs"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return whether this process runs: one that ended and was not waited for by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
