"""The size of messages: what both sides agree on, and what becomes of a message that is larger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from berth_host.attach.attachments import Condition
from berth_host.attach.handshake import RefusedError, read_handshake
from berth_host.attach.interfaces import WayBack
from berth_host.attach.state import State
from berth_host.config.berth.configuration import Transport
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.served.outbox import Parcel
from berth_host.rpc.served.sender import LinkSender
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.results import QueuedPod
from berth_sdk.serve.server import ListenError, PluginServer
from berth_sdk.status import SUCCESS
from berth_sdk.testing.builders import make_pod
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.message_limit import CURE, DEFAULT_BYTES, MAX_BYTES, MIN_BYTES, SERVER_BYTES
from support.attached import AttachedHost, at_socket, attached_host
from support.echo_plugin import Echo
from support.scripted_plugin import ScriptedPlugin, decided, descriptor

WHOLE_POD = identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_WHOLE_POD)
WIDGETS = identity_pb2.DeclaredNeed(
    kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="example.com/widgets"
)
FAILS = {"filter": PointPolicy(policy=Policy.FAIL)}


class Sized(ScriptedPlugin):
    """Announces a limit, and listens for frames too."""

    features: ClassVar[tuple[str, ...]] = (FRAMED,)

    def __init__(self, limit_bytes: int, *plugins: identity_pb2.PluginDescriptor) -> None:
        super().__init__(*plugins)
        self.max_message_bytes = limit_bytes


class GrantsOnce:
    """Grants that record the limit."""

    over_tls = False

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def grant(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        *,
        loopback_tcp: bool = False,
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> WayBack:
        self.limits.append(max_message_bytes)
        return WayBack(target="unix:///nowhere", token="t")

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        return None


def only(host: AttachedHost) -> Condition:
    (condition,) = host.attachments.conditions()
    return condition


def agreed(host: AttachedHost) -> int:
    link = host.attachments.places[0].link
    assert link is not None
    return link.identity.max_message_bytes


def introduction(limit_bytes: int) -> identity_pb2.HandshakeResponse:
    reply: identity_pb2.HandshakeResponse = Sized(limit_bytes, descriptor("Demo", "FILTER")).unscripted(
        "Handshake"
    )(None)
    return reply


@pytest.mark.parametrize(
    ("theirs", "ours", "smaller"),
    [
        pytest.param(0, DEFAULT_BYTES, DEFAULT_BYTES, id="neither says more"),
        pytest.param(0, MAX_BYTES, DEFAULT_BYTES, id="the plugin announces none"),
        pytest.param(SERVER_BYTES, DEFAULT_BYTES, DEFAULT_BYTES, id="the host's"),
        pytest.param(MIN_BYTES, DEFAULT_BYTES, MIN_BYTES, id="the plugin's"),
        pytest.param(2**63, MAX_BYTES, MAX_BYTES, id="a limit without end"),
    ],
)
def test_the_smaller_limit_holds(theirs: int, ours: int, smaller: int) -> None:
    place = replace(at_socket(Path("/p.sock"), "Demo"), max_message_bytes=ours)
    assert read_handshake(introduction(theirs), place).max_message_bytes == smaller


def test_a_limit_in_which_no_call_fits_is_refused() -> None:
    with pytest.raises(RefusedError, match=f"of 10, and calls need {MIN_BYTES} or more: raise the limit"):
        read_handshake(introduction(10), at_socket(Path("/p.sock"), "Demo"))


@pytest.mark.parametrize("limit_bytes", [0, MIN_BYTES - 1, MAX_BYTES + 1])
def test_a_server_refuses_a_limit_that_is_too_small_or_too_large(limit_bytes: int) -> None:
    with pytest.raises(ListenError, match=r"--max-message-bytes.*not in valid range \[65536, 268435456\]"):
        PluginServer({"Echo": Echo}, max_message_bytes=limit_bytes)


async def test_a_server_announces_its_limit_and_takes_messages_up_to_it(tmp_path: Path) -> None:
    """Six MiB in one request: more than the default of gRPC, and less than both limits."""
    path = tmp_path / "p.sock"
    with PluginServer({"Echo": Echo}, max_message_bytes=8 * 2**20) as server:
        server.listen(f"unix:{path}")
        place = replace(at_socket(path, "Echo"), max_message_bytes=16 * 2**20)
        grants = GrantsOnce()
        async with attached_host(place, grants=grants, points=FAILS) as host:
            assert agreed(host) == 8 * 2**20
            assert grants.limits == [8 * 2**20]
            long = make_pod("long", annotations={"filler": "x" * (6 * 2**20)})
            assert (await host.client.filter(host.cycle(long), host.nodes)).all_passed
            assert max(sent for _, call, sent, _ in host.sent if call == "Filter") > 6 * 2**20


@pytest.mark.parametrize("transport", list(Transport))
async def test_a_pod_over_the_limit_fails_with_the_cure(tmp_path: Path, transport: Transport) -> None:
    plugin = Sized(MIN_BYTES, descriptor("Demo", "FILTER", needs=[WHOLE_POD]))
    path = tmp_path / "p.sock"
    place = replace(at_socket(path, "Demo"), transport=transport)
    async with plugin.serving(path), attached_host(place, points=FAILS) as host:
        long = make_pod("long", annotations={"filler": "x" * MIN_BYTES})
        status = (await host.client.filter(host.cycle(long), host.nodes)).status(0)
        assert f"and {MIN_BYTES} are the limit: {CURE}" in status.message
        assert not plugin.requests("Filter")
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


@pytest.mark.parametrize("transport", list(Transport))
@pytest.mark.parametrize("ours", [MIN_BYTES, DEFAULT_BYTES])
async def test_an_answer_over_the_limit_is_a_violation(
    tmp_path: Path, transport: Transport, ours: int
) -> None:
    """In each transport, whether the host's own limit is the smaller one or the plugin's."""
    plugin = Sized(MIN_BYTES, descriptor("Demo", "FILTER"))
    path = tmp_path / "p.sock"
    place = replace(at_socket(path, "Demo"), transport=transport, max_message_bytes=ours)
    plugin.once("Filter", lambda _: spb.FilterResponse(ctx=decided(pb.PluginStatus.CODE_ERROR, "x" * 70_000)))
    async with plugin.serving(path), attached_host(place, points=FAILS) as host:
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert "answer less, or " + CURE in status.message
        assert host.client.stats.violations == 1
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed


@pytest.mark.parametrize("transport", list(Transport))
async def test_questions_about_many_pods_are_split_below_the_limit(
    tmp_path: Path, transport: Transport
) -> None:
    plugin = Sized(MIN_BYTES, descriptor("Demo", "PRE_ENQUEUE", "QUEUE_SORT", needs=[WHOLE_POD, WIDGETS]))
    path = tmp_path / "p.sock"
    place = replace(at_socket(path, "Demo"), transport=transport)
    async with plugin.serving(path), attached_host(place) as host:
        queued = [
            QueuedPod(pod=make_pod(f"p{i}", annotations={"filler": "x" * 10_000}), attempts=i, added_at_s=1.0)
            for i in range(40)
        ]
        assert await host.client.pre_enqueue(queued) == [SUCCESS] * 40
        assert await host.client.sort_keys(queued) == [b"k"] * 40
        for call in ("PreEnqueue", "SortKeys"):
            asked = plugin.requests(call)
            assert len(asked) > 5
            names = [pod.summary.ref.name for request in asked for pod in request.pods]
            assert names == [f"p{i}" for i in range(40)]
            assert max(request.ByteSize() for request in asked) <= MIN_BYTES


async def test_a_pod_over_the_limit_takes_the_answers_from_no_other_pod_of_its_batch(tmp_path: Path) -> None:
    interest = identity_pb2.EventInterest(
        resource="Node", actions=["add"], hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN
    )
    plugin = Sized(
        MIN_BYTES,
        descriptor("Demo", "PRE_ENQUEUE", "QUEUE_SORT", needs=[WHOLE_POD], events=[interest]),
    )
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        queued = [
            QueuedPod(pod=make_pod(name, annotations={"filler": "x" * size}))
            for name, size in (("first", 10), ("long", MIN_BYTES), ("last", 10))
        ]
        first, long, last = await host.client.pre_enqueue(queued)
        assert (first, last) == (SUCCESS, SUCCESS)
        assert f"and {MIN_BYTES} are the limit: {CURE}" in long.message
        assert await host.client.sort_keys(queued) == [b"k", b"", b"k"]


async def test_reservations_are_given_back_in_messages_below_the_limit(tmp_path: Path) -> None:
    plugin = Sized(MIN_BYTES, descriptor("Demo", "RESERVE", "POST_BIND"))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo")) as host:
        link = host.attachments.places[0].link
        assert link is not None
        parcels = [
            Parcel(
                f"c{i}",
                ObjectRef(namespace="default", name=f"p{i}", uid=f"u{i}"),
                "n0",
                b"t" * 4096,
                "default-scheduler",
            )
            for i in range(50)
        ]
        sender = LinkSender(link, "Demo")
        assert await sender.send_unreserve(parcels) == {f"c{i}" for i in range(50)}
        await sender.send_post_bind(parcels)
        for call in ("Unreserve", "PostBind"):
            asked = plugin.requests(call)
            assert [item.cycle_id for request in asked for item in request.items] == [
                f"c{i}" for i in range(50)
            ]
            assert max(request.ByteSize() for request in asked) <= MIN_BYTES


async def test_changes_that_do_not_fit_into_a_call_go_before_it(tmp_path: Path) -> None:
    need = identity_pb2.DeclaredNeed(
        kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, annotation_prefixes=[""]
    )
    plugin = Sized(MIN_BYTES, descriptor("Demo", "FILTER", needs=[need]))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=FAILS) as host:
        for i in range(20):
            host.state.put(make_pod(f"p{i}", annotations={"filler": "x" * 4000}), f"n{i % 3}")
        assert (await host.client.filter(host.cycle(), host.nodes)).all_passed
        (asked,) = plugin.requests("Filter")
        assert not asked.ctx.HasField("delta")
        bases = [chunks[0].chunk.HasField("base") for chunks in plugin.requests("SyncState")]
        assert bases == [False, True]
        chunks = plugin.requests("SyncState")[-1]
        assert max(chunk.ByteSize() for chunk in chunks) <= MIN_BYTES


@pytest.mark.parametrize("transport", list(Transport))
async def test_changes_go_before_a_call_that_their_pod_nearly_fills(
    tmp_path: Path, transport: Transport
) -> None:
    pods = identity_pb2.DeclaredNeed(
        kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, annotation_prefixes=[""]
    )
    plugin = Sized(MIN_BYTES, descriptor("Demo", "FILTER", needs=[pods, WHOLE_POD]))
    path = tmp_path / "p.sock"
    place = replace(at_socket(path, "Demo"), transport=transport)
    async with plugin.serving(path), attached_host(place, points=FAILS) as host:
        # The annotations travel in the summary and in the object.
        large = make_pod("large", annotations={"filler": "x" * 28_000})
        for number in range(2):
            host.state.put(make_pod(f"p{number}", annotations={"filler": "x" * 12_000}), "n1")
            verdicts = await host.client.filter(host.cycle(large), host.nodes)
            assert verdicts.all_passed, verdicts.status(0).message
        assert [asked.ctx.HasField("delta") for asked in plugin.requests("Filter")] == [False, False]
        bases = [chunks[0].chunk.HasField("base") for chunks in plugin.requests("SyncState")]
        assert bases == [False, True, True]


async def test_an_object_of_the_state_over_the_limit_fails_the_call_with_the_cure(tmp_path: Path) -> None:
    need = identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_POD_OBJECT)
    plugin = Sized(MIN_BYTES, descriptor("Demo", "FILTER", needs=[need]))
    path = tmp_path / "p.sock"
    async with plugin.serving(path), attached_host(at_socket(path, "Demo"), points=FAILS) as host:
        host.state.put(make_pod("large", annotations={"filler": "x" * 70_000}), "n0")
        status = (await host.client.filter(host.cycle(), host.nodes)).status(0)
        assert "was not sent the state: pod default/large takes 7" in status.message
        assert CURE in status.message
        assert only(host).state is State.ACTIVE
