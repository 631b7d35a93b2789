"""A plugin that raises about one pod takes the answers from no other pod, wherever the plugin runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from berth_host.rpc.breaker import IN_A_ROW
from berth_host.rpc.client import PluginClient
from berth_host.rpc.hint_answer import NO_HINT
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing.builders import make_pod, make_table
from berth_sdk.testing.handle import RecordingHandle
from support.attached import AttachedHost, at_socket
from support.relays import local_client
from support.sdk_server import Serving

EVENT = ClusterEvent(resource="Node", action="add")


def check(pod: Pod) -> None:
    """Raise about some pods."""
    if pod.name.startswith("bad"):
        raise ValueError("no word about this pod")


class RaisesForSome(Plugin):
    """Its methods are `async def`, so that a host asks about several pods in one call, too."""

    events = (EventInterest("Node", hint=Hint.ASK_PLUGIN),)

    async def pre_enqueue(self, pod: QueuedPod) -> Status:
        """Let in."""
        check(pod.pod)
        return SUCCESS

    async def sort_key(self, pod: QueuedPod) -> bytes:
        """Order by name."""
        check(pod.pod)
        return pod.pod.name.encode()

    async def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Help nobody."""
        check(pod)
        return False


@pytest.fixture(params=["in process", "served"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PluginClient]:
    if request.param == "in process":
        yield local_client(RaisesForSome({}, RecordingHandle(lambda: make_table([], []), {})))
        return
    with Serving(tmp_path, RaisesForSome) as serving:
        place = at_socket(Path(serving.address.removeprefix("unix:")), "RaisesForSome")
        host = AttachedHost([place], node_count=0)
        try:
            await host.attachments.start(60)
            yield host.client
        finally:
            await host.attachments.stop()


def queued(*names: str) -> list[QueuedPod]:
    return [QueuedPod(pod=make_pod(name, uid=name)) for name in names]


async def test_exception_about_one_pod_leaves_the_answers_about_the_others(client: PluginClient) -> None:
    pods = queued("bad", "web", "db")
    bad, web, db = await client.pre_enqueue(pods)
    assert (web, db) == (SUCCESS, SUCCESS)
    assert bad.code is Code.ERROR
    assert "failed at PreEnqueue: ValueError: no word about this pod" in bad.message
    assert await client.sort_keys(pods) == [b"", b"web", b"db"]
    assert await client.queueing_hints(EVENT, [pod.pod for pod in pods]) == [NO_HINT, False, False]


async def test_plugin_that_raises_about_every_pod_is_asked_until_its_circuit_opens(
    client: PluginClient,
) -> None:
    answers = await client.pre_enqueue(queued(*(f"bad-{i}" for i in range(3 * IN_A_ROW))))
    assert {answer.code for answer in answers} == {Code.ERROR}
    refused = [answer for answer in answers if "is not asked until it is well again" in answer.message]
    assert len(refused) == (2 * IN_A_ROW + 1 if client.is_served else 0)
