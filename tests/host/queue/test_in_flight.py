"""Events that arrive while pods are in flight."""

from __future__ import annotations

from berth_host.queue.in_flight import InFlight
from berth_host.queue.queued_pod import QueuedPodInfo
from support.queue_parts import a_pod, node_added


def started(*names: str) -> InFlight:
    flights = InFlight()
    for name in names:
        flights.start(QueuedPodInfo(a_pod(name), timestamp_us=0))
    return flights


def labels(flights: InFlight, name: str) -> list[object]:
    return list(flights.events_since(f"uid-{name}") or [])


def log_of(flights: InFlight) -> list[str]:
    return [item.pod.name if isinstance(item, QueuedPodInfo) else item.label for item in flights.log()]


def test_event_without_pods_in_flight_is_not_kept() -> None:
    flights = InFlight()
    flights.remember(node_added())
    assert flights.event_count == 0


def test_each_pod_sees_the_events_after_its_own_pop() -> None:
    flights = started("a")
    first, second = node_added(), node_added()
    flights.remember(first)
    flights.start(QueuedPodInfo(a_pod("b"), timestamp_us=0))
    flights.remember(second)
    assert labels(flights, "a") == [first, second]
    assert labels(flights, "b") == [second]
    assert log_of(flights) == ["a", "NodeAdd", "b", "NodeAdd"]


def test_events_that_only_the_oldest_pod_needed_go_with_it() -> None:
    flights = started("a")
    flights.remember(node_added())
    flights.start(QueuedPodInfo(a_pod("b"), timestamp_us=0))
    later = node_added()
    flights.remember(later)
    assert flights.end("uid-a")
    assert log_of(flights) == ["b", "NodeAdd"]
    assert labels(flights, "b") == [later]


def test_events_stay_while_an_older_pod_is_in_flight() -> None:
    flights = started("a")
    flights.remember(node_added())
    flights.start(QueuedPodInfo(a_pod("b"), timestamp_us=0))
    assert flights.end("uid-b")
    assert log_of(flights) == ["a", "NodeAdd"]


def test_no_event_is_kept_after_the_last_attempt_ends() -> None:
    flights = started("a")
    flights.remember(node_added())
    flights.end("uid-a")
    assert (len(flights), flights.event_count) == (0, 0)


def test_pod_that_is_not_in_flight_has_no_events_rather_than_none_of_them() -> None:
    flights = started("a")
    assert flights.events_since("uid-z") is None
    assert not flights.end("uid-z")
    assert flights.events_since("uid-a") == []
