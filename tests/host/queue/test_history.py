"""The history that a queued pod keeps."""

from __future__ import annotations

from berth_host.queue.queued_pod import GATED, HISTORY_KEPT, QueuedPodInfo
from berth_sdk.pod import Pod
from support.queue_parts import START_S
from support.watched_host import WatchedHost


def test_every_place_is_kept_with_the_event_that_brought_the_pod_there() -> None:
    host = WatchedHost()
    host.pod("web")
    info = host.pop()
    info.unschedulable_plugins = {"NodeResourcesFit"}
    host.queue.add_unschedulable(info)
    host.node("n1")
    host.clock.advance(2)
    host.queue.flush_backoff()
    assert [(what, about) for _, what, about in info.history] == [
        ("active", "UnscheduledPodAdd"),
        ("tried", "1"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "NodeAdd"),
        ("active", "BackoffComplete"),
    ]
    times = [at_us / 1e6 for at_us, _, _ in info.history]
    assert times == sorted(times)
    assert START_S <= times[0] < START_S + 1


def test_history_is_bounded_and_a_gate_that_stays_closed_is_one_entry() -> None:
    info = QueuedPodInfo(Pod(name="web", uid="u"), timestamp_us=0)
    for i in range(5 * HISTORY_KEPT):
        info.note(i, GATED, "P")
    assert len(info.history) == 1
    for i in range(5 * HISTORY_KEPT):
        info.note(i, "active", "NodeAdd")
    assert HISTORY_KEPT <= len(info.history) <= 2 * HISTORY_KEPT
    assert info.history[-1][0] == 5 * HISTORY_KEPT - 1
