"""Figures of /proc about other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from berth_bench.versus.processes import children, cpu_s, environment, first_thread_cpu_s, memory_mb

BUSY = "sum(range(20_000_000)); print('done', flush=True); input()"


def test_a_child_is_found_with_what_it_uses() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        assert child.pid in children(os.getpid())
        assert 0.05 < cpu_s(child.pid) < 30
        assert memory_mb(child.pid) >= memory_mb(child.pid, "VmRSS") > 1
        assert children(child.pid) == []
        child.kill()


def test_time_of_the_first_thread_is_without_that_of_the_others() -> None:
    work = "sum(range(20_000_000))"
    busy = f"import threading; t = threading.Thread(target=lambda: {work}); t.start(); t.join()"
    for code, is_first in ((work, True), (busy, False)):
        line = f"{code}; print('done', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"done\n"
            whole_s, first_s = cpu_s(child.pid), first_thread_cpu_s(child.pid)
            assert (first_s > whole_s - 0.04) == is_first, (first_s, whole_s)
            child.kill()


def test_ended_process_and_unknown_line_are_errors() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(OSError):
        cpu_s(child.pid)
    with pytest.raises(OSError):
        first_thread_cpu_s(child.pid)
    with pytest.raises(LookupError, match="VmMost"):
        memory_mb(os.getpid(), "VmMost")


def test_a_process_does_not_count_among_its_own_children() -> None:
    before = time.process_time()
    assert os.getpid() not in children(os.getpid())
    assert cpu_s(os.getpid()) >= before - 0.02


def test_python_of_another_environment_imports_nothing_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--other-berth`, an inherited PYTHONPATH would measure this berth against itself."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    asks = [sys.executable, "-S", "-c", "import sys; print(sys.path)"]
    found = {
        of_another: subprocess.run(
            asks, env=environment(of_another=of_another), capture_output=True, text=True, check=True
        ).stdout
        for of_another in (False, True)
    }
    assert "site-packages" in found[False]
    assert "site-packages" not in found[True]
