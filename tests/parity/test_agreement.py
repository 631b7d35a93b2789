"""Which observations the comparison of recorded scenarios treats as equal; needs no server."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support.observed.agreement import first_difference, unstable_parts
from support.observed.audit import AuditLog, writes_of
from support.observed.masking import masked, masked_event_name

Json = dict[str, Any]
UUID = "0b3c8f0e-54a1-4d0a-9a53-0c5d1e7f2a11"


def write(name: str, **body: Any) -> Json:
    return {"verb": "patch", "resource": "pods", "namespace": "default", "name": name, "body": body}


def event(name: str, note: str) -> Json:
    return {
        "verb": "create",
        "resource": "events",
        "namespace": "default",
        "name": f"{name}.<hex>",
        "note": note,
    }


def observation(*writes: Json, pods: Json | None = None, events: tuple[Json, ...] = ()) -> Json:
    return {"pods": pods or {}, "events": list(events), "writes": list(writes)}


def test_order_counts_within_an_object_and_not_between_objects() -> None:
    first, second, other = write("p1", n=1), write("p1", n=2), write("p2", n=1)
    recorded = observation(first, second, other)
    assert first_difference(recorded, observation(other, first, second)) is None
    difference = first_difference(recorded, observation(second, first, other))
    assert difference is not None
    assert (difference["object"], difference["position"]) == ("pods/default/p1", 0)


def test_writes_of_events_are_a_multiset() -> None:
    first, second = event("p1", "a"), event("p1", "b")
    assert first_difference(observation(first, second), observation(second, first)) is None
    assert first_difference(observation(first, second), observation(first, first)) is not None


def test_missing_and_additional_writes_are_differences() -> None:
    assert first_difference(observation(write("p1")), observation()) is not None
    assert first_difference(observation(), observation(write("p1"))) is not None


def test_repetitions_count_unless_retries_do_not() -> None:
    once, more = observation(write("p1"), event("p1", "a")), observation(*[write("p1"), event("p1", "a")] * 2)
    assert first_difference(once, more) is not None
    assert first_difference(once, more, retries_count=False) is None
    other = observation(write("p1"), write("p1", n=2), event("p1", "a"))
    assert first_difference(once, other, retries_count=False) is not None


def test_unstable_writes_may_stop_early_and_not_go_another_way() -> None:
    unstable = frozenset({"writes"})
    long = observation(write("p1", n=1), write("p1", n=2), write("p1", n=1))
    short = observation(write("p1", n=1))
    assert first_difference(long, short) is not None
    assert first_difference(long, short, unstable=unstable) is None
    assert first_difference(short, long, unstable=unstable) is None
    assert first_difference(long, observation(write("p1", n=3)), unstable=unstable) is not None


def test_conditions_of_a_pod_count_and_none_is_as_good_as_no_list() -> None:
    empty, bare = {"p1": {"phase": "Pending", "conditions": []}}, {"p1": {"phase": "Pending"}}
    assert first_difference(observation(pods=empty), observation(pods=bare)) is None
    held = {"p1": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}}
    assert first_difference(observation(pods=empty), observation(pods=held)) is not None
    promised = {"p1": {"phase": "Pending", "nominatedNodeName": "n1"}}
    assert first_difference(observation(pods=bare), observation(pods=promised)) is not None
    unstable = frozenset({"pods"})
    assert first_difference(observation(pods=bare), observation(pods=promised), unstable=unstable) is None


def test_unstable_parts_are_those_of_their_step() -> None:
    second_run = [{"step": 1, "part": "pods"}, {"step": 2, "part": "writes"}]
    assert unstable_parts(second_run, 1) == {"pods"}
    assert unstable_parts("same", 1) == frozenset()


@pytest.mark.parametrize(
    ("shown", "mask"),
    [
        ({"uid": UUID, "resourceVersion": "17"}, {"uid": "<uid>", "resourceVersion": "<resourceVersion>"}),
        ({"note": f"Preempted by pod {UUID} on node n1"}, {"note": "Preempted by pod <uid> on node n1"}),
        ({"at": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"]}, {"at": ["<time>", "<time>"]}),
        ({"by": f"some-host_{UUID}"}, {"by": "<host>_<uid>"}),
        ({"creationTimestamp": None, "managedFields": [], "x": 1}, {"x": 1}),
        ({"lastProbeTime": None, "count": 2}, {"lastProbeTime": None, "count": 2}),
    ],
)
def test_masks(shown: Json, mask: Json) -> None:
    assert masked(shown, "some-host") == mask


def test_only_the_tail_of_an_event_name_is_masked() -> None:
    assert masked_event_name("p1.18a2c3d4e5f60718") == "p1.<hex>"
    assert masked_event_name("p1.beef") == "p1.beef"


def test_writes_are_read_from_the_audit_log_as_it_grows_by_time_of_arrival(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    late, early = audited("2026-01-01T00:00:02Z", "p2"), audited("2026-01-01T00:00:01Z", "p1", 409)
    text = f"{json.dumps(late)}\n{json.dumps(early)}\n"
    reader = AuditLog(log)
    assert reader.read() == []
    log.write_text(text[:40])
    assert reader.read() == []
    log.write_text(text)
    writes = writes_of(reader.read())
    assert [item["name"] for item in writes] == ["p1", "p2"]
    assert writes[0]["response"] == {"message": "no", "reason": "Conflict"}
    assert writes[1]["body"] == {"metadata": {"uid": "<uid>"}}
    assert reader.read() == []


def audited(received: str, name: str, code: int = 201) -> Json:
    answer = {"kind": "Status", "message": "no", "reason": "Conflict", "code": code}
    return copy.deepcopy(
        {
            "verb": "create",
            "requestReceivedTimestamp": received,
            "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "default", "name": name},
            "responseStatus": {"code": code},
            "requestObject": {"metadata": {"uid": UUID, "creationTimestamp": None}},
            "responseObject": answer if code >= 400 else {},
        }
    )


def test_a_nomination_that_is_taken_back_again_is_a_repetition() -> None:
    promised = write("p1", status={"nominatedNodeName": "n1"})
    failed = write("p1", status={"conditions": [{"type": "PodScheduled"}], "nominatedNodeName": None})
    again = write("p1", status={"nominatedNodeName": None})
    once, twice = observation(promised, failed), observation(promised, failed, promised, again)
    assert first_difference(once, twice) is not None
    assert first_difference(once, twice, retries_count=False) is None
    assert (
        first_difference(observation(promised), observation(promised, again), retries_count=False) is not None
    )


def test_taking_a_nomination_back_with_a_condition_is_left_open_where_two_recordings_differed() -> None:
    def failed(**more: Any) -> Json:
        return write("p1", status={"conditions": [{"message": "device gone"}], **more})

    nominated, unstable = write("p1", status={"nominatedNodeName": "n1"}), frozenset({"writes"})
    kept = observation(nominated, failed())
    taken_back = observation(nominated, failed(nominatedNodeName=None))
    assert first_difference(kept, taken_back) is not None
    assert first_difference(kept, taken_back, retries_count=False) is not None
    assert first_difference(kept, taken_back, unstable=unstable) is None
    assert first_difference(taken_back, kept, unstable=unstable) is None
    other = observation(nominated, failed(nominatedNodeName="n2"))
    assert first_difference(kept, other, unstable=unstable) is not None


def lease(labels: Json | None, **spec: Any) -> Json:
    metadata = {"name": "kube-scheduler"} | ({} if labels is None else {"labels": labels})
    return {
        "verb": "update",
        "resource": "leases",
        "namespace": "kube-system",
        "name": "kube-scheduler",
        "body": {"metadata": metadata, "spec": spec},
    }


def test_own_label_of_the_lease_is_the_only_addition_that_does_not_count() -> None:
    recorded = observation(lease(None, leaseTransitions=0))
    own = {"berth.io/scheduler": "4ab1"}
    assert first_difference(recorded, observation(lease(own, leaseTransitions=0))) is None
    assert first_difference(recorded, observation(lease(own, leaseTransitions=1))) is not None
    assert first_difference(recorded, observation(lease({**own, "a": "b"}, leaseTransitions=0))) is not None
    assert first_difference(recorded, observation(lease({"berth.io/other": "x"}, leaseTransitions=0)))
    pods = [{**lease(labels), "resource": "pods"} for labels in (None, own)]
    assert first_difference(observation(pods[0]), observation(pods[1])) is not None
