"""The queue's record of a pod: its history is bounded, and its gates and rejections are told apart."""

from __future__ import annotations

from collections.abc import Hashable

from berth_host.queue.queued_pod import GATED, HISTORY_KEPT, TRIED, QueuedPodInfo
from berth_sdk.pod import Pod
from berth_sdk.testing.builders import make_pod


def record() -> QueuedPodInfo:
    return QueuedPodInfo(make_pod("web"), timestamp_us=1_500_000)


def test_history_keeps_the_newest_and_is_bounded() -> None:
    queued = record()
    for attempt in range(10 * HISTORY_KEPT):
        queued.note(attempt, TRIED, str(attempt))
        assert len(queued.history) <= 2 * HISTORY_KEPT
        kept = [entry[0] for entry in queued.history]
        assert kept == list(range(attempt + 1 - len(kept), attempt + 1))
    assert len(queued.history) >= HISTORY_KEPT


def test_a_gate_that_is_still_closed_adds_no_history() -> None:
    queued = record()
    for now_us, gate in enumerate(("A", "A", "B", "A")):
        queued.note(now_us, GATED, gate)
    queued.note(9, TRIED, "1")
    queued.note(10, TRIED, "1")
    assert [(what, about) for _, what, about in queued.history] == [
        (GATED, "A"),
        (GATED, "B"),
        (GATED, "A"),
        (TRIED, "1"),
        (TRIED, "1"),
    ]


def test_a_pod_is_gated_by_a_plugin_and_rejected_by_others() -> None:
    queued = record()
    assert (queued.is_gated, queued.is_rejected) == (False, False)
    queued.gating_plugin, queued.gating_message = "Gate", "closed"
    queued.unschedulable_plugins = {"Fit"}
    queued.pending_plugins = {"Later"}
    assert (queued.is_gated, queued.is_rejected) == (True, True)
    assert [queued.is_rejected_by(name) for name in ("Fit", "Later", "Gate")] == [True, True, False]
    queued.ungate()
    assert (queued.is_gated, queued.gating_message) == (False, "")


def test_plugins_see_seconds_and_an_update_asks_for_the_place_anew() -> None:
    queued = record()
    queued.sort_key = (0, None, 1, 1)
    queued.replace_pod(make_pod("web", labels={"a": "b"}))
    assert queued.sort_key is None
    seen = queued.as_queued_pod()
    assert (seen.pod.labels, seen.added_at_s, seen.first_attempt_at_s) == ({"a": "b"}, 1.5, None)
    queued.initial_attempt_timestamp_us = 2_250_000
    assert queued.as_queued_pod(victims_pending=True).first_attempt_at_s == 2.25


def test_pod_that_a_plugin_cannot_sign_equals_no_other() -> None:
    def fails(pod: Pod) -> Hashable:
        raise KeyError(pod.name)

    def unhashable(pod: Pod) -> Hashable:
        return ([pod.name],)

    for sign in (fails, unhashable):
        queued, other = record(), record()
        assert queued.signed_by(sign) == queued.signed_by(sign)
        assert queued.signed_by(sign) != other.signed_by(sign)
        hash(queued.signed_by(sign))
