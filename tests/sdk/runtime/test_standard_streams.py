"""Standard streams that the caller has closed, or that take no more; of both commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.manifest_objects import node_object, pod_object

FULL = (
    "the result cannot be written: No space left on device: free some space, or send the result elsewhere\n"
)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_simulation_runs_to_its_end_without_them(tmp_path: Path, closed: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node_object("a"), pod_object("web"), pod_object("huge", cpu="64")]))
    done = shell(f"{sys.executable} -m berth_host simulate -f {path} --fail-on-pending {closed}")
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    assert ("1 of 2 pods placed" in done.stdout) == (">&-" not in closed.split())


@pytest.mark.slow
def test_error_of_the_sdks_command_is_no_result_where_standard_error_is_closed() -> None:
    done = shell(f"{sys.executable} -m berth_sdk serve no_such:Plugin --listen 127.0.0.1:0 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.slow
def test_library_that_took_the_number_of_a_closed_stream_does_not_change_the_exit_code() -> None:
    taken = "import os; os.open(os.devnull, os.O_RDONLY); from berth_sdk.__main__ import main"
    run = "raise SystemExit(main(['serve', 'no_such:Plugin', '--listen', '127.0.0.1:0']))"
    done = shell(f'{sys.executable} -c "{taken}; {run}" 2>&-')
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("words", ["berth_host plugins", "berth_sdk completion bash", "berth_sdk --version"])
def test_full_disk_is_reported_with_the_cure(words: str) -> None:
    done = shell(f"{sys.executable} -m {words} >/dev/full")
    name = words.partition(" ")[0].removesuffix("_host").replace("_", "-")
    assert (done.returncode, done.stderr) == (1, f"{name}: {FULL}")


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("module", ["berth_host", "berth_sdk"])
def test_reader_that_has_read_enough_hears_no_complaint(module: str) -> None:
    done = shell(f"{sys.executable} -m {module} completion bash | :")
    assert done.stderr == ""
