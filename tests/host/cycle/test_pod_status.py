"""What an attempt writes to the pod's status."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from berth_host.cycle.attempt import Failure
from berth_host.cycle.pod_status import MESSAGE_MAX_BYTES, PodStatusWriter, cut_message, cut_note
from berth_host.errors.cluster import ClusterError, NotFoundError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sim.cluster.cluster import MemoryCluster
from support.hosts import START_S, pod

REF = ObjectRef(namespace="default", name="web")


class Written:
    """A cluster with one pod, and the writer."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.server.create(pod("web"))
        self.writer = PodStatusWriter(self.cluster, self.clock)

    @property
    def pod(self) -> Pod:
        """The pod as it is now."""
        found = self.cluster.server.get("pods", REF)
        assert found is not None
        return Pod.from_object(found)

    async def fail(self, message: str, *, code: Status | None = None, nominated: str | None = "") -> Pod:
        """Fail an attempt; return the pod afterwards."""
        status = code or Status.unschedulable(message)
        self.writer.attempt_failed(self.pod, Failure(status=status, message=message, nominated=nominated))
        await self.writer.flush(60)
        return self.pod


def condition(of: Pod) -> dict[str, str]:
    assert of.object is not None
    found = [item for item in of.object.get("status.conditions") if item["type"] == "PodScheduled"]
    assert len(found) == 1
    return dict(found[0])


async def test_failure_sets_the_condition_with_the_whole_message() -> None:
    after = await Written().fail("x" * 2000)
    assert condition(after)["message"] == "x" * 2000
    assert condition(after)["reason"] == "Unschedulable"
    assert condition(after)["lastTransitionTime"] == "2026-01-01T00:00:00Z"


async def test_error_has_the_reason_that_autoscalers_pass_over() -> None:
    after = await Written().fail("broken", code=Status.error("broken"))
    assert condition(after)["reason"] == "SchedulerError"


async def test_text_of_a_plugin_that_cannot_be_written_is_written_as_far_as_it_can() -> None:
    after = await Written().fail("no \ud800 room, \u00fc")
    assert condition(after)["message"] == "no ? room, \u00fc"


async def test_same_failure_again_writes_nothing() -> None:
    written = Written()
    first = await written.fail("full")
    second = await written.fail("full")
    assert first.resource_version == second.resource_version


@pytest.mark.parametrize("waits", [True, False])
async def test_failure_that_the_watch_still_shows_replaces_a_later_one(waits: bool) -> None:
    written = Written()
    known = await written.fail("full")
    for message in ("tainted", "full"):
        failure = Failure(status=Status.unschedulable(message), message=message)
        written.writer.attempt_failed(known, failure)
        if waits:
            await written.writer.flush(60)
    await written.writer.flush(60)
    assert condition(written.pod)["message"] == "full"


async def test_changed_message_keeps_the_time_of_the_transition() -> None:
    written = Written()
    await written.fail("full")
    written.clock.advance(60)
    after = await written.fail("fuller")
    assert condition(after)["message"] == "fuller"
    assert condition(after)["lastTransitionTime"] == "2026-01-01T00:00:00Z"


async def test_conditions_of_others_that_came_meanwhile_stay() -> None:
    written = Written()
    known = written.pod
    others = {"conditions": [{"type": "example.com/Mine", "status": "True"}]}
    await written.cluster.patch("pods", REF, {"status": others}, subresource="status")
    written.writer.attempt_failed(known, Failure(status=Status.unschedulable("x"), message="x"))
    await written.writer.flush(60)
    assert written.pod.object is not None
    types = {item["type"] for item in written.pod.object.get("status.conditions")}
    assert types == {"PodScheduled", "example.com/Mine"}


async def test_condition_says_which_generation_of_the_pod_it_is_about() -> None:
    written = Written()
    patch = {"metadata": {"labels": {"a": "1"}}, "spec": {"activeDeadlineSeconds": 60}}
    await written.cluster.patch("pods", REF, patch)
    after: dict[str, object] = {**condition(await written.fail("full"))}
    assert after["observedGeneration"] == 2


async def test_event_is_there_at_once_and_every_time() -> None:
    written = Written()
    for count in (1, 2):
        status = Status.unschedulable("full")
        written.writer.attempt_failed(written.pod, Failure(status=status, message="full"))
        assert written.cluster.server.events.total_count == count
        await written.writer.flush(60)


async def test_nomination_is_written_kept_and_cleared() -> None:
    written = Written()
    assert (await written.fail("a", nominated="n1")).nominated_node == "n1"
    assert (await written.fail("b", nominated=None)).nominated_node == "n1"
    assert (await written.fail("c", nominated="")).nominated_node == ""


async def test_nomination_that_was_written_is_not_written_again_before_the_watch_shows_it() -> None:
    written = Written()
    known = written.pod
    failure = Failure(status=Status.unschedulable("full"), message="full", nominated="n1")
    written.writer.attempt_failed(known, failure)
    await written.writer.flush(60)
    version = written.pod.resource_version
    await written.writer.nominate(known, "n1")
    assert written.pod.resource_version == version
    await written.writer.nominate(known, "n2")
    assert written.pod.nominated_node == "n2"


async def test_failure_takes_back_a_nomination_that_the_watch_has_not_shown_yet() -> None:
    written = Written()
    known = written.pod
    await written.writer.nominate(known, "n1")
    failure = Failure(status=Status.error("device gone"), message="device gone")
    written.writer.attempt_failed(known, failure)
    await written.writer.flush(60)
    assert written.pod.nominated_node == ""


async def test_nomination_that_is_still_to_be_written_is_taken_back_too() -> None:
    written = Written()
    known = written.pod
    for nominated in ("n1", ""):
        failure = Failure(status=Status.unschedulable("full"), message="full", nominated=nominated)
        written.writer.attempt_failed(known, failure)
    await written.writer.flush(60)
    assert written.pod.nominated_node == ""


async def test_patches_carry_what_changed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    written, sent = Written(), list[set[str]]()
    patch = written.cluster.patch

    async def noted(resource: str, ref: ObjectRef, body: dict[str, Any], **more: Any) -> KubeObject:
        sent.append(set(body["status"]))
        return await patch(resource, ref, body, **more)

    monkeypatch.setattr(written.cluster, "patch", noted)
    await written.writer.nominate(written.pod, "")  # no node is promised
    assert sent == []
    await written.fail("full")
    assert sent.pop() == {"conditions"}
    await written.writer.nominate(written.pod, "n1")
    await written.writer.nominate(written.pod, "n1")
    assert sent == [{"nominatedNodeName"}]
    await written.fail("full", nominated="n1")
    assert len(sent) == 1
    await written.cluster.patch("pods", REF, {"status": {"nominatedNodeName": None}}, subresource="status")
    sent.clear()
    await written.fail("full")  # another client took the nomination back
    assert sent == []


@pytest.mark.parametrize("lost", [True, False])
async def test_nomination_that_was_lost_or_taken_back_is_written_again(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    known = written.pod
    failure = Failure(status=Status.unschedulable("full"), message="full", nominated="n1")
    with monkeypatch.context() as patched:
        if lost:
            patched.setattr(written.cluster, "is_cut", True)
            patched.setattr("berth_host.cycle.repeating.FIRST_WAIT_S", 0.0)
        written.writer.attempt_failed(known, failure)
        await written.writer.flush(60)
    if not lost:
        await written.writer.nominate(known, "")
    assert written.pod.nominated_node == ""
    await written.writer.nominate(known, "n1")
    assert written.pod.nominated_node == "n1"


async def test_pod_that_is_gone_is_no_failure_of_the_writer() -> None:
    written = Written()
    known = written.pod
    await written.cluster.delete("pods", REF)
    written.writer.attempt_failed(known, Failure(status=Status.unschedulable("x"), message="x"))
    await written.writer.flush(60)
    assert written.writer.pending_count == 0


async def test_statuses_of_a_pod_are_written_in_order_though_some_fail() -> None:
    written, seen = Written(), list[str]()

    async def write(what: str, error: Exception | None = None) -> None:
        seen.append(what)
        await asyncio.sleep(0)
        seen.append(f"{what} done")
        if error is not None:
            raise error

    refused = written.writer.in_order(written.pod, lambda: write("a", NotFoundError("pods", "web")))
    done = written.writer.in_order(written.pod, lambda: write("b"))
    assert written.writer.pending_count == 1
    await written.writer.settled(written.pod)
    assert seen == ["a", "a done", "b", "b done"]
    with pytest.raises(NotFoundError):
        await refused
    await done
    assert written.writer.pending_count == 0


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_writes_that_are_cancelled_are_not_waited_for(turns: int) -> None:
    written = Written()

    async def write() -> None:
        await asyncio.sleep(3600)

    before = asyncio.all_tasks()
    asked = [written.writer.in_order(written.pod, write) for _ in range(2)]
    (task,) = asyncio.all_tasks() - before
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await written.writer.flush(60)
    assert written.writer.pending_count == 0
    assert all(one.cancelled() for one in asked)
    assert (await written.fail("later")).resource_version == written.pod.resource_version
    assert condition(written.pod)["message"] == "later"


async def test_write_that_the_client_cancels_does_not_hold_up_the_next() -> None:
    written = Written()
    seen: list[str] = []

    async def cut() -> None:
        raise asyncio.CancelledError

    async def write() -> None:
        seen.append("written")

    asked = [written.writer.in_order(written.pod, step) for step in (cut, write)]
    await written.writer.flush(60)
    assert isinstance(asked[0].exception(), ClusterError)
    assert asked[1].result() is None
    assert seen == ["written"]


def test_note_is_cut_at_1024_bytes_without_breaking_a_character() -> None:
    assert cut_note("x" * 1024) == "x" * 1024
    assert cut_note("x" * 1025) == "x" * 1020 + " ..."
    cut = cut_note("é" * 1000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("é ...")


def test_message_of_a_condition_is_bounded_and_says_how_much_is_left_out() -> None:
    assert cut_message("x" * MESSAGE_MAX_BYTES) == "x" * MESSAGE_MAX_BYTES
    assert cut_message("x" * 1_000_000) == "x" * MESSAGE_MAX_BYTES + " ... (967232 more bytes)"
    cut = cut_message("x" + "é" * MESSAGE_MAX_BYTES)
    assert cut.startswith("x" + "é" * (MESSAGE_MAX_BYTES // 2 - 1) + " ... (32770 more bytes)")
