"""`berth.query.v1` over real gRPC: the answers are those of the host and of `/berth/v1/`; what is refused."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.app import Host, NodeTemplate, Simulate
from berth_host.endpoints import query_service
from berth_host.endpoints.access import Authentication, Authorization
from berth_host.endpoints.certificates import self_signed
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.pages import Answers
from berth_host.endpoints.query_server import MOST_STREAMS, STALLED_S, QueryServer
from berth_host.endpoints.query_service import MOST_CALLS, Gate, OpenGate, QueryService, ReviewingGate
from berth_host.endpoints.request_response import Request
from berth_host.endpoints.server import EndpointServer
from berth_host.errors.cluster import ForbiddenError
from berth_host.errors.endpoints import EndpointError
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_host.model.user import ClientTrust, User
from berth_sdk.query.v1 import query_pb2 as pb
from berth_sdk.query.v1.query_pb2_grpc import QueryServiceStub
from support.hosts import World, node, pod
from support.serving import FakeProcess, FakeSettings, KnownUsers
from support.serving import served as serve_endpoints
from support.waiting import PATIENCE_S, until

Code = grpc.StatusCode


@dataclass
class Process:
    host: Host | None
    is_connected: bool = True
    is_leading: bool = True


@asynccontextmanager
async def served(
    process: Process, gate: Gate | None = None, *, stalled_s: float = STALLED_S, **more: Any
) -> AsyncIterator[Any]:
    server = QueryServer(lambda: QueryService(process, gate or OpenGate(), **more), stalled_s=stalled_s)
    await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield QueryServiceStub(channel)
    finally:
        await server.stop()


def bytes_of(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest).encode()


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return caught.value.code(), caught.value.details() or ""


async def text_of(call: Any) -> dict[str, Any]:
    parts = [message.json async for message in call]
    found: dict[str, Any] = json.loads(b"".join(parts))
    found.pop("answeredAt")
    return found


async def test_summary_says_that_the_priority_classes_could_not_be_read() -> None:
    async def forbidden(resource: str, *_: Any, **__: Any) -> list[Any]:
        raise ForbiddenError(resource, "", "berth cannot list priorityclasses")

    async with World([node("n0", cpu="1")]) as world, served(Process(world.host)) as stub:
        await world.settle()
        world.cluster.list = forbidden  # type: ignore[method-assign]
        said = []
        for asked in (pod("web"), pod("web", priority=3)):
            messages = [one async for one in stub.Simulate(pb.SimulateRequest(pods=[bytes_of(asked)]))]
            said.append(list(messages[-1].summary.notes))
    assert [note.split(":")[0] for note in said[0]] == ["the cluster's PriorityClasses cannot be read"]
    assert said[0][0].endswith("pods without it count with priority 0")
    assert said[1] == []


async def test_simulation_over_the_wire_is_that_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(f"p{i}", cpu="1") for i in range(6)] + [pod("huge", cpu="64")]
    small = node("x", cpu="2", labels={"kubernetes.io/hostname": "x"})
    agent = pod("agent", cpu="500m")
    async with World([node("n0", cpu="1")]) as world, served(Process(world.host)) as stub:
        await world.settle()
        asked = Simulate(
            pods=pods,
            templates=[NodeTemplate(name="https://group/1", node=small, count=3, pods=[agent])],
            all_verdicts=True,
        )
        simulation = await world.host.ask(asked)
        expected = [one async for part in simulation.run() for one in part]
        request = pb.SimulateRequest(
            pods=[bytes_of(one) for one in pods],
            templates=[
                pb.NodeTemplate(name="https://group/1", node=bytes_of(small), count=3, pods=[bytes_of(agent)])
            ],
            all_verdicts=True,
        )
        messages = [message async for message in stub.Simulate(request)]
        monkeypatch.setattr(query_service, "PART_BYTES", 100)
        parts = [message async for message in stub.Simulate(request)]
    answers = [answer for message in messages for answer in message.pods]
    assert answers == [answer for message in parts for answer in message.pods]
    assert len(parts) > len(messages)
    assert [
        (one.index, one.pod, one.node_name, one.template, one.ordinal, one.message) for one in answers
    ] == [(one.index, one.pod, one.node_name, one.template, one.ordinal, one.message) for one in expected]
    assert [
        [
            (each.template, each.fitting_count, [(r.plugin, r.reason, r.node_count) for r in each.rejections])
            for each in one.verdicts
        ]
        for one in answers
    ] == [
        [
            (each.template, each.fitting_count, [(r.plugin, r.reason, r.node_count) for r in each.rejections])
            for each in one.verdicts
        ]
        for one in expected
    ]
    assert [message.HasField("summary") for message in messages] == [False] * (len(messages) - 1) + [True]
    summary = messages[-1].summary
    assert [(use.template, use.used_count, use.pod_count) for use in summary.templates] == [
        ("https://group/1", 3, 3)
    ]
    assert (summary.placed_count, summary.pending_count) == (4, 3)
    assert summary.slice_count >= 1
    assert summary.held.ToMicroseconds() > 0


async def test_other_calls_answer_as_the_pages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_service, "PART_BYTES", 50)
    objects = [node("n0", cpu="2"), pod("a", cpu="1"), pod("big", cpu="3"), pod("huge", cpu="8")]
    async with World(objects) as world, served(Process(world.host)) as stub:
        await world.settle()
        pages = Answers(Process(world.host))
        body = bytes_of(pod("new", cpu="1"))
        for call, request in (
            (stub.Fit(pb.FitRequest(pod=body)), Request(method="POST", path="/berth/v1/fit", body=body)),
            (stub.Queue(pb.QueueRequest()), Request(method="GET", path="/berth/v1/queue")),
            (
                stub.Queue(pb.QueueRequest(limit=1, part="unschedulable", reason="NodeResourcesFit")),
                Request(
                    method="GET",
                    path="/berth/v1/queue",
                    query={"limit": ["1"], "part": ["unschedulable"], "reason": ["NodeResourcesFit"]},
                ),
            ),
            (
                stub.Drain(pb.DrainRequest(node_name="n0")),
                Request(method="GET", path="/berth/v1/nodes/n0/drain"),
            ),
            (
                stub.Why(pb.WhyRequest(namespace="default", name="huge", node_name="n0", attempts=2)),
                Request(
                    method="GET",
                    path="/berth/v1/pods/default/huge",
                    query={"node": ["n0"], "attempts": ["2"]},
                ),
            ),
        ):
            found = await text_of(call)
            page = json.loads((await pages.answer(request)).body)
            page.pop("answeredAt")
            assert found == page
        second = await text_of(stub.Queue(pb.QueueRequest(limit=1, offset=1, contains="HUGE", order="name")))
        assert (second["matching"], second["offset"], second["pods"]) == (1, 1, [])
        assert await refused(stub.Drain(pb.DrainRequest(node_name="n1"))) == (
            Code.NOT_FOUND,
            "there is no node n1",
        )
        assert (await refused(stub.Why(pb.WhyRequest(namespace="default", name="nobody"))))[
            0
        ] is Code.NOT_FOUND
        code, text = await refused(stub.Why(pb.WhyRequest(namespace="a/b", name="c")))
        assert (code, "give its metadata.name" in text) == (Code.INVALID_ARGUMENT, True)
        code, text = await refused(stub.Drain(pb.DrainRequest(node_name="n" * 2_000)))
        assert (code, "is no name of an object" in text) == (Code.INVALID_ARGUMENT, True)
        code, text = await refused(stub.Fit(pb.FitRequest(pod=b" " * 1_572_865)))
        assert (code, "pod has 1572865 bytes" in text) == (Code.RESOURCE_EXHAUSTED, True)
        code, text = await refused(stub.Queue(pb.QueueRequest(limit=20_000)))
        assert (code, text) == (Code.INVALID_ARGUMENT, "limit=20000 is not a number from 1 to 10000")


GOOD = bytes_of(pod("web"))
NODE = bytes_of(node("x"))


def template(**more: Any) -> pb.NodeTemplate:
    return pb.NodeTemplate(**{"name": "t", "node": NODE, "count": 1, **more})


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (pb.SimulateRequest(), Code.INVALID_ARGUMENT, "pods is empty: give at least one pod"),
        (pb.SimulateRequest(pods=[GOOD, b"{"]), Code.INVALID_ARGUMENT, "pods[1] is not JSON"),
        (pb.SimulateRequest(pods=[b"[]"]), Code.INVALID_ARGUMENT, "pods[0] is not a JSON object"),
        (
            pb.SimulateRequest(pods=[bytes_of(pod("Web"))]),
            Code.INVALID_ARGUMENT,
            'pods[0]: Pod "Web" is invalid: metadata.name: Invalid value',
        ),
        (
            pb.SimulateRequest(pods=[bytes_of(pod("web", priorityClassName="mine"))]),
            Code.INVALID_ARGUMENT,
            "or give spec.priority",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], only_templates=True),
            Code.INVALID_ARGUMENT,
            "only_templates leaves no node, as templates is empty: give a template",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], scheduler_name="other"),
            Code.INVALID_ARGUMENT,
            "this scheduler places default-scheduler",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(name="")]),
            Code.INVALID_ARGUMENT,
            "templates[0].name has 0 bytes: give 1 to 512",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(), template()]),
            Code.INVALID_ARGUMENT,
            "templates[1].name 't' is that of templates[0], too",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(count=0)]),
            Code.INVALID_ARGUMENT,
            "templates[0].count is 0",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(node=GOOD)]),
            Code.INVALID_ARGUMENT,
            "templates[0].node: the template must be a Node",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(node=bytes_of({**node("x"), "status": {}}))]),
            Code.INVALID_ARGUMENT,
            "templates[0].node: the node has neither status.allocatable nor status.capacity",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(pods=[NODE])]),
            Code.INVALID_ARGUMENT,
            "templates[0].pods[0]: the question must be a Pod",
        ),
        (
            pb.SimulateRequest(pods=[GOOD] * 10_001),
            Code.RESOURCE_EXHAUSTED,
            "pods: there are 10001, and the limit is 10000: ask about fewer pods at a time",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(count=5001)]),
            Code.RESOURCE_EXHAUSTED,
            "templates: the sum of all counts: there are 5001, and the limit is 5000",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(name=str(i)) for i in range(501)]),
            Code.RESOURCE_EXHAUSTED,
            "templates: there are 501, and the limit is 500",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(pods=[GOOD] * 101)]),
            Code.RESOURCE_EXHAUSTED,
            "templates[0].pods: there are 101, and the limit is 100",
        ),
        (
            pb.SimulateRequest(pods=[GOOD], templates=[template(count=201, pods=[GOOD] * 100)]),
            Code.RESOURCE_EXHAUSTED,
            "templates: the sum of count times pods: there are 20100, and the limit is 20000",
        ),
        (
            pb.SimulateRequest(pods=[GOOD, b" " * 1_572_865]),
            Code.RESOURCE_EXHAUSTED,
            "pods[1] has 1572865 bytes, and the limit is 1572864: leave out metadata.managedFields",
        ),
        (
            pb.SimulateRequest(pods=[b" " * (33 * 1024 * 1024)]),
            Code.RESOURCE_EXHAUSTED,
            "and the limit of Simulate is 33554432: ask about fewer pods at a time",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
async def test_wrong_request_is_refused_with_the_field_and_the_cure(
    request_: pb.SimulateRequest, code: grpc.StatusCode, text: str
) -> None:
    async with World([node("n0")]) as world, served(Process(world.host)) as stub:
        found = await refused(stub.Simulate(request_))
        assert found[0] is code
        assert text in found[1]
        assert [one async for one in stub.Simulate(pb.SimulateRequest(pods=[GOOD]))][
            -1
        ].summary.placed_count == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "pod is not JSON (Input is a zero-length, empty document: line 1 column 1 (char 0)): send the"),
        (b"null", "pod is not a JSON object: send a Kubernetes object"),
        (
            bytes_of({"kind": "List"}),
            "the question must be a Pod: an object with apiVersion: v1 and kind: Pod",
        ),
        (bytes_of(pod("a", schedulerName="other")), "this scheduler places default-scheduler: ask the other"),
    ],
)
async def test_fit_about_what_is_no_pod_of_this_scheduler_is_refused(body: bytes, text: str) -> None:
    async with World([node("n0")]) as world, served(Process(world.host)) as stub:
        code, found = await refused(stub.Fit(pb.FitRequest(pod=body)))
        assert (code, text in found) == (Code.INVALID_ARGUMENT, True), found


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
async def test_text_of_a_refusal_is_cut_where_clients_would_not_take_it(letter: str) -> None:
    async with World([node("n0")]) as world, served(Process(world.host)) as stub:
        request = pb.SimulateRequest(pods=[GOOD], scheduler_name=letter * 20_000)
        code, text = await refused(stub.Simulate(request))
        assert code is Code.INVALID_ARGUMENT
        assert text.startswith(f"pod default/web has the schedulerName '{letter * 100}")
        assert f"{letter} ... " in text
        assert text.endswith("ask the other one, or write one of these names")


async def test_long_and_many_simulations_are_ended_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    request = pb.SimulateRequest(pods=[GOOD] * 500)
    async with World([node("n0")]) as world:
        async with served(Process(world.host), answer_s=0.01) as stub:
            code, text = await refused(stub.Simulate(request))
            assert code is Code.RESOURCE_EXHAUSTED
            assert text == "the answer took more than 0.01 s: ask about fewer pods or nodes at a time"
            assert not world.host.snapshot.held
        monkeypatch.setattr(query_service, "MOST_OPEN", 1)
        async with served(Process(world.host)) as stub, world.host.scheduler.undisturbed():
            calls = [asyncio.create_task(refused(stub.Simulate(request))) for _ in range(2)]
            async with asyncio.timeout(PATIENCE_S):
                (ended,), (waiting,) = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert ended.result() == (
                Code.RESOURCE_EXHAUSTED,
                "1 simulations are open: ask again when one has ended",
            )
            waiting.cancel()
            await asyncio.wait({waiting})


async def test_replica_that_cannot_answer_says_whom_to_ask() -> None:
    async with World([node("n0")]) as world:
        process = Process(None)
        async with served(process) as stub:
            assert (await refused(stub.Queue(pb.QueueRequest())))[0] is Code.UNAVAILABLE
            process.host, process.is_leading = world.host, False
            for call in (
                stub.Queue(pb.QueueRequest()),
                stub.Simulate(pb.SimulateRequest(pods=[GOOD])),
            ):
                code, text = await refused(call)
                assert (code, "ask the leader" in text) == (Code.FAILED_PRECONDITION, True)
            process.is_leading = True
            world.host.scheduler.stop_popping()
            code, text = await refused(stub.Simulate(pb.SimulateRequest(pods=[GOOD])))
            assert (code, text.startswith("the scheduler stops")) == (Code.UNAVAILABLE, True)


class Reviews:
    """Knows one token; its user may read pods' answers and ask about fits."""

    async def user_of(self, token: str) -> User | None:
        return User(name="scaler") if token == "good" else None

    async def may(self, user: User, verb: str, path: str) -> bool:
        return (user.name, verb, path) in {
            ("scaler", "post", "/berth/v1/simulate"),
            ("scaler", "get", "/berth/v1/nodes/n0/drain"),
        }

    async def trust(self) -> ClientTrust:
        return ClientTrust()


async def test_token_and_right_are_asked_for_at_each_call() -> None:
    options = ServingOptions()
    gate = ReviewingGate(Authentication(options, Reviews()), Authorization(options, Reviews()))
    async with World([node("n0")]) as world, served(Process(world.host), gate) as stub:
        simulate = pb.SimulateRequest(pods=[GOOD])
        good, bad = (("authorization", "Bearer good"),), (("authorization", "Bearer bad"),)
        assert [one async for one in stub.Simulate(simulate, metadata=good)]
        assert (await text_of(stub.Drain(pb.DrainRequest(node_name="n0"), metadata=good)))["node"] == "n0"
        for stranger in ({"metadata": bad}, {}):
            code, text = await refused(stub.Simulate(simulate, **stranger))
            assert (code, "send a valid one as metadata" in text) == (Code.UNAUTHENTICATED, True)
        for call, right in (
            (stub.Fit(pb.FitRequest(pod=GOOD), metadata=good), "post /berth/v1/fit"),
            (stub.Queue(pb.QueueRequest(), metadata=good), "get /berth/v1/queue"),
            (stub.Drain(pb.DrainRequest(node_name="n1"), metadata=good), "get /berth/v1/nodes/n1/drain"),
            (
                stub.Why(pb.WhyRequest(namespace="a", name="b"), metadata=good),
                "get /berth/v1/pods/a/b",
            ),
        ):
            code, text = await refused(call)
            assert (code, f'user "scaler" may not {right}:' in text) == (Code.PERMISSION_DENIED, True)


async def test_request_of_a_stranger_is_not_read() -> None:
    options = ServingOptions()
    gate = ReviewingGate(Authentication(options, Reviews()), Authorization(options, Reviews()))
    async with World([node("n0")]) as world:
        server = QueryServer(lambda: QueryService(Process(world.host), gate))
        await server.start("127.0.0.1", 0)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                # Bytes travel as they are.
                raw: Any = channel.unary_stream("/berth.query.v1.QueryService/Simulate")
                for token, code in (("bad", Code.UNAUTHENTICATED), ("good", Code.INVALID_ARGUMENT)):
                    call = raw(b"\xff", metadata=(("authorization", f"Bearer {token}"),))
                    assert (await refused(call))[0] is code
        finally:
            await server.stop()


class Sent:
    """A call whose request is sent by the test: bytes as they are, at any time or never."""

    def __init__(self, stub: Any, method: str, token: str) -> None:
        channel: Any = stub
        path = f"/berth.query.v1.QueryService/{method}"
        self.call = channel.stream_stream(path)(metadata=(("authorization", f"Bearer {token}"),))
        self.end = asyncio.create_task(self._end())

    async def _end(self) -> tuple[grpc.StatusCode, str]:
        with suppress(grpc.aio.AioRpcError):
            while await self.call.read() is not grpc.aio.EOF:
                pass
        return await self.call.code(), await self.call.details() or ""

    async def refused(self) -> tuple[grpc.StatusCode, str]:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.shield(self.end)


async def holder_and_refusal(channel: Any, method: str) -> tuple[Sent, tuple[grpc.StatusCode, str]]:
    """Make two calls without a request; return the one that holds the place, and the end of the other."""
    calls = [Sent(channel, method, "") for _ in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([one.end for one in calls], return_when=asyncio.FIRST_COMPLETED)
    ended, holder = sorted(calls, key=lambda one: not one.end.done())
    return holder, ended.end.result()


@asynccontextmanager
async def raw(process: Process, gate: Gate, **more: Any) -> AsyncIterator[Any]:
    server = QueryServer(lambda: QueryService(process, gate, **more))
    await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop()


@pytest.mark.parametrize("method", ["Fit", "Queue"])
async def test_caller_without_the_right_is_refused_before_the_request_comes(method: str) -> None:
    options = ServingOptions()
    gate = ReviewingGate(Authentication(options, Reviews()), Authorization(options, Reviews()))
    async with World([node("n0")]) as world, raw(Process(world.host), gate) as channel:
        code, text = await Sent(channel, method, "good").refused()
        assert (code, f"/berth/v1/{method.lower()}: grant" in text) == (Code.PERMISSION_DENIED, True)


async def test_place_of_a_simulation_is_taken_before_its_request_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_service, "MOST_OPEN", 1)
    request = pb.SimulateRequest(pods=[GOOD]).SerializeToString()
    async with World([node("n0")]) as world, raw(Process(world.host), OpenGate()) as channel:
        full = (Code.RESOURCE_EXHAUSTED, "1 simulations are open: ask again when one has ended")
        first, refusal = await holder_and_refusal(channel, "Simulate")
        assert refusal == full
        await first.call.write(request)
        assert (await first.refused())[0] is Code.OK
        gone, refusal = await holder_and_refusal(channel, "Simulate")
        assert refusal == full
        gone.call.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                last = Sent(channel, "Simulate", "")
                await last.call.write(request)
                if (await last.refused())[0] is Code.OK:
                    break


async def test_request_that_does_not_arrive_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_service, "MOST_READ", 1)
    process = Process(None)
    async with World([node("n0")]) as world:
        process.host = world.host
        async with raw(process, OpenGate(), read_s=0.2, short_read_s=0.3) as channel:
            for method, seconds in (("Simulate", 0.2), ("Fit", 0.3), ("Queue", 0.3), ("Drain", 0.3)):
                code, text = await Sent(channel, method, "").refused()
                assert code is Code.DEADLINE_EXCEEDED
                assert text.startswith(f"the request did not arrive within {seconds} s: send a smaller one")
        async with raw(process, OpenGate(), short_read_s=PATIENCE_S) as channel:
            first = Sent(channel, "Drain", "")
            # The calls whose right is known have their own turns.
            queue = Sent(channel, "Queue", "")
            await queue.call.write(b"")
            assert (await queue.refused())[0] is Code.OK
            await first.call.write(b"")
            assert (await first.refused())[0] is Code.INVALID_ARGUMENT
        async with raw(process, OpenGate(), short_read_s=1.0) as channel:
            second, refusal = await holder_and_refusal(channel, "Why")
            assert (
                refusal
                == (
                    Code.RESOURCE_EXHAUSTED,
                    "1 other requests have not arrived yet: ask again soon",
                )
                or refusal[0] is Code.DEADLINE_EXCEEDED
            )
            assert (await second.refused())[0] in (Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED)


async def test_callers_without_a_right_leave_room_for_those_with_one() -> None:
    options = ServingOptions()
    gate = ReviewingGate(Authentication(options, Reviews()), Authorization(options, Reviews()))
    async with World([node("n0")]) as world, raw(Process(world.host), gate) as channel:
        waiting = [Sent(channel, "Why", "good") for _ in range(MOST_CALLS)]
        async with asyncio.timeout(PATIENCE_S):
            while sum(not one.end.done() for one in waiting) > query_service.MOST_UNCHECKED:
                await asyncio.sleep(0.01)
        refused = {one.end.result() for one in waiting if one.end.done()}
        assert refused == {(Code.RESOURCE_EXHAUSTED, "8 other requests have not arrived yet: ask again soon")}
        simulation = Sent(channel, "Simulate", "good")
        await simulation.call.write(pb.SimulateRequest(pods=[GOOD]).SerializeToString())
        assert (await simulation.refused())[0] is Code.OK
        for one in waiting:
            one.call.cancel()


class StuckReviews(Reviews):
    """Knows one token, and does not answer about any other. `open_count`: unanswered questions."""

    open_count = 0

    async def user_of(self, token: str) -> User | None:
        if token != "good":
            self.open_count += 1
            await asyncio.Event().wait()
        return await super().user_of(token)


async def test_calls_with_unknown_tokens_take_no_place_of_a_call_with_a_known_one() -> None:
    options = ServingOptions()
    reviews = StuckReviews()
    gate = ReviewingGate(Authentication(options, reviews), Authorization(options, reviews))
    async with World([node("n0")]) as world, raw(Process(world.host), gate) as channel:
        stub = QueryServiceStub(channel)
        simulate = pb.SimulateRequest(pods=[GOOD])
        good = (("authorization", "Bearer good"),)
        # Fewer than a connection may have, so that the client keeps no call back.
        strangers = [Sent(channel, "Simulate", f"made-up-{at}") for at in range(MOST_STREAMS - 2)]
        await until(lambda: reviews.open_count > 0)
        async with asyncio.timeout(PATIENCE_S / 2):
            for _ in range(3):
                assert [one async for one in stub.Simulate(simulate, metadata=good)]
        assert not any(one.end.done() and one.end.result()[0] is Code.OK for one in strangers)
        for one in strangers:
            one.call.cancel()


async def test_calls_of_known_callers_have_so_many_places() -> None:
    async with World([node("n0")]) as world, raw(Process(world.host), OpenGate()) as channel:
        calls = [Sent(channel, "Fit", "") for _ in range(MOST_CALLS + 5)]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([one.end for one in calls], return_when=asyncio.FIRST_COMPLETED)
            while sum(one.end.done() for one in calls) < 5:
                await asyncio.sleep(0.01)
        refused = {one.end.result() for one in calls if one.end.done()}
        assert refused == {(Code.RESOURCE_EXHAUSTED, "32 calls are open: ask again when one has ended")}
        for one in calls:
            one.call.cancel()


async def test_idle_connections_to_the_query_port_leave_room_for_a_caller() -> None:
    metrics = ConnectionMetrics()
    async with World([node("n0")]) as world:
        server = QueryServer(lambda: QueryService(Process(world.host), OpenGate()), metrics=metrics)
        await server.start("127.0.0.1", 0)
        idle = []
        try:
            loop = asyncio.get_running_loop()
            for at in range(100):
                sock = socket.socket()
                sock.setblocking(False)
                idle.append(sock)
                await loop.sock_connect(sock, ("127.0.0.1", server.port))
                if at % 2:
                    await loop.sock_sendall(sock, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                answers = QueryServiceStub(channel).Simulate(pb.SimulateRequest(pods=[GOOD]))
                assert [one async for one in answers]
            assert metrics.events.value(("query", "closed_for_room")) >= 100 - 64
        finally:
            for sock in idle:
                sock.close()
            await server.stop()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("method", ["Simulate", "Fit", "Queue", "Drain", "Why"])
async def test_call_without_a_request_and_one_of_other_bytes_are_refused(method: str) -> None:
    async with World([node("n0")]) as world, raw(Process(world.host), OpenGate()) as channel:
        empty = Sent(channel, method, "")
        await empty.call.done_writing()
        assert await empty.refused() == (
            Code.INVALID_ARGUMENT,
            "the call has no request: send one",
        )
        strange = Sent(channel, method, "")
        await strange.call.write(b"\xff")
        assert await strange.refused() == (
            Code.INVALID_ARGUMENT,
            "the request is no message of this call",
        )
        for mebibytes, words in ((33, f"the limit of {method} is "), (41, "message larger than max")):
            huge = Sent(channel, method, "")
            await huge.call.write(b" " * (mebibytes * 1024 * 1024))
            code, text = await huge.refused()
            assert code is Code.RESOURCE_EXHAUSTED
            assert words in text
        queue = Sent(channel, "Queue", "")
        await queue.call.write(b"")
        assert (await queue.refused())[0] is Code.OK


async def test_stream_that_nobody_reads_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_service, "MOST_OPEN", 1)
    full = pb.SimulateResponse(pods=[pb.PodAnswer(message="m" * 1024 * 1024)])
    simulated = query_service.messages_of

    async def long(host: Any, request: pb.SimulateRequest) -> AsyncIterator[pb.SimulateResponse]:
        if len(request.pods) == 1:
            async for answer in simulated(host, request):
                yield answer
        for _ in range(64 if len(request.pods) > 1 else 0):  # more than gRPC keeps for a reader
            yield full

    monkeypatch.setattr(query_service, "messages_of", long)
    async with World([node("n0")]) as world, served(Process(world.host), stalled_s=0.5) as stub:
        unread = stub.Simulate(pb.SimulateRequest(pods=[GOOD] * 2))
        await unread.read()
        async with asyncio.timeout(PATIENCE_S):
            # The first call still waits for its reader when the place is free.
            while (await refused_or_none(stub.Simulate(pb.SimulateRequest(pods=[GOOD])))) is not None:
                await asyncio.sleep(0.05)
            with suppress(grpc.aio.AioRpcError):
                while await unread.read() is not grpc.aio.EOF:
                    pass
            assert await unread.code() is Code.DEADLINE_EXCEEDED
        text = await unread.details() or ""
        assert "a message of the answer waited 0.5 s for the client, which reads too slowly" in text


async def test_reader_who_takes_a_large_message_every_ten_seconds_gets_the_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = pb.SimulateResponse(pods=[pb.PodAnswer(message="m" * 1024 * 1024)])

    async def long(host: Any, request: pb.SimulateRequest) -> AsyncIterator[pb.SimulateResponse]:
        for _ in range(10):
            yield full

    monkeypatch.setattr(query_service, "messages_of", long)
    faster = 20
    async with (
        World([node("n0")]) as world,
        served(Process(world.host), stalled_s=STALLED_S / faster) as stub,
    ):
        call, count = stub.Simulate(pb.SimulateRequest(pods=[GOOD])), 0
        async with asyncio.timeout(PATIENCE_S):
            while await call.read() is not grpc.aio.EOF:
                count += 1
                await asyncio.sleep(10 / faster)
        assert (count, await call.code()) == (10, Code.OK)


async def refused_or_none(call: Any) -> grpc.StatusCode | None:
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as err:
        return err.code()
    return None


async def test_secure_port_and_query_service_have_one_certificate_and_one_list_of_users(
    tmp_path: Path,
) -> None:
    serving = ServingOptions(
        bind_address="127.0.0.1", query_port=free_port(), cert_dir=tmp_path, skip_lookup=True
    )
    users = KnownUsers()
    async with World([node("n0")]) as world:
        process = FakeProcess(world.host.configuration, world.host)
        async with serve_endpoints(process, users, FakeSettings(serving=serving)) as endpoints:
            target = f"127.0.0.1:{endpoints.endpoints.query.port}"
            first = (tmp_path / "kube-scheduler.crt").read_bytes()

            async def ask(ca: bytes, token: str) -> Any:
                async with grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca)) as channel:
                    call = QueryServiceStub(channel).Simulate(
                        pb.SimulateRequest(pods=[GOOD]),
                        metadata=(("authorization", f"Bearer {token}"),),
                        timeout=30,
                    )
                    try:
                        return [message async for message in call][-1].summary.placed_count
                    except grpc.aio.AioRpcError as err:
                        return err.code()

            assert await ask(first, "clusterAdmin") == 1
            assert await ask(first, "authenticatedWithoutRights") is Code.PERMISSION_DENIED
            assert await ask(first, "nobody") is Code.UNAUTHENTICATED
            count = len(users.asked)
            await endpoints.ask("GET", "/berth/v1/queue", token="clusterAdmin")
            assert len(users.asked) == count  # one cache for both ports
            certificate, key = self_signed()
            (tmp_path / "kube-scheduler.key").write_bytes(key)
            (tmp_path / "kube-scheduler.crt").write_bytes(certificate)
            assert await ask(certificate, "clusterAdmin") == 1
            assert await ask(first, "clusterAdmin") is Code.UNAVAILABLE
            (tmp_path / "kube-scheduler.crt").write_bytes(first)  # without its key: refused, the pair stays
            assert await ask(certificate, "clusterAdmin") == 1


@pytest.mark.parametrize(
    "given", [{"min_tls": "VersionTLS13"}, {"ciphers": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)}]
)
def test_restrictions_of_tls_that_grpc_cannot_keep_are_refused(given: dict[str, Any]) -> None:
    EndpointServer(ServingOptions(**given))
    with pytest.raises(EndpointError, match="--query-secure-port does not keep --tls-"):
        EndpointServer(ServingOptions(query_port=1234, **given))


async def test_port_in_use_is_named() -> None:
    async with World([node("n0")]) as world:
        first, second = (QueryServer(lambda: QueryService(Process(world.host), OpenGate())) for _ in range(2))
        await first.start("127.0.0.1", 0)
        try:
            with pytest.raises(EndpointError, match=f"cannot listen on 127.0.0.1:{first.port}"):
                await second.start("127.0.0.1", first.port)
        finally:
            await first.stop()
            await second.stop()


@pytest.mark.parametrize("folder", ["missing", "l" * 100])
async def test_folder_that_cannot_hold_the_socket_is_told_with_its_cure(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder != "missing":
        (tmp_path / folder).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / folder))
    async with World([node("n0")]) as world:
        server = QueryServer(lambda: QueryService(Process(world.host), OpenGate()))
        with pytest.raises(EndpointError, match="set TMPDIR to a folder"):
            await server.start("127.0.0.1", 0)
        assert server.port == 0
    assert not list(tmp_path.glob("*/*"))
