"""Which pods wait while others are evicted for them, and until when."""

from __future__ import annotations

from dataclasses import replace

from berth_host.cache.objects import ObjectStores
from berth_host.config.host_rules import RULES_1_37
from berth_host.preemption.evicting_pods import Preempting
from berth_sdk.pod import Pod
from berth_sdk.testing import make_pod
from support.queue_parts import a_pod


def put(pods: ObjectStores, name: str) -> Pod:
    pod = a_pod(name, node_name="n1")
    pods.put_pod(pod)
    return pod


def test_a_pod_is_held_back_until_the_watch_shows_that_its_victims_leave() -> None:
    pods = ObjectStores()
    first, last = put(pods, "first"), put(pods, "last")
    preempting = Preempting(pods)
    assert "uid" not in preempting
    preempting.begin("uid")
    assert "uid" in preempting
    preempting.deleted("uid", (first, last))
    pods.remove_pod(first)
    assert "uid" in preempting
    pods.put_pod(replace(last, terminating=True))
    assert "uid" not in preempting


def test_emulating_a_version_the_preemption_ends_with_the_deletion() -> None:
    pods = ObjectStores()
    preempting = Preempting(pods, replace(RULES_1_37, ends_preemption_with_deletion=True))
    preempting.begin("uid")
    preempting.deleted("uid", (put(pods, "first"), put(pods, "last")))
    assert "uid" not in preempting


def test_the_last_victim_may_be_seen_leaving_before_its_eviction_returns() -> None:
    pods = ObjectStores()
    last = put(pods, "last")
    preempting = Preempting(pods)
    preempting.begin("uid")
    preempting.last("uid", last)
    assert "uid" in preempting
    pods.put_pod(replace(last, uid="another of its name"))
    assert "uid" not in preempting


def test_a_victim_that_had_left_before_does_not_hold_the_preemptor_back() -> None:
    pods = ObjectStores()
    here, gone, leaving = put(pods, "here"), put(pods, "gone"), put(pods, "leaving")
    pods.remove_pod(gone)
    pods.put_pod(replace(leaving, terminating=True))
    preempting = Preempting(pods)
    preempting.last("first", gone)
    preempting.deleted("second", (gone, leaving))
    preempting.deleted("third", (gone, here))
    assert [uid for uid in ("first", "second", "third") if uid in preempting] == ["third"]


def test_two_preemptors_may_wait_for_the_same_victim() -> None:
    pods = ObjectStores()
    shared, own = put(pods, "shared"), put(pods, "own")
    preempting = Preempting(pods)
    preempting.deleted("first", (shared,))
    preempting.deleted("second", (shared, own))
    preempting.end("first")
    pods.remove_pod(shared)
    assert "first" not in preempting
    assert "second" in preempting
    pods.remove_pod(own)
    assert "second" not in preempting


def test_a_failed_eviction_does_not_hold_the_preemptor_back() -> None:
    preempting = Preempting(ObjectStores())
    preempting.begin("uid")
    preempting.end("uid")
    assert "uid" not in preempting


def test_changes_of_preempting_pods_are_reported_once() -> None:
    pods = ObjectStores()
    victim = put(pods, "victim")
    preempting = Preempting(pods)
    preempting.begin("uid")
    assert set(preempting.take_changed()) == {"uid"}
    assert not preempting.take_changed()
    preempting.deleted("uid", (victim,))
    assert set(preempting.take_changed()) == {"uid"}
    pods.remove_pod(victim)
    assert set(preempting.take_changed()) == {"uid"}


def test_nothing_is_kept_of_victims_that_have_left() -> None:
    pods = ObjectStores()
    preempting = Preempting(pods)
    for number in range(100):
        victim = put(pods, f"victim-{number}")
        preempting.deleted(f"uid-{number}", (victim,))
        pods.remove_pod(victim)
    assert len(preempting) == 0
    assert not preempting.waited_for_by


def known(*pods: Pod) -> Preempting:
    """Return preemption state without open preemptions among these pods."""
    objects = ObjectStores()
    for pod in pods:
        objects.put_pod(pod)
    return Preempting(objects)


def test_the_newest_record_of_a_pod_is_that_of_its_uid() -> None:
    popped, changed = make_pod("web", uid="a"), make_pod("web", uid="a", labels={"app": "web"})
    assert known(changed).current(popped) is changed
    assert known(make_pod("web", uid="b")).current(popped) is None
    assert known().current(popped) is None


def test_a_pod_preempts_from_the_beginning_of_its_evictions_to_their_end() -> None:
    preempting = known()
    assert not preempting.is_preempting("a")
    preempting.begin("a")
    assert preempting.is_preempting("a")
    assert not preempting.is_preempting("b")
    preempting.end("a")
    assert not preempting.is_preempting("a")
