"""Plays one recorded scenario: setup, the scheduler, then each step until the recording is observed.

A step ends when the observation agrees with the recording and nothing more
came for a while, or after the time limit. Then the step counts as equal or different.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.emulated_version import OLDEST
from support.observed.agreement import unstable_parts
from support.observed.audit import AuditLog
from support.observed.observing import Observer
from support.observed.playing import play, settle_policies, wipe
from support.observed.trial import Stage, Trial, Trials, observability_trial

Json = dict[str, Any]
PATIENCE_S: Final = 20.0
BERTH: Final = "berth"
"""The program that is berth; any other one is the path of a kube-scheduler."""
_LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a scenario. `other_retries`: it agrees except for the number of retries of pods."""

    name: str
    difference: Json | None = None
    other_retries: bool = False
    seconds: float = 0.0


async def run(
    record: Json,
    stage: Stage,
    program: str,
    *,
    trials: Trials = observability_trial,
    patience_s: float = PATIENCE_S,
    emulated_version: str = OLDEST,
) -> Outcome:
    """Play one scenario. A scheduler that does not start, or an operation that fails, is a difference.

    `trials`: for this kind of recording. `patience_s`: how long a step may take until it is as recorded.
    `emulated_version`: the version that berth decides as; empty: no emulation.
    """
    began_s = time.monotonic()
    await wipe(stage.api)
    try:
        async with trials(record, stage) as trial:
            difference, other_retries = await _with_scheduler(
                record, stage, program, trial, patience_s, emulated_version
            )
    except Exception as err:  # noqa: BLE001 (the other scenarios go on; this one counts as different)
        difference, other_retries = {"problem": f"{type(err).__name__}: {err}"}, False
    finally:
        # The next scenario does not delete the other kinds that this one used.
        steps = (operation for step in record["steps"] for operation in step["ops"])
        await wipe(stage.api, [*record.get("setup", ()), *steps])
    seconds = round(time.monotonic() - began_s, 1)
    return Outcome(name=record["name"], difference=difference, other_retries=other_retries, seconds=seconds)


async def _with_scheduler(
    record: Json, stage: Stage, program: str, trial: Trial, patience_s: float, emulated_version: str
) -> tuple[Json | None, bool]:
    """Play the scenario with a scheduler process; return the first difference, and whether retries differ."""
    setup = SchedulerSetup(
        program=program,
        kubeconfig=stage.kubeconfig,
        folder=stage.folder,
        configuration=trial.configuration,
        more_documents=trial.more_documents,
        flags=(f"--emulated-version={emulated_version}",) if program == BERTH and emulated_version else (),
    )
    scheduler = SchedulerProcess(setup, record["name"])
    try:
        difference, other_retries = await _played(record, stage, scheduler, trial, patience_s)
    except Exception as err:  # noqa: BLE001 (as in `run`)
        difference, other_retries = {"problem": f"{type(err).__name__}: {err}"}, False
    finally:
        await scheduler.stop()
    if difference is not None and scheduler.ended_with:
        difference = {**difference, "exit": scheduler.ended_with, "log": scheduler.last_lines(5)}
    return difference, other_retries


async def _played(
    record: Json, stage: Stage, scheduler: SchedulerProcess, trial: Trial, patience_s: float
) -> tuple[Json | None, bool]:
    """Return the first difference, and whether there were other retries."""
    if len(record["steps"]) != len(record["expected"]):
        raise ValueError(f"{len(record['steps'])} steps, but {len(record['expected'])} observations of them")
    await play(stage.api, record["setup"])
    await settle_policies(stage.api, record["setup"])
    observer = Observer(stage.api, _from_now_on(stage.audit_log), trial.mask)
    await trial.begin_step(1)
    await scheduler.start()
    await scheduler.ready()
    other_retries = False
    for number, step in enumerate(record["steps"], 1):
        if number > 1:
            observer.begin_step()
            await trial.begin_step(number)
        await play(stage.api, step["ops"])
        unstable = unstable_parts(record.get("secondRun", "same"), number)
        difference, others = await _settled(observer, trial, number, unstable, patience_s)
        other_retries |= others
        if difference is not None:
            return {"step": number, **difference}, other_retries
    return None, other_retries


def _from_now_on(path: Path) -> AuditLog:
    log = AuditLog(path)
    log.read()
    return log


async def _settled(
    observer: Observer, trial: Trial, number: int, unstable: frozenset[str], patience_s: float
) -> tuple[Json | None, bool]:
    """Observe until all is as recorded, then a little longer, for traces that were not recorded."""
    began_s = time.monotonic()
    agreed_s: float | None = None
    pods: Json = {}
    while True:
        seen = await trial.seen(await observer.look(), number)
        now_s = time.monotonic()
        difference = trial.difference(number, seen, retries_count=True, unstable=unstable)
        if difference is None and agreed_s is None:
            agreed_s, pods = now_s, seen["pods"]
        settled = agreed_s is not None and now_s - agreed_s >= trial.pace.quiet_s
        if settled and now_s - began_s >= trial.pace.shortest_s:
            if difference is None:
                return None, False
            seen["pods"] = pods  # the pods agreed before; a later retry may have changed them
            break
        if agreed_s is None and now_s - began_s > patience_s:
            break
        await asyncio.sleep(_LOOK_EVERY_S)
    difference = trial.difference(number, seen, retries_count=False, unstable=unstable)
    return difference, difference is None
