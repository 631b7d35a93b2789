"""Records a scenario with an HTTP extender: plays it with kube-scheduler, and keeps what it observes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from berth_bench.versus.real_servers import program
from support.observed.extender_trial import ExtenderTrial, extender_of, extender_trial
from support.observed.scenario import run
from support.observed.scripted_extender import ScriptedExtender
from support.observed.trial import Stage, Trial

Json = dict[str, Any]


async def record(draft: Json, stage: Stage) -> Json:
    """Return the recording of a scenario. Raises RuntimeError for one that cannot be played.

    `draft`: a scenario with `answers` in the place of `expected` (tests/cluster/record_extender.py).
    """
    kube_scheduler = str(program("kube-scheduler"))
    scenario = {key: item for key, item in draft.items() if key != "answers"}
    played = {**scenario, "expected": [_unseen(answers) for answers in draft["answers"]]}
    observations: dict[int, Json] = {}

    @asynccontextmanager
    async def recording_trial(_: Json, where: Stage) -> AsyncIterator[Trial]:
        async with extender_of(played, where) as extender:
            yield _RecordingTrial(played, extender, observations)

    outcome = await run(played, stage, kube_scheduler, trials=recording_trial)
    if outcome.difference is not None:
        raise RuntimeError(str(outcome.difference["problem"]))
    scenario["expected"] = [observations[number] for number in sorted(observations)]
    again = await run(scenario, stage, kube_scheduler, trials=extender_trial)
    if again.difference is None:
        return {**scenario, "secondRun": "same"}
    if "part" not in again.difference:
        raise RuntimeError(f"the second run: {again.difference['problem']}")
    different = {key: again.difference[key] for key in ("step", "part")}
    return {**scenario, "secondRun": [different]}


def _unseen(answers: list[Json]) -> Json:
    """Return the observation of a step of which the answers of the extender are all that is known."""
    calls = [{**answer, "request": {"path": answer["path"], "body": {}}} for answer in answers]
    return {"calls": calls, "pods": {}, "events": [], "writes": []}


class _RecordingTrial(ExtenderTrial):
    """A trial that agrees with everything, and keeps the last observation of each step."""

    def __init__(self, draft: Json, extender: ScriptedExtender, observations: dict[int, Json]) -> None:
        super().__init__(draft, extender)
        self._observations = observations

    async def seen(self, observation: Json, number: int) -> Json:
        """Return the observation in the form of the recordings."""
        seen = await super().seen(observation, number)
        calls = [
            {
                "request": call.request,
                "response": call.response,
                **({"sideEffect": call.side_effect} if call.side_effect else {}),
            }
            for call in seen["calls"]
        ]
        self._observations[number] = {
            "calls": calls,
            **{key: item for key, item in seen.items() if key not in ("calls", "problems")},
        }
        return seen

    def difference(
        self, number: int, seen: Json, *, retries_count: bool, unstable: frozenset[str]
    ) -> Json | None:
        """Return None, or the side effect that failed."""
        return {"problem": seen["problems"][0]} if seen["problems"] else None
