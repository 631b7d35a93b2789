"""Signals become events; the second TERM ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from berth_host.model.meaningless_signals import pass_over
from berth_host.process.signals import Signals
from support.waiting import PATIENCE_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_first_term_asks_the_process_to_stop_and_second_term_ends_it_at_once(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with Signals().heard() as signals:
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE_S):
            await signals.stopping.wait()
        assert codes == []

        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE_S):
            while not codes:
                await asyncio.sleep(0.01)
    assert codes == [1]


async def test_hup_sets_its_event_each_time() -> None:
    with Signals().heard() as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                await signals.reloading.wait()
            signals.reloading.clear()
    assert not signals.stopping.is_set()


async def test_usr2_asks_for_a_dump_each_time() -> None:
    with Signals().heard() as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR2)
            async with asyncio.timeout(PATIENCE_S):
                await signals.dumping.wait()
            signals.dumping.clear()
    assert not signals.stopping.is_set()


ENDING = {"SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL"}
CRASHES = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"}
HEARS = """
import asyncio, sys
from berth_host.process.signals import Signals
from berth_host.model.meaningless_signals import pass_over

async def main():
    with Signals().heard() as signals:
        print("ready", flush=True)
        await signals.stopping.wait()

asyncio.run(main())
"""


def test_only_documented_signals_end_the_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", HEARS], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        stops = {"SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
        for number in sorted(signal.valid_signals()):
            if getattr(number, "name", "") not in ENDING | CRASHES | stops:
                process.send_signal(number)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()


WHILE_IMPORTING = """
import os, signal, sys, types

def prepare_streams():
    for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGRTMIN"):
        os.kill(os.getpid(), getattr(signal, name))
    print("alive", flush=True)
    sys.exit(0)

imported_first = types.ModuleType("berth_sdk.runtime.standard_streams")
imported_first.prepare_streams = prepare_streams
sys.modules[imported_first.__name__] = imported_first

from berth_host import run

run(arguments=["scheduler"])
"""


def test_signals_do_not_end_a_scheduler_whose_modules_are_still_imported() -> None:
    command = [sys.executable, "-c", WHILE_IMPORTING]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (0, b"alive\n"), done.stderr


async def test_signals_do_not_end_a_scheduler_that_is_about_to_exit() -> None:
    before = pass_over([signal.SIGUSR2])
    try:
        with Signals().heard():
            pass
        os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
