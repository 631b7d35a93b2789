"""Standard streams that the caller has closed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.manifest_objects import node_object, pod_object

from .conftest import Write


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_simulation_runs_to_its_end_without_them(write: Write, closed: str) -> None:
    path = write(node_object("a"), pod_object("web"), pod_object("huge", cpu="64"))
    command = f"{sys.executable} -m berth_host simulate -f {path} --fail-on-pending {closed}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    assert ("1 of 2 pods placed" in done.stdout) == (">&-" not in closed.split())
