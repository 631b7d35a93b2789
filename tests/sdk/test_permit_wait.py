"""The message to a pod's owner after its wait at Permit timed out."""

import pytest
from berth_sdk.permit_wait import MAX_WAIT_S, timed_out
from berth_sdk.results import Decision, WaitingPod
from berth_sdk.status import Code
from berth_sdk.testing import make_pod
from berth_sdk.testing.clock import TestClock
from berth_sdk.testing.waiting import WaitingRoom


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (15, "15s"),
        (60, "1m0s"),
        (90.5, "1m30.5s"),
        (3600, "1h0m0s"),
        (0.0000005, "500ns"),
    ],
)
def test_message_has_the_duration_as_go_writes_it(seconds: float, want: str) -> None:
    want = f"rejected due to timeout after waiting {want} at plugin Gang"
    assert timed_out("Gang", seconds).message == want


@pytest.mark.parametrize(
    ("asked_s", "want_s"),
    [(None, MAX_WAIT_S), (MAX_WAIT_S + 1, MAX_WAIT_S), (5.0, 5.0), (0.0, 0.0), (-1.0, 0.0)],
)
def test_test_host_waits_as_long_as_a_real_host(asked_s: float | None, want_s: float) -> None:
    clock = TestClock()
    room = WaitingRoom(clock)
    pod = make_pod("web")
    room.register(pod, "c1", "n0")
    room.hold(pod.uid, {"A": asked_s})
    assert room.next_deadline_s() == clock.now_s + want_s
    clock.now_s += want_s
    room.expire()
    assert room.outcome(pod.uid, "c1").code is Code.UNSCHEDULABLE


@pytest.mark.parametrize("asked_s", [0.0, -1.0])
def test_pod_that_was_allowed_before_a_wait_of_no_time_goes_on(asked_s: float) -> None:
    room = WaitingRoom(TestClock())
    pod = make_pod("web")
    room.register(pod, "c1", "n0")
    named = WaitingPod(pod=pod, cycle_id="c1", node_name="n0", pending_plugins=(), deadline_s=0.0)
    assert room.allow("A", None, named) is Decision.STORED_EARLY
    room.hold(pod.uid, {"A": asked_s})
    room.expire()
    assert room.outcome(pod.uid, "c1").is_success
