"""Which failures are the instance's own, and what they lead to."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest
from berth_host.errors.plugins import (
    BudgetSpentError,
    CircuitOpenError,
    CycleRestartError,
    HostFaultError,
    PluginError,
    PluginExceptionError,
    PluginOverloadedError,
    PluginProtocolError,
    PluginRaisedError,
    PluginStaleError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.rpc.breaker import IN_A_ROW, BreakerState
from berth_host.rpc.calls import FILTER, PRE_BIND, SCORE, SIMULATE_FILTER, UNRESERVE
from berth_host.rpc.failure_record import DRIFTS, VIOLATIONS, FailureRecord, Strikes
from berth_sdk.extension_points import ExtensionPoint

OWN = (
    PluginUnavailableError("P", "Filter", "is gone"),
    PluginTimeoutError("P", "Filter", 0.25),
    PluginOverloadedError("P", "Filter", "has no room"),
    PluginRaisedError("P", "Filter", "broke"),
    PluginProtocolError("P", "Filter", "names no node"),
)
NOT_OWN = (
    PluginTimeoutError("P", "Filter", 0.01, of_budget=True, others_spent=True),
    BudgetSpentError("P", "Filter", 1.0),
    HostFaultError("P", "Filter", "sent nonsense"),
    PluginStaleError("P", "Filter", "has another state"),
    CycleRestartError("P", "lost its state"),
    asyncio.CancelledError(),
)


class Time:
    """Monotonic seconds that stand still."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def conduct(time: Time, changes: list[str]) -> FailureRecord:
    found = FailureRecord("P", lambda: changes.append(found.complaint), time)
    return found


def fail(conduct: FailureRecord, failure: BaseException, times: int = IN_A_ROW) -> None:
    for _ in range(times):
        with pytest.raises(type(failure)), conduct.watched(FILTER):
            raise failure


@pytest.mark.parametrize("failure", OWN, ids=lambda error: type(error).__name__)
def test_failures_of_the_instance_open_the_circuit(conduct: FailureRecord, failure: PluginError) -> None:
    fail(conduct, failure)
    assert conduct.breakers[ExtensionPoint.FILTER].state is BreakerState.OPEN
    with pytest.raises(CircuitOpenError, match="is not asked until") as refused, conduct.watched(FILTER):
        raise AssertionError("it was asked")
    assert failure.detail in refused.value.text
    assert not refused.value.outcome_unknown


def test_exception_of_the_plugin_is_told_in_a_whole_sentence(conduct: FailureRecord) -> None:
    fail(conduct, PluginExceptionError("P", "Score", "ValueError: no price at p.py:3"))
    with pytest.raises(CircuitOpenError) as refused, conduct.watched(FILTER):
        raise AssertionError("it was asked")
    assert refused.value.text == (
        'plugin "P" is not asked until it is well again (it failed: ValueError: no price at p.py:3) at Filter'
    )
    assert conduct.complaint == "is not asked at filter: failed: ValueError: no price at p.py:3"


@pytest.mark.parametrize("failure", NOT_OWN, ids=lambda error: type(error).__name__)
def test_failures_of_others_do_not(conduct: FailureRecord, failure: BaseException) -> None:
    fail(conduct, failure, 3 * IN_A_ROW)
    assert conduct.complaint == ""


def test_each_point_has_a_circuit_of_its_own_and_what_is_of_one_point_shares_it(
    conduct: FailureRecord,
) -> None:
    fail(conduct, OWN[0])
    with conduct.watched(SCORE):
        pass
    with pytest.raises(CircuitOpenError), conduct.watched(SIMULATE_FILTER):
        pass
    assert conduct.complaint == "is not asked at filter: is gone"


def test_what_a_plugin_must_hear_of_and_further_rounds_are_sent_all_the_same(conduct: FailureRecord) -> None:
    conduct.missed("did not answer 3 probes")
    with conduct.watched(UNRESERVE):
        pass
    with conduct.watched(PRE_BIND, begun=True):
        pass
    with pytest.raises(CircuitOpenError, match="did not answer 3 probes"), conduct.watched(PRE_BIND):
        pass


def test_answer_that_came_early_closes_the_circuit_of_its_point(conduct: FailureRecord, time: Time) -> None:
    fail(conduct, OWN[0])
    conduct.answered(FILTER)
    assert conduct.breakers[ExtensionPoint.FILTER].state is BreakerState.OPEN
    time.now_s += 1
    conduct.probed()
    conduct.answered(SCORE)
    conduct.answered(FILTER)
    assert conduct.complaint == ""


@pytest.mark.parametrize("end", [None, OWN[0], asyncio.CancelledError()])
def test_a_call_begun_before_the_circuit_opened_is_not_its_trial(
    conduct: FailureRecord, time: Time, end: BaseException | None
) -> None:
    with pytest.raises(type(end)) if end is not None else nullcontext(), conduct.watched(FILTER):
        fail(conduct, OWN[0])
        time.now_s += 1
        conduct.probed()
        trial = conduct.watched(FILTER)
        trial.__enter__()
        if end is not None:
            raise end
    assert conduct.breakers[ExtensionPoint.FILTER].state is BreakerState.HALF_OPEN
    with pytest.raises(CircuitOpenError), conduct.watched(FILTER):
        raise AssertionError("the trial is under way, and another one was let through")
    trial.__exit__(None, None, None)
    assert conduct.complaint == ""


def test_silence_ends_with_a_probe(conduct: FailureRecord, changes: list[str]) -> None:
    conduct.missed("did not answer 3 probes")
    conduct.missed("did not answer 4 probes")
    conduct.probed()
    assert changes == ["did not answer 3 probes", ""]
    with conduct.watched(FILTER):
        pass


def test_three_violations_within_a_minute_are_the_end(conduct: FailureRecord, time: Time) -> None:
    for _ in range(VIOLATIONS - 1):
        conduct.violated("scores of 1000 at Score")
    time.now_s += 61
    conduct.violated("scores of 1000 at Score")
    assert not conduct.quarantine
    conduct.violated("scores of 1000 at Score")
    conduct.violated("scores of 1000 at Score")
    assert "broke the contract 3 times within 60 s, last: scores of 1000 at Score" in conduct.quarantine
    conduct.probed()
    with pytest.raises(CircuitOpenError), conduct.watched(FILTER):
        pass


def test_three_drifts_within_an_hour_are_the_end(conduct: FailureRecord, time: Time) -> None:
    conduct.drifted()
    time.now_s += 3601
    for _ in range(DRIFTS - 1):
        conduct.drifted()
    assert not conduct.quarantine
    conduct.drifted()
    assert "lost its copy of the cluster's state 3 times within 60 minutes" in conduct.quarantine


def test_earliest_trial_of_any_point_counts(conduct: FailureRecord, time: Time) -> None:
    assert conduct.next_trial_s is None
    fail(conduct, OWN[0])
    time.now_s += 0.5
    for _ in range(IN_A_ROW):
        with pytest.raises(PluginError), conduct.watched(SCORE):
            raise OWN[1]
    assert conduct.next_trial_s == time.now_s + 0.5
    assert conduct.opened == 1


def test_a_point_is_refused_while_its_breaker_is_open_and_every_point_in_silence(
    conduct: FailureRecord, time: Time
) -> None:
    assert not conduct.refuses(ExtensionPoint.FILTER)
    fail(conduct, OWN[1])
    assert conduct.refuses(ExtensionPoint.FILTER)
    assert not conduct.refuses(ExtensionPoint.SCORE)
    trial_s = conduct.next_trial_s
    assert trial_s is not None
    time.now_s = trial_s
    conduct.probed()
    assert not conduct.refuses(ExtensionPoint.FILTER)  # one call is tried
    conduct.missed("did not answer 3 probes")
    assert conduct.refuses(ExtensionPoint.SCORE)


def test_only_those_within_the_time_count() -> None:
    now_s = 0.0
    strikes = Strikes(3, 60.0, lambda: now_s)
    seen = []
    for now_s in (0.0, 10.0, 60.5, 69.9, 70.6, 200.0):  # noqa: B007  # the clock reads it
        seen.append(strikes.again())
    assert seen == [False, False, False, True, True, False]


def test_all_at_once_are_too_many() -> None:
    strikes = Strikes(2, 0.0, lambda: 5.0)
    assert [strikes.again() for _ in range(3)] == [False, True, True]
