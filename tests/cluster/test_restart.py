"""`berth bench restart` on real servers, small."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from berth_bench.versus.real_servers import missing_programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing_programs()), reason="needs `make envtest`"),
]
SIZE = ("--runs", "1", "--nodes", "3", "--running", "130", "--kills", "1")


def test_schedulers_start_on_the_running_pods_and_bind_one() -> None:
    command = [sys.executable, "-m", "berth_host", "bench", "restart", *SIZE, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["command"] == f"berth bench restart {' '.join(SIZE)}"
    assert 5000 < found["pod_bytes"] < 8000
    assert [one["contender"] for one in found["contenders"]] == ["berth", "kube-scheduler"]
    assert all(one["median"]["cpu_s"] > 0 for one in found["contenders"])
    assert all(len(one["take_overs"]) == 1 for one in found["contenders"])
