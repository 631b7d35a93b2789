"""The circuit breaker: when it opens, when a call is tried, and what closes it."""

from __future__ import annotations

import pytest
from berth_host.rpc.breaker import ENOUGH_CALLS, IN_A_ROW, MAX_PAUSE_S, Breaker, BreakerState
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule


class Time:
    """Monotonic seconds that stand still."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(lambda: None, time)


def opened(breaker: Breaker) -> Breaker:
    for _ in range(IN_A_ROW):
        assert breaker.admits()
        breaker.failed("did not answer")
    assert state_of(breaker) is BreakerState.OPEN
    return breaker


def state_of(breaker: Breaker) -> BreakerState:
    """Read anew: a type checker takes an attribute for unchanged."""
    return breaker.state


def test_failures_in_a_row_open_it_and_one_answer_in_between_does_not(breaker: Breaker) -> None:
    for _ in range(IN_A_ROW - 1):
        breaker.failed("did not answer")
    breaker.succeeded()
    for _ in range(IN_A_ROW - 1):
        breaker.failed("did not answer")
    assert state_of(breaker) is BreakerState.CLOSED
    breaker.failed("did not answer")
    assert state_of(breaker) is BreakerState.OPEN
    assert not breaker.admits()
    assert breaker.last_failure == "did not answer"


def test_half_of_many_calls_open_it(breaker: Breaker) -> None:
    for _ in range(ENOUGH_CALLS // 2 - 1):
        breaker.succeeded()
        breaker.failed("broke")
    breaker.succeeded()
    assert state_of(breaker) is BreakerState.CLOSED
    breaker.failed("broke")
    assert state_of(breaker) is BreakerState.OPEN


def test_calls_of_long_ago_do_not_count(breaker: Breaker, time: Time) -> None:
    for _ in range(ENOUGH_CALLS // 2 - 1):
        breaker.succeeded()
        breaker.failed("broke")
    time.now_s += 11
    breaker.succeeded()
    breaker.failed("broke")
    assert state_of(breaker) is BreakerState.CLOSED


def test_probe_makes_way_for_one_call_once_the_pause_is_over(breaker: Breaker, time: Time) -> None:
    opened(breaker)
    breaker.probed()
    assert not breaker.admits()
    assert breaker.next_trial_s == time.now_s + 1
    time.now_s += 1
    assert not breaker.admits()
    breaker.probed()
    assert breaker.admits()
    assert not breaker.admits()
    breaker.succeeded()
    assert state_of(breaker) is BreakerState.CLOSED
    assert breaker.admits()


def test_trial_that_came_to_nothing_makes_way_for_another(breaker: Breaker, time: Time) -> None:
    opened(breaker)
    time.now_s += 1
    breaker.probed()
    assert breaker.admits()
    breaker.came_to_nothing()
    assert state_of(breaker) is BreakerState.HALF_OPEN
    assert breaker.admits()


def test_pause_doubles_up_to_its_bound_and_begins_anew_after_an_answer(breaker: Breaker, time: Time) -> None:
    opened(breaker)
    pauses_s = []
    for _ in range(7):
        next_s = breaker.next_trial_s
        assert next_s is not None
        pauses_s.append(next_s - time.now_s)
        time.now_s = next_s
        breaker.probed()
        assert breaker.admits()
        breaker.failed("did not answer")
    assert pauses_s == [1, 2, 4, 8, 16, MAX_PAUSE_S, MAX_PAUSE_S]
    time.now_s += MAX_PAUSE_S
    breaker.probed()
    assert breaker.admits()
    breaker.succeeded()
    opened(breaker)
    assert breaker.next_trial_s == time.now_s + 1


class BreakerMachine(RuleBasedStateMachine):
    """Calls that overlap, probes and time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.changes = 0
        self.breaker = Breaker(self._changed, self.time)
        self.open_calls = 0
        self.since_opened_s = 0.0

    def _changed(self) -> None:
        self.changes += 1
        if self.breaker.state is BreakerState.OPEN:
            self.since_opened_s = self.time.now_s

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.time.now_s += seconds

    @rule()
    def call_begins(self) -> None:
        before = self.breaker.state
        if self.breaker.admits():
            self.open_calls += 1
            assert before is not BreakerState.OPEN

    @precondition(lambda self: self.open_calls)
    @rule(end=st.sampled_from(["succeeded", "failed", "nothing"]))
    def call_ends(self, end: str) -> None:
        self.open_calls -= 1
        was_open = self.breaker.state is BreakerState.OPEN
        if end == "failed":
            self.breaker.failed("broke")
        elif end == "succeeded":
            self.breaker.succeeded()
        else:
            self.breaker.came_to_nothing()
        # A call that began before it opened says nothing of what comes after the pause.
        assert not was_open or self.breaker.state is BreakerState.OPEN

    @rule()
    def probe_is_answered(self) -> None:
        was = self.breaker.state
        self.breaker.probed()
        if was is BreakerState.OPEN and self.breaker.state is BreakerState.HALF_OPEN:
            assert self.time.now_s - self.since_opened_s >= 1

    @invariant()
    def trial_is_due_only_while_it_is_open(self) -> None:
        assert (self.breaker.next_trial_s is not None) == (self.breaker.state is BreakerState.OPEN)


TestBreakerMachine = BreakerMachine.TestCase
