"""The host writes and says what kube-scheduler wrote and said in the recorded scenarios.

On the embedded cluster, without Events as objects; against a real API server in `tests/cluster`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from berth_host.model.patch_type import PatchType
from support.embedded_scenarios import EmbeddedScenario, comparable, comparable_event, recorded
from support.observed.agreement import first_difference, unstable_parts

Json = dict[str, Any]
SCENARIOS: Final[dict[str, Json]] = {scenario["name"]: scenario for scenario in recorded()}
NOT_PLAYED: Final = {
    "leader-election": "needs the Lease of a real API server",
    "plugin-permit-allowed-later": "Probe decides after half a second of real time",
    "plugin-permit-rejected-later": "Probe decides after half a second of real time",
    "pre-bind-refused-by-admission": "needs the admission policies of a real API server",
    "plugin-bind-success-without-binding": "a binder that claims success is believed for ten seconds",
}
HOW_FAR_IS_CHANCE: Final = {"plugin-permit-timeout": frozenset({"pods", "writes"})}
"""The waits of a second and the observation end at about the same time."""
PLAYED: Final = [name for name in SCENARIOS if name not in NOT_PLAYED]


def expected(observation: Json) -> Json:
    """Return the part of a recorded observation that the port has."""
    writes = [write for write in observation["writes"] if write["resource"] not in ("events", "leases")]
    return {
        "pods": observation["pods"],
        "events": [comparable_event(event) for event in observation["events"]],
        "writes": [comparable(write) for write in writes],
    }


def without_failures(observation: Json) -> Json:
    """Return an observation without FailedScheduling events."""
    events = [event for event in observation["events"] if event["reason"] != "FailedScheduling"]
    return {**observation, "events": events}


def test_at_least_61_recorded_scenarios_are_played() -> None:
    assert NOT_PLAYED.keys() <= SCENARIOS.keys()
    assert len(PLAYED) >= 61


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
async def test_writes_of_a_scenario_equal_those_of_kube_scheduler(name: str) -> None:
    scenario = SCENARIOS[name]
    played = EmbeddedScenario(scenario)
    observed = await played.steps()
    in_series = False
    for step, (want, seen) in enumerate(zip(scenario["expected"], observed, strict=True), start=1):
        wanted, have = expected(want), seen
        unstable = unstable_parts(scenario["secondRun"], step) | HOW_FAR_IS_CHANCE.get(name, frozenset())
        # From then on a client that collapses repetitions into a series tells of some of them alone.
        in_series = in_series or any("series" in event for event in want["events"])
        if in_series:
            wanted, have = without_failures(wanted), without_failures(have)
        difference = first_difference(wanted, have, retries_count=False, unstable=unstable)
        assert difference is None, f"step {step}: {difference}"
    assert played.cluster.patch_types <= {PatchType.STRATEGIC}
