"""`berth bench two-schedulers` on real servers, small."""

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
SIZE = ("--nodes", "4", "--places", "40", "--pods", "56")


def test_parted_nodes_are_not_over_committed_and_shared_ones_are_counted() -> None:
    command = [sys.executable, "-m", "berth_host", "bench", "two-schedulers", "parted", "kube-berth", *SIZE]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    parted, shared = map(json.loads, done.stdout.splitlines())
    assert (parted["bound"], parted["too_many"], parted["overfull_nodes"]) == (40, 0, 0)
    assert 40 <= shared["bound"] <= 56
    assert shared["bound"] == 40 + shared["too_many"]
    assert parted["command"] == f"berth bench two-schedulers parted {' '.join(SIZE)} --rate 0"
