"""What happens to a pod whose attempt failed."""

from __future__ import annotations

import pytest
from berth_host.cycle.attempt import SCHEDULER_ERROR, UNSCHEDULABLE, Failure
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_sdk.pod import Pod
from berth_sdk.status import Code, Status
from support.watched_host import WatchedHost

FIT = frozenset({"NodeResourcesFit"})


@pytest.fixture
def host() -> WatchedHost:
    return WatchedHost()


def popped(host: WatchedHost, name: str = "a", **fields: object) -> QueuedPodInfo:
    host.pod(name, **fields)
    return host.pop()


def rejection(nominated: str | None = None, plugins: frozenset[str] = FIT) -> Failure:
    return Failure(
        status=Status.unschedulable("no room"),
        message="0/1 nodes are available: 1 no room.",
        nominated=nominated,
        unschedulable_plugins=plugins,
    )


def error(plugin: str = "") -> Failure:
    return Failure(status=Status(Code.ERROR, ("boom",), plugin), message="boom")


def test_rejected_pod_is_parked_with_its_plugins_and_its_owner_is_told(host: WatchedHost) -> None:
    info = popped(host)
    failure = rejection()
    host.failures.handle(info, failure)
    assert (host.queued, len(host.queue.in_flight)) == ({"a": "pool"}, 0)
    assert info.unschedulable_plugins == {"NodeResourcesFit"}
    assert host.written.failures == [("a", failure)]


def test_plugins_of_an_earlier_attempt_are_forgotten(host: WatchedHost) -> None:
    info = popped(host)
    info.unschedulable_plugins, info.pending_plugins = {"NodeAffinity"}, {"VolumeBinding"}
    info.gating_plugin, info.gating_message = "SchedulingGates", "waiting for scheduling gates: [a]"
    host.failures.handle(info, rejection())
    assert (info.unschedulable_plugins, info.pending_plugins) == ({"NodeResourcesFit"}, set())
    assert (info.is_gated, info.gating_message) == (False, "")


@pytest.mark.parametrize(
    ("failure", "reason", "queued"),
    [
        pytest.param(rejection(), UNSCHEDULABLE, "pool", id="rejected"),
        pytest.param(error(), SCHEDULER_ERROR, "backoff", id="error"),
        pytest.param(rejection(plugins=frozenset()), UNSCHEDULABLE, "backoff", id="rejected by nobody"),
    ],
)
def test_error_backs_off_and_rejection_waits(
    host: WatchedHost, failure: Failure, reason: str, queued: str
) -> None:
    host.failures.handle(popped(host), failure)
    assert host.queued == {"a": queued}
    assert failure.reason == reason


def test_pod_that_no_bind_plugin_wanted_backs_off_and_nothing_is_written(host: WatchedHost) -> None:
    host.failures.handle(popped(host), Failure(status=Status.skip()))
    assert host.queued == {"a": "backoff"}
    assert host.written.failures == []


def test_pod_comes_back_as_the_watch_shows_it_now(host: WatchedHost) -> None:
    info = popped(host)
    host.pod("a", labels={"x": "1"})
    host.failures.handle(info, rejection())
    (parked,) = pods_of(host.queue.places.pool)
    assert parked.pod.labels == {"x": "1"}


@pytest.mark.parametrize("bound", [pytest.param(False, id="deleted"), pytest.param(True, id="bound")])
def test_pod_that_is_gone_or_bound_is_not_queued_but_its_owner_is_told(
    host: WatchedHost, bound: bool
) -> None:
    info = popped(host, nominated="n1")
    if bound:
        host.pod("a", node="n1")
    else:
        host.pod_gone("a")
    host.failures.handle(info, rejection(nominated="n1"))
    assert (host.queued, host.nominated, len(host.queue.in_flight)) == ({}, {}, 0)
    assert [name for name, _ in host.written.failures] == ["a"]


def test_failure_of_a_recreated_pod_is_dropped(host: WatchedHost) -> None:
    info = popped(host)
    host.pod("a", uid="uid-a2", nominated="n2")
    host.failures.handle(info, rejection(nominated="n1"))
    assert host.queued == {"a": "active"}
    assert host.nominated == {"n2": ["a"]}
    assert (len(host.queue.in_flight), host.written.failures) == (0, [])


@pytest.mark.parametrize(
    ("in_status", "said", "want"),
    [
        pytest.param("n1", None, {"n1": ["a"]}, id="nothing said, status counts"),
        pytest.param("n1", "", {}, id="cleared"),
        pytest.param("n1", "n2", {"n2": ["a"]}, id="another node"),
        pytest.param("", "n2", {"n2": ["a"]}, id="first nomination"),
    ],
)
def test_nomination_follows_the_attempt(
    host: WatchedHost, in_status: str, said: str | None, want: dict[str, list[str]]
) -> None:
    info = popped(host, **({"nominated": in_status} if in_status else {}))
    host.failures.handle(info, rejection(nominated=said))
    assert host.nominated == want


def test_pod_that_failed_because_of_a_plugin_is_activated_when_it_recovers(host: WatchedHost) -> None:
    host.failures.handle(popped(host), error("Gpu"))
    assert host.queued == {"a": "backoff"}
    assert host.queue.plugin_recovered("Gpu") == 1
    assert host.queued == {"a": "active"}


# --- binding failures ------------------------------------------------------------------------------------


def binding(host: WatchedHost) -> tuple[QueuedPodInfo, Pod]:
    info = popped(host)
    assumed = info.pod.on_node("n1")
    host.cache.assume(assumed)
    return info, assumed


def test_failed_bind_frees_the_node_for_others_before_the_pod_backs_off(host: WatchedHost) -> None:
    host.parked("waiting")
    info, assumed = binding(host)
    host.failures.handle_binding_failure(info, assumed, error())
    assert host.cache.pod_count == 0
    assert host.queued == {"waiting": "backoff", "a": "backoff"}
    assert host.notes.events == ["AssignedPodDelete"]


def test_rejection_while_waiting_frees_the_node_for_others_but_not_for_the_pod_itself(
    host: WatchedHost,
) -> None:
    host.parked("waiting")
    info, assumed = binding(host)
    host.failures.handle_binding_failure(info, assumed, rejection(nominated=""))
    assert host.queued == {"waiting": "backoff", "a": "pool"}


def test_pods_in_flight_remember_the_freed_node(host: WatchedHost) -> None:
    info, assumed = binding(host)
    other = popped(host, "b")
    host.failures.handle_binding_failure(info, assumed, error())
    host.failures.handle(other, rejection())
    assert host.queued["b"] == "backoff"


def test_rejection_after_the_queue_was_told_that_the_attempt_is_over_cannot_park(host: WatchedHost) -> None:
    info, assumed = binding(host)
    host.queue.done(info.uid)
    host.failures.handle_binding_failure(info, assumed, rejection(plugins=frozenset()))
    assert host.queued == {"a": "backoff"}
