"""Whole lives: calm and hell keep the laws, and a host with a fault breaks them."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from berth_bench.life.life import Result, live
from berth_bench.life.weights import Weights
from berth_host import log
from berth_host.app import Host
from berth_host.cycle.attempt import Attempt
from berth_host.cycle.schedule_one import BindingCycle
from berth_host.handle.server import HandleServer
from berth_host.queue.in_flight import InFlight
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.scheduling_queue import SchedulingQueue

SHORT_DAYS = 0.003
SERVED_SEED = 4
"""The seed of a life with a served plugin."""
FOUND = {
    (25, 0.02): "a read-back whose time was rounded to a moment early was repeated without end",
    (57, 0.02): "a pod that was deleted while its attempt was undone kept its reservation",
    (602, 0.01): "a new process of a plugin was given the reservation of a pod whose PostBind was over",
    (617, 0.01): "the served plugin of a calm world answered later than the deadline of a reload",
    (625, 0.01): "the served plugin of a calm world answered later than the deadline of a reload",
    (628, 0.01): "an Unreserve after the stop of a host without the Lease set the timer of old reservations",
    (3003, 0.02): "an Unreserve after the stop of a host without the Lease set the timer of old reservations",
}
"""Seeds and days of lives with one host that broke a law once, and why."""
FOUND_WITH_TWO_HOSTS = {
    (6000, 0.005): "a plugin that could not answer PreEnqueue was asked again after the stop of the host",
    (5031, 0.01): "a host that lost the Lease while it caught up with its watches left a task behind",
}
"""The same of lives with two hosts."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log.configure("CRITICAL")
    yield
    log.configure("INFO")


def first_broken(seeds: range) -> Result:
    for seed in seeds:
        result = live(seed, 0.01, keeps_trace=False)
        if result.broken:
            return result
    raise AssertionError(f"no life of {seeds} broke a law")


@pytest.mark.parametrize(("hosts", "told"), [(1, ""), (2, " with two hosts")])
def test_short_life_keeps_the_laws_and_does_something(hosts: int, told: str) -> None:
    result = live(1, SHORT_DAYS, hosts=hosts)
    assert result.broken == ""
    assert result.bound > 0
    assert result.acts > 0
    assert result.hours > SHORT_DAYS * 24
    assert result.trace_lines == len(result.lines)
    assert result.lines[0].startswith(f"0.000000 life 1 of 0.003 days{told} Weights(mood=")


def test_host_of_a_life_opens_no_socket_for_served_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opens(self: HandleServer) -> None:
        raise AssertionError("a socket of this machine decides what happens")

    monkeypatch.setattr(HandleServer, "start", opens)
    assert Weights.drawn(random.Random(SERVED_SEED)).served is not None
    assert live(SERVED_SEED, 0.0001, hosts=1, keeps_trace=False).broken == ""


@pytest.mark.long
@pytest.mark.parametrize(("seed", "days"), FOUND)
def test_life_that_found_a_fault_keeps_the_laws_now(seed: int, days: float) -> None:
    assert live(seed, days, hosts=1, keeps_trace=False).broken == ""


@pytest.mark.long
@pytest.mark.parametrize(("seed", "days"), FOUND_WITH_TWO_HOSTS)
def test_life_of_two_hosts_that_found_a_fault_keeps_the_laws_now(seed: int, days: float) -> None:
    assert live(seed, days, hosts=2, keeps_trace=False).broken == ""


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_drawn_lives_keep_the_laws(first: int) -> None:
    results = [live(seed, 0.01, keeps_trace=False) for seed in range(first, first + 25)]
    assert [(one.seed, one.broken) for one in results if one.broken] == []
    assert {"calm", "mixed", "hell"} == {one.mood for one in results}
    assert {1, 2} == {one.hosts for one in results}
    assert sum(one.faults for one in results) > 0


@pytest.mark.long
@pytest.mark.parametrize("hosts", ["1", "2"])
def test_trace_is_the_same_to_the_byte_whatever_the_hash_seed(hosts: str, tmp_path: Path) -> None:
    files = []
    for hash_seed in ("0", "1", "4242"):
        files.append(tmp_path / hash_seed)
        command = [sys.executable, "-m", "berth_host", "bench", "life", "--seed", "3", "--days", "0.01"]
        command += ["--hosts", hosts]
        subprocess.run(
            [*command, "--trace", str(files[-1])],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            timeout=300,
        )
    texts = {file.read_bytes() for file in files}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) > 300


async def _no_unreserve(self: BindingCycle, attempt: Attempt, reason: str) -> None:
    attempt.framework.waiting_pods.discard(attempt.pod.uid)


def _loses_a_pod(self: SchedulingQueue, info: QueuedPodInfo, **more: Any) -> bool:
    self.in_flight.end(info.uid)
    return False


async def _leaves_a_task(self: Host) -> None:
    self.left_task = asyncio.ensure_future(asyncio.sleep(10**9))  # type: ignore[attr-defined]
    await ORIGINAL_STOP(self)


ORIGINAL_STOP = Host.stop


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "mutant", "law"),
    [
        pytest.param(BindingCycle, "unreserve", _no_unreserve, "reservations", id="no Unreserve"),
        pytest.param(SchedulingQueue, "add_unschedulable", _loses_a_pod, "got no node", id="lost pod"),
        pytest.param(Host, "stop", _leaves_a_task, "tasks of a host that has stopped", id="task left"),
        pytest.param(InFlight, "end", lambda self, uid: None, "got no node", id="in flight for ever"),
    ],
)
def test_host_with_a_fault_breaks_a_law(
    owner: type, name: str, mutant: Any, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert law in first_broken(range(8)).broken
