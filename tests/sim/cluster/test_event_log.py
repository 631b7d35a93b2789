"""A bounded log of Kubernetes events."""

from __future__ import annotations

from berth_host.cluster.port import EventRecord
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.event_log import EventLog


def event(name: str, reason: str, note: str) -> EventRecord:
    pod = ObjectRef(namespace="default", name=name)
    return EventRecord(regarding=pod, reason=reason, note=note, reporter="default-scheduler")


def test_oldest_events_make_room_and_are_counted() -> None:
    log = EventLog(capacity=2)
    for i in range(3):
        log.add(event("web", "Scheduled", str(i)))
    assert [item.note for item in log.recent] == ["1", "2"]
    assert log.total_count == 3


def test_latest_is_the_newest_of_its_reason_and_object() -> None:
    log = EventLog(capacity=4)
    for name, note in (("web", "first"), ("web", "second"), ("api", "other")):
        log.add(event(name, "Preempted", note))
    found = log.latest("Preempted", "default/web")
    assert found is not None
    assert found.note == "second"
    assert log.latest("Scheduled", "default/web") is None


def test_latest_is_not_kept_longer_than_the_log() -> None:
    log = EventLog(capacity=1)
    log.add(event("web", "Preempted", "first"))
    log.add(event("api", "Preempted", "other"))
    assert log.latest("Preempted", "default/web") is None
