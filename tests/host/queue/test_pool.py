"""The unschedulable pool and its index by rejecting plugin."""

from __future__ import annotations

from berth_host.queue.pool import Alike, UnschedulablePool
from berth_host.queue.queued_pod import QueuedPodInfo
from support.queue_parts import a_pod


def waiting(name: str, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
    return QueuedPodInfo(a_pod(name), 0, unschedulable_plugins=set(plugins), pending_plugins=set(pending))


def names(found: list[Alike]) -> list[str]:
    return sorted(info.pod.name for alike in found for info in alike.infos)


def test_event_finds_the_pods_that_its_plugins_rejected_and_those_that_nobody_did() -> None:
    pool = UnschedulablePool()
    for info in (
        waiting("fit", "Fit"),
        waiting("both", "Fit", "Taint"),
        waiting("pending", pending=("Taint",)),
        waiting("error"),
    ):
        pool.put(info)
    assert names(pool.rejected_by(["Taint"])) == ["both", "error", "pending"]
    assert names(pool.rejected_by(["Fit", "Taint"])) == ["both", "error", "fit", "pending"]
    assert names(pool.rejected_by([])) == ["error"]


def test_pod_put_again_is_found_by_its_new_plugins_only() -> None:
    pool = UnschedulablePool()
    info = waiting("a", "Fit")
    pool.put(info)
    info.unschedulable_plugins = {"Gate"}
    pool.put(info)
    assert names(pool.rejected_by(["Fit"])) == []
    assert names(pool.rejected_by(["Gate"])) == ["a"]
    assert len(pool) == 1


def test_removed_pod_is_found_no_more() -> None:
    pool = UnschedulablePool()
    info = waiting("a", "Fit")
    pool.put(info)
    assert pool.remove(info.key) is info
    assert pool.remove(info.key) is None
    assert names(pool.rejected_by(["Fit"])) == []


def test_gated_pods_are_counted() -> None:
    pool = UnschedulablePool()
    gated = waiting("a", "Gate")
    gated.gating_plugin = "Gate"
    pool.put(gated)
    pool.put(waiting("b", "Fit"))
    assert (len(pool), pool.gated_count) == (2, 1)
