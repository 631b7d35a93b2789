"""How long pods back off, and which pod leaves backoffQ first."""

from __future__ import annotations

import pytest
from berth_host.queue.backoff import SECOND_US, BackoffQueue, BackoffTimes
from berth_host.queue.interfaces import QueueConfig
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from support.queue_parts import a_pod


def info_of(name: str = "a", timestamp_us: int = 0, **fields: int) -> QueuedPodInfo:
    info = QueuedPodInfo(a_pod(name), timestamp_us=timestamp_us, **fields)  # type: ignore[arg-type]  # counters
    info.sort_key = (1, 0, timestamp_us, 0)
    return info


@pytest.mark.parametrize(
    ("config", "want_s"),
    [
        pytest.param(QueueConfig(), [1, 2, 4, 8, 10, 10, 10], id="defaults"),
        pytest.param(
            QueueConfig(pod_initial_backoff_s=2, pod_max_backoff_s=7), [2, 4, 7, 7], id="cap is no power"
        ),
        pytest.param(QueueConfig(pod_initial_backoff_s=5, pod_max_backoff_s=5), [5, 5], id="initial is max"),
        pytest.param(QueueConfig(pod_initial_backoff_s=1, pod_max_backoff_s=0), [0, 0], id="turned off"),
    ],
)
def test_each_rejection_doubles_the_wait_up_to_the_limit(config: QueueConfig, want_s: list[int]) -> None:
    backoff = BackoffTimes(config)
    waits = [backoff.duration_us(info_of(unschedulable_count=n + 1)) for n in range(len(want_s))]
    assert waits == [seconds * SECOND_US for seconds in want_s]


def test_wait_stays_at_the_limit_however_often_a_pod_failed() -> None:
    assert BackoffTimes(QueueConfig()).duration_us(info_of(unschedulable_count=5000)) == 10 * SECOND_US


def test_errors_in_a_row_count_instead_of_rejections() -> None:
    info = info_of(unschedulable_count=4, consecutive_errors_count=1)
    assert BackoffTimes(QueueConfig()).duration_us(info) == 1 * SECOND_US


def test_pod_that_never_failed_need_not_wait() -> None:
    assert not BackoffTimes(QueueConfig()).is_backing_off(info_of(), 0)


def test_expiry_is_a_whole_second_that_still_counts_as_waiting() -> None:
    backoff = BackoffTimes(QueueConfig())
    info = info_of(timestamp_us=1_700_000, unschedulable_count=1)
    assert backoff.expiry_us(info) == 2 * SECOND_US
    assert backoff.is_backing_off(info, 2_999_999)
    assert not backoff.is_backing_off(info, 3_000_000)


def test_expiry_is_kept_until_the_next_attempt_ends() -> None:
    backoff = BackoffTimes(QueueConfig())
    info = info_of(unschedulable_count=1)
    assert backoff.expiry_us(info) == 1 * SECOND_US
    info.unschedulable_count = 3
    assert backoff.expiry_us(info) == 1 * SECOND_US


def queue_of(*infos: QueuedPodInfo) -> BackoffQueue:
    queue = BackoffQueue(BackoffTimes(QueueConfig()))
    for info in infos:
        queue.push(info)
    return queue


def rejected(name: str, timestamp_us: int, count: int = 1) -> QueuedPodInfo:
    info = info_of(name, timestamp_us, unschedulable_count=count)
    info.unschedulable_plugins = {"Fit"}
    return info


def test_pods_free_in_the_same_second_are_ordered_as_the_queue_sorts() -> None:
    low, high = rejected("low", 100_000), rejected("high", 900_000)
    low.sort_key, high.sort_key = (1, 0, 0, 0), (1, -7, 0, 1)
    queue = queue_of(low, high, rejected("later", 1_000_000))
    assert [info.pod.name for info in pods_of(queue.rejected())] == ["high", "low", "later"]


def test_failed_pods_are_never_popped_early() -> None:
    queue = queue_of(info_of("failed", consecutive_errors_count=1), rejected("later", 0, count=4))
    first = queue.pop_early()
    assert first is not None
    assert first.key == "default/later"
    assert queue.pop_early() is None
    assert len(queue) == 1


def test_completed_pods_of_both_kinds_leave() -> None:
    queue = queue_of(
        info_of("failed", consecutive_errors_count=1), rejected("a", 0), rejected("b", 0, count=3)
    )
    assert {info.pod.name for info in pods_of(queue.pop_completed(2 * SECOND_US))} == {"failed", "a"}
    assert len(queue) == 1


def test_pod_that_gains_a_rejecting_plugin_changes_the_heap() -> None:
    info = info_of("a", consecutive_errors_count=1)
    queue = queue_of(info)
    info.unschedulable_plugins = {"Gate"}
    queue.push(info)
    assert ([*queue.failed()], queue.poppable_count, len(queue)) == ([], 1, 1)
