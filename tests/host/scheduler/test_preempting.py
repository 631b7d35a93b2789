"""Who is held back while pods are evicted for it, and until when."""

from __future__ import annotations

from dataclasses import replace

from berth_host.scheduler.preempting import TIDY_AT, Preempting
from support.queue_parts import KnownPods, a_pod


def test_a_pod_is_held_back_until_the_watch_shows_that_its_victims_leave() -> None:
    pods = KnownPods()
    first, last = (pods.put(a_pod(name, node_name="n1")) for name in ("first", "last"))
    preempting = Preempting(pods)
    assert "uid" not in preempting
    preempting.begin("uid")
    assert "uid" in preempting
    preempting.deleted("uid", (first, last))
    del pods.by_key[first.key]
    assert "uid" in preempting
    pods.put(replace(last, terminating=True))
    assert "uid" not in preempting


def test_the_last_victim_may_be_seen_leaving_before_its_eviction_returns() -> None:
    pods = KnownPods()
    last = pods.put(a_pod("last", node_name="n1"))
    preempting = Preempting(pods)
    preempting.begin("uid")
    preempting.last("uid", last)
    assert "uid" in preempting
    del pods.by_key[last.key]
    assert "uid" not in preempting
    pods.put(replace(last, uid="another of its name"))
    assert "uid" not in preempting


def test_an_eviction_that_failed_holds_nobody_back() -> None:
    preempting = Preempting(KnownPods())
    preempting.begin("uid")
    preempting.end("uid")
    assert "uid" not in preempting


def test_preemptors_that_nobody_asks_about_again_are_forgotten() -> None:
    pods = KnownPods()
    preempting = Preempting(pods)
    there = pods.put(a_pod("there", node_name="n1"))
    preempting.deleted("waiting", (there,))
    for number in range(10 * TIDY_AT):
        preempting.deleted(f"gone-{number}", (a_pod(f"victim-{number}", node_name="n1"),))
    assert len(preempting._deleted) <= 2 * TIDY_AT
    assert "waiting" in preempting
