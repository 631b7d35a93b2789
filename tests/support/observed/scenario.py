"""Plays one recorded scenario: setup, the scheduler, then each step until the recording is observed.

Called by `replay_observability`. A step ends when the observation agrees with the recording and nothing more
came for a while, or after the time limit. Then the step counts as equal or different.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_bench.versus.api import ApiClient
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.observed.agreement import first_difference, unstable_parts
from support.observed.audit import AuditLog
from support.observed.observing import Observer
from support.observed.playing import play, settle_policies, wipe

Json = dict[str, Any]
SHORTEST_STEP_S: Final = 2.5
QUIET_S: Final = 1.0
PATIENCE_S: Final = 12.0
_LOOK_EVERY_S: Final = 0.2
PROBE_DOCUMENT: Final = """\
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: Probe
  inProcess: support.probe_plugin:Probe
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An empty API server, and the settings for a scheduler that uses it."""

    api: ApiClient
    audit_log: Path
    kubeconfig: Path
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a scenario. `other_retries`: it agrees except for the number of retries of pods."""

    name: str
    difference: Json | None = None
    other_retries: bool = False
    seconds: float = 0.0


async def run(record: Json, stage: Stage, program: str, *, patience_s: float = PATIENCE_S) -> Outcome:
    """Play one scenario. A scheduler that does not start, or an operation that fails, is a difference.

    `patience_s`: how long a step may take until it is as recorded.
    """
    began_s = time.monotonic()
    await wipe(stage.api)
    scheduler = SchedulerProcess(_setup(record, stage, program), record["name"])
    try:
        difference, other_retries = await _played(record, stage, scheduler, patience_s)
    except Exception as err:  # noqa: BLE001 (the other scenarios go on; this one counts as different)
        difference, other_retries = {"problem": f"{type(err).__name__}: {err}"}, False
    finally:
        await scheduler.stop()
        # The next scenario does not delete the other kinds that this one used.
        steps = (operation for step in record["steps"] for operation in step["ops"])
        await wipe(stage.api, [*record.get("setup", ()), *steps])
    if difference is not None and scheduler.ended_with:
        difference = {**difference, "exit": scheduler.ended_with, "log": scheduler.last_lines(5)}
    seconds = round(time.monotonic() - began_s, 1)
    return Outcome(name=record["name"], difference=difference, other_retries=other_retries, seconds=seconds)


def _setup(record: Json, stage: Stage, program: str) -> SchedulerSetup:
    return SchedulerSetup(
        program=program,
        kubeconfig=stage.kubeconfig,
        folder=stage.folder,
        configuration=record["schedulerConfig"],
        more_documents=PROBE_DOCUMENT if record.get("plugin") == "Probe" else "",
    )


async def _played(
    record: Json, stage: Stage, scheduler: SchedulerProcess, patience_s: float
) -> tuple[Json | None, bool]:
    """Return the first difference, and whether there were other retries."""
    await play(stage.api, record["setup"])
    await settle_policies(stage.api, record["setup"])
    observer = Observer(stage.api, _from_now_on(stage.audit_log))
    await scheduler.start()
    await scheduler.ready()
    other_retries = False
    for number, (step, expected) in enumerate(zip(record["steps"], record["expected"], strict=True), 1):
        await play(stage.api, step["ops"])
        unstable = unstable_parts(record.get("secondRun", "same"), number)
        difference, others = await _settled(observer, expected, unstable, patience_s)
        other_retries |= others
        if difference is not None:
            return {"step": number, **difference}, other_retries
        observer.begin_step()
    return None, other_retries


def _from_now_on(path: Path) -> AuditLog:
    log = AuditLog(path)
    log.read()
    return log


async def _settled(
    observer: Observer, expected: Json, unstable: frozenset[str], patience_s: float
) -> tuple[Json | None, bool]:
    """Observe until all is as recorded, then a little longer, for traces that were not recorded."""
    began_s = time.monotonic()
    agreed_s: float | None = None
    while True:
        seen = await observer.look()
        now_s = time.monotonic()
        difference = first_difference(expected, seen, unstable=unstable)
        if difference is None and agreed_s is None:
            agreed_s = now_s
        if agreed_s is not None and now_s - agreed_s >= QUIET_S and now_s - began_s >= SHORTEST_STEP_S:
            if difference is None:
                return None, False
            seen["pods"] = expected["pods"]  # the pods agreed before; a later retry may have changed them
            break
        if agreed_s is None and now_s - began_s > patience_s:
            break
        await asyncio.sleep(_LOOK_EVERY_S)
    difference = first_difference(expected, seen, retries_count=False, unstable=unstable)
    return difference, difference is None
