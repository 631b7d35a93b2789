"""The unschedulable pool and its index by rejecting plugin."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from berth_host.queue.interfaces import QueueProfile
from berth_host.queue.pool import Alike, UnschedulablePool
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.parsing.pod_spec import DEFAULT_SCHEDULER_NAME
from berth_sdk.pod import Pod
from berth_sdk.signature import wishes
from support.queue_parts import a_pod


def waiting(name: str, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
    return QueuedPodInfo(
        a_pod(name), timestamp_us=0, unschedulable_plugins=set(plugins), pending_plugins=set(pending)
    )


def names(found: list[Alike]) -> list[str]:
    return sorted(info.pod.name for alike in found for info in alike.pods())


def test_event_finds_the_pods_that_its_plugins_rejected_and_those_without_a_rejection() -> None:
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


def kinds(signs: dict[str, Callable[[Pod], Hashable]], *infos: QueuedPodInfo) -> int:
    pool = UnschedulablePool(profiles={DEFAULT_SCHEDULER_NAME: QueueProfile(signs=signs)})
    for info in infos:
        pool.put(info)
    return len(pool.rejected_by(["Fit", "Taint"]))


def labelled(name: str, *plugins: str) -> QueuedPodInfo:
    return QueuedPodInfo(
        a_pod(name, labels={"pod": name}), timestamp_us=0, unschedulable_plugins=set(plugins)
    )


def test_pods_that_their_plugins_sign_alike_are_alike_in_spite_of_other_fields() -> None:
    signs: dict[str, Callable[[Pod], Hashable]] = {"Fit": lambda pod: pod.priority, "Taint": wishes}
    assert kinds(signs, labelled("a", "Fit"), labelled("b", "Fit")) == 1
    assert kinds(signs, labelled("a", "Taint"), labelled("b", "Taint")) == 2
    assert kinds(signs, labelled("a", "Fit", "Taint"), labelled("b", "Fit", "Taint")) == 2


def test_a_pod_that_cannot_be_signed_is_like_no_other() -> None:
    def broken(pod: Pod) -> Hashable:
        raise ValueError("no")

    assert kinds({"Fit": broken}, labelled("a", "Fit"), labelled("b", "Fit")) == 2
    assert kinds({"Fit": lambda pod: []}, labelled("a", "Fit"), labelled("b", "Fit")) == 2  # type: ignore[dict-item,return-value]  # the fault that is looked for
