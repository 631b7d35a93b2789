"""`berth bench soak` as a user runs it: two minutes, or BERTH_SOAK_MINUTES."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from berth_host.cli.main import berth
from click.testing import CliRunner
from support.waiting import PATIENCE_S, until

MINUTES = os.environ.get("BERTH_SOAK_MINUTES", "2")


@pytest.mark.slow
@pytest.mark.long
def test_soak_ends_without_problems() -> None:
    """The host, four plugins and the cluster's connections fail again and again, and nothing is lost."""
    command = ["bench", "soak", "--minutes", MINUTES, "--seed", "7", "-o", "json"]
    result = subprocess.run(
        [sys.executable, "-m", "berth_host", *command], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, (result.stdout, result.stderr)
    account = json.loads(result.stdout)
    assert account["seed"] == 7
    assert account["bound"] > 100
    # The misfortunes did befall them.
    kinds = ("killed", "hung", "slowed", "invalid", "upgraded", "cluster_cut", "host_killed")
    assert all(account["kills"][kind] for kind in kinds), account["kills"]
    zero = ("lost_pods", "over_committed_nodes", "leaked_reservations", "double_binds", "leaked_tasks")
    assert [account[name] for name in (*zero, "leaked_fds", "pending")] == [0] * 7


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(berth, ["bench", "soak", "--keep", str(tmp_path / "file" / "in-it")])
    assert result.exit_code == 2
    assert "file/in-it: Not a directory" in result.output


def test_process_to_stop_needs_a_kubeconfig() -> None:
    command = ["bench", "soak", "--api-server-pid", "4711"]
    result = CliRunner().invoke(berth, command)
    assert result.exit_code == 2
    assert "--api-server-pid needs --kubeconfig: give both" in result.output


@pytest.mark.long
@pytest.mark.slow
async def test_terminated_soak_ends_its_processes(tmp_path: Path) -> None:
    command = ["bench", "soak", "--minutes", "5", "--nodes", "10", "--keep", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "berth_host", *command), stderr=asyncio.subprocess.PIPE
    )
    try:
        # Four plugins and the host.
        await until(lambda: len(running(tmp_path)) >= 6)
        process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 143
    assert said.decode().splitlines()[-1] == "berth bench soak: ended by SIGTERM"
    assert running(tmp_path) == []


def running(folder: Path) -> list[str]:
    """Return the command lines of processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]
