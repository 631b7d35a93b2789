"""Events: their shape, what makes a series, and what happens to those that cannot be written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_host.cluster.port import EventRecord
from berth_host.model.clock import ManualClock
from berth_kube import events as events_module
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.events import (
    MAX_KEPT,
    REFRESH_S,
    SERIES_END_S,
    EventSeries,
    cut_note,
    event_name,
)
from berth_sdk.kube_object import ObjectRef
from support.kube_api import Answer, KubeApi
from support.waiting import until

POD = ObjectRef(name="web", namespace="default", uid="u1", resource_version="7")


def failed(note: str = "no room", pod: ObjectRef = POD, **more: Any) -> EventRecord:
    return EventRecord(
        regarding=pod,
        type="Warning",
        reason="FailedScheduling",
        action="Scheduling",
        note=note,
        reporter="default-scheduler",
        **more,
    )


async def written(cluster: KubeCluster) -> None:
    await until(lambda: cluster.events.waiting_count == 0)


async def test_event_has_kube_schedulers_shape(api: KubeApi, cluster: KubeCluster) -> None:
    cluster.create_event(
        EventRecord(
            regarding=POD,
            reason="Scheduled",
            action="Binding",
            note="Successfully assigned default/web to n1",
            reporter="default-scheduler",
        )
    )
    await written(cluster)
    [request] = api.seen("POST")
    assert request.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    name = request.body["metadata"]["name"]
    # Nanoseconds, as near as a float comes to them.
    assert name.startswith(f"web.{1_800_000_000_250_000_000:x}"[:-2])
    assert request.body == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2027-01-15T08:00:00.250000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-here",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": "u1",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        "note": "Successfully assigned default/web to n1",
        "type": "Normal",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }


async def test_event_about_a_cluster_wide_object_goes_to_default(api: KubeApi, cluster: KubeCluster) -> None:
    cluster.create_event(failed(pod=ObjectRef(name="claim"), regarding_kind="ResourceSlice"))
    await written(cluster)
    [request] = api.seen("POST")
    assert request.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert request.body["regarding"] == {
        "kind": "ResourceSlice",
        "name": "claim",
        "apiVersion": "resource.k8s.io/v1",
    }


async def test_second_of_the_same_is_patched_and_later_ones_are_counted(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock
) -> None:
    for note in ("no room", "another text", "a third", "a fourth"):
        cluster.create_event(failed(note))
        await written(cluster)
        clock.advance(1)
    [created], [patched] = api.seen("POST"), api.seen("PATCH")
    assert created.body["note"] == "no room"
    assert patched.path.endswith("/" + created.body["metadata"]["name"])
    assert patched.content_type == "application/strategic-merge-patch+json"
    assert patched.body == {"series": {"count": 2, "lastObservedTime": "2027-01-15T08:00:01.250000Z"}}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            failed(pod=ObjectRef(name="web", namespace="default", uid="u1", resource_version="8")),
            id="another version of the pod",
        ),
        pytest.param(failed(related=ObjectRef(name="n1")), id="another related object"),
        pytest.param(
            EventRecord(
                regarding=POD, type="Warning", reason="Other", action="Scheduling", note="", reporter="x"
            ),
            id="another reason",
        ),
    ],
)
async def test_event_that_differs_in_more_than_its_text_is_a_new_one(
    api: KubeApi, cluster: KubeCluster, other: EventRecord
) -> None:
    cluster.create_event(failed())
    cluster.create_event(other)
    await written(cluster)
    assert len(api.seen("POST")) == 2
    names = {request.body["metadata"]["name"] for request in api.seen("POST")}
    assert len(names) == 2
    assert api.seen("PATCH") == []


async def test_series_that_ended_is_written_with_its_count_and_forgotten(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock
) -> None:
    for _ in range(5):
        cluster.create_event(failed())
    await written(cluster)
    clock.advance(SERIES_END_S + 1)
    await written(cluster)
    assert api.seen("PATCH")[-1].body["series"]["count"] == 5
    cluster.create_event(failed())
    await written(cluster)
    assert len(api.seen("POST")) == 2


def test_long_series_is_written_again_now_and_then() -> None:
    series = EventSeries("here", lambda _: "v1")
    kept = series.add(failed(), 0.0)
    assert kept is not None
    now_s = 0.0
    written_counts = []
    while now_s < 2 * REFRESH_S + 100:
        now_s += 100
        series.add(failed(), now_s)
        written_counts += [found.count for found in series.due(now_s)]
    assert written_counts == [20, 38]


@pytest.mark.slow
def test_kept_events_are_bounded_and_bindings_are_not_kept() -> None:
    series = EventSeries("here", lambda _: "v1")
    for i in range(MAX_KEPT + 10):
        series.add(failed(pod=ObjectRef(name=f"p{i}")), float(i))
    assert len(series) == MAX_KEPT
    series.add(EventRecord(regarding=POD, reason="Scheduled", action="Binding", note="", reporter="x"), 0.0)
    assert len(series) == MAX_KEPT


async def test_series_whose_event_has_expired_is_created_anew(api: KubeApi, cluster: KubeCluster) -> None:
    cluster.create_event(failed())
    await written(cluster)
    [name] = api.objects["events"]
    await api.delete("events", name)
    cluster.create_event(failed())
    await written(cluster)
    assert [request.method for request in api.requests] == ["POST", "PATCH", "POST"]
    assert api.requests[-1].body["series"]["count"] == 2


async def test_write_without_an_answer_is_tried_again_and_found_done(
    api: KubeApi, cluster: KubeCluster
) -> None:
    exists = {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "already exists"}
    api.answers.append(Answer("POST", "/events", 503, {"kind": "Status", "code": 503}))
    api.answers.append(Answer("POST", "/events", 409, exists))
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.written_count == 1
    assert cluster.events.dropped == {}


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_refused_event_is_dropped_and_counted(api: KubeApi, cluster: KubeCluster, code: int) -> None:
    api.answers.append(Answer("POST", "/events", code, {"kind": "Status", "code": code, "message": "no"}))
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.dropped == {"rejected": 1}
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.written_count == 1


async def test_unreachable_server_costs_a_bounded_number_of_tries(
    api: KubeApi, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "MAX_TRIES", 3)
    for _ in range(3):
        api.answers.append(Answer("POST", "/events", 503, {"kind": "Status", "code": 503}))
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.dropped == {"unreachable": 1}
    assert len(api.requests) == 3


@pytest.mark.slow
async def test_unexpected_error_costs_one_event_and_is_counted(
    cluster: KubeCluster, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*args: object, **more: object) -> bytes:
        raise RuntimeError("Session is closed")

    with monkeypatch.context() as broken:
        broken.setattr(client, "send", send)
        cluster.create_event(failed())
        await written(cluster)
    assert cluster.events.dropped == {"rejected": 1}
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.written_count == 1


async def test_events_beyond_the_queue_limit_are_dropped_and_counted(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock
) -> None:
    cluster.events.max_waiting = 10
    for i in range(25):
        cluster.create_event(failed(pod=ObjectRef(name=f"p{i}", namespace="default")))
    await written(cluster)
    assert cluster.events.dropped == {"full": 15}
    assert cluster.events.written_count == 10


async def test_queued_event_has_the_time_at_which_it_was_recorded(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock
) -> None:
    cluster.create_event(failed())
    clock.advance(5)
    cluster.create_event(failed(pod=ObjectRef(name="other", namespace="default")))
    clock.advance(5)
    await written(cluster)
    times = [request.body["eventTime"] for request in api.seen("POST")]
    assert times == ["2027-01-15T08:00:00.250000Z", "2027-01-15T08:00:05.250000Z"]


async def test_queued_repetitions_share_an_entry_when_the_queue_is_full(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock
) -> None:
    cluster.events.max_waiting = 10
    for _ in range(25):
        cluster.create_event(failed())
    await written(cluster)
    clock.advance(SERIES_END_S + 1)
    await written(cluster)
    assert cluster.events.dropped == {}
    assert api.seen("PATCH")[-1].body["series"]["count"] == 25


@pytest.fixture
def held(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let one request at a time go out, and none before this is set."""
    monkeypatch.setattr(events_module, "MAX_UNDER_WAY", 1)
    released, send = asyncio.Event(), client.send

    async def send_later(*args: Any, **more: Any) -> bytes:
        await released.wait()
        return await send(*args, **more)

    monkeypatch.setattr(client, "send", send_later)
    return released


async def test_repetition_is_counted_although_the_queue_is_full(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock, held: asyncio.Event
) -> None:
    held.set()
    for _ in range(2):
        cluster.create_event(failed())
    await written(cluster)
    held.clear()
    cluster.events.max_waiting = 5
    for i in range(7):
        cluster.create_event(failed(pod=ObjectRef(name=f"p{i}", namespace="default")))
        await asyncio.sleep(0)
    assert cluster.events.dropped == {"full": 1}  # One is under way, and five wait.
    for _ in range(3):
        cluster.create_event(failed())
    assert cluster.events.dropped == {"full": 1}
    held.set()
    await written(cluster)
    clock.advance(SERIES_END_S + 1)
    await written(cluster)
    assert api.seen("PATCH")[-1].body["series"]["count"] == 5


async def test_series_of_records_that_waited_through_a_sweep_is_written_at_the_next_one(
    api: KubeApi, cluster: KubeCluster, clock: ManualClock, held: asyncio.Event
) -> None:
    binding = EventRecord(regarding=POD, reason="Scheduled", action="Binding", note="", reporter="x")
    cluster.create_event(binding)  # No event of a series, so the sweep finds none.
    await asyncio.sleep(0)
    for _ in range(3):
        cluster.create_event(failed())
    clock.advance(SERIES_END_S)
    held.set()
    await written(cluster)
    assert api.seen("PATCH")[-1].body["series"]["count"] == 2
    clock.advance(SERIES_END_S + 1)
    await written(cluster)
    assert api.seen("PATCH")[-1].body["series"]["count"] == 3


async def test_event_queued_in_the_moment_in_which_the_last_writer_ends_is_written(
    api: KubeApi, cluster: KubeCluster, held: asyncio.Event
) -> None:
    held.set()
    cluster.create_event(failed())
    while cluster.events.waiting_count:  # Its last turn is before the callbacks of the writer's task.
        await asyncio.sleep(0)
    cluster.create_event(failed(pod=ObjectRef(name="other", namespace="default")))
    await written(cluster)
    assert len(api.seen("POST")) == 2


async def test_event_that_cannot_be_made_is_dropped_and_the_next_is_written(
    api: KubeApi, cluster: KubeCluster
) -> None:
    unknown: Any = object()
    cluster.create_event(failed(related=unknown))
    cluster.create_event(failed())
    await written(cluster)
    assert cluster.events.dropped == {"rejected": 1}
    assert len(api.seen("POST")) == 1


async def test_stop_writes_queued_events_and_drops_new_ones(api: KubeApi, cluster: KubeCluster) -> None:
    for i in range(30):
        cluster.create_event(failed(pod=ObjectRef(name=f"p{i}", namespace="default")))
    await cluster.stop()
    assert cluster.events.written_count == 30
    cluster.create_event(failed())
    assert cluster.events.dropped == {"stopped": 1}


async def test_stop_does_not_wait_for_ever(api: KubeApi, cluster: KubeCluster) -> None:
    api.answers.append(Answer("POST", "/events", 200, {}, wait_s=30))
    cluster.create_event(failed())
    await cluster.events.stop(within_s=0.1)
    await asyncio.sleep(0)
    assert cluster.events.dropped == {"stopped": 1}


async def test_cut_drops_queued_events_at_once(api: KubeApi, cluster: KubeCluster) -> None:
    for i in range(30):
        cluster.create_event(failed(pod=ObjectRef(name=f"p{i}", namespace="default")))
    cluster.cut()
    await asyncio.sleep(0.05)
    assert api.seen("POST") == []
    assert cluster.events.dropped["stopped"] == 30


@pytest.mark.parametrize(
    ("note", "want_bytes"), [("a" * 1024, 1024), ("a" * 1025, 1024), ("ü" * 600, 1024), ("", 0)]
)
def test_note_is_cut_to_the_servers_limit(note: str, want_bytes: int) -> None:
    got = cut_note(note)
    assert len(got.encode()) == want_bytes
    assert got == note or got.endswith(" ...")


def test_name_is_valid_for_the_server() -> None:
    assert event_name("a" * 253, 2**62).count("a") == 236
    assert len(event_name("a" * 253, 2**62)) == 253
    assert event_name("a" * 235 + "." + "b" * 17, 1) == "a" * 235 + ".1"
