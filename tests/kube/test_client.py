"""Requests: their content, retries, and the error for each failure."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest
from berth_host.errors.cluster import (
    ForbiddenError,
    RepeatableError,
    TimedOutError,
    TooManyRequestsError,
    UnavailableError,
)
from berth_host.metrics.rest_client import RestClientMetrics
from berth_host.model.clock import ManualClock
from berth_kube.client import MAX_UNDER_WAY, KubeClient, path_of, segment
from berth_kube.connection import Connection
from support.kube_api import Answer, KubeApi
from support.waiting import until

RETRY = {"kind": "Status", "code": 429, "message": "too many requests, please try again later"}


@asynccontextmanager
async def with_a_clock(connection: Connection) -> AsyncIterator[tuple[KubeClient, ManualClock]]:
    """Return a client whose waits use a clock that the test advances."""
    clock = ManualClock()
    client = await KubeClient.open(connection, clock=clock)
    yield client, clock
    await client.close()


async def test_answer_is_the_parsed_object(api: KubeApi, client: KubeClient) -> None:
    await api.put("nodes", "n1")
    got = await client.request("GET", "/api/v1/nodes/n1")
    assert got["metadata"]["name"] == "n1"


async def test_a_long_answer_may_come_compressed_and_requests_that_write_ask_for_none(
    api: KubeApi, client: KubeClient
) -> None:
    items = [{"metadata": {"name": f"n{number}"}} for number in range(20_000)]
    packed = gzip.compress(json.dumps({"items": items}).encode())
    api.answers.append(Answer("GET", "/nodes", 200, packed, headers={"Content-Encoding": "gzip"}))
    api.answers.append(Answer("POST", "/nodes", 201, {}))
    got = await client.request("GET", "/api/v1/nodes")
    assert got["items"] == items
    await client.request("POST", "/api/v1/nodes", body={})
    accepted = [dict(request.headers).get("Accept-Encoding") for request in api.requests]
    assert accepted == ["gzip", None]


async def test_a_damaged_compressed_answer_is_an_error_that_may_be_repeated(
    api: KubeApi, client: KubeClient
) -> None:
    packed = gzip.compress(json.dumps({"items": ["x"] * 1000}).encode())
    damaged = packed[:20] + b"\xff\xff\xff" + packed[23:]
    api.answers.append(Answer("GET", "/nodes", 200, damaged, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(UnavailableError):
        await client.request("GET", "/api/v1/nodes")
    await api.put("nodes", "n1")
    assert await client.request("GET", "/api/v1/nodes/n1")


async def test_query_and_body_arrive_as_they_were_given(api: KubeApi, client: KubeClient) -> None:
    api.answers.append(Answer("PATCH", "/status", 200))
    got = await client.request(
        "PATCH",
        path_of("/api/v1", "pods", "default", "web", "status"),
        query={"fieldManager": "a b&c", "fieldSelector": "x!=y"},
        body={"status": {}},
        content_type="application/strategic-merge-patch+json",
    )
    assert got == {}
    [seen] = api.requests
    assert seen.path == "/api/v1/namespaces/default/pods/web/status"
    assert seen.query == {"fieldManager": "a b&c", "fieldSelector": "x!=y"}
    assert seen.content_type == "application/strategic-merge-patch+json"
    assert seen.body == {"status": {}}


@pytest.mark.parametrize("name", ["system:node/n", "a b", "ä", "x%2f", "a?b", "a#b", "A/../b", "..", "."])
async def test_special_characters_of_a_name_are_escaped_in_the_path(
    api: KubeApi, client: KubeClient, name: str
) -> None:
    api.answers.append(Answer("GET", "", 200, {"kind": "Node"}))
    await client.request("GET", path_of("/api/v1", "nodes", "", name))
    assert api.requests[0].path == f"/api/v1/nodes/{name}"
    assert api.requests[0].query == {}


def test_segment_escapes_every_character_that_a_path_cannot_have() -> None:
    for character in map(chr, range(0x180)):
        text = f"a{character}b{character}"
        assert segment(text) == quote(text, safe=":"), repr(character)


async def test_429_is_retried_after_the_time_that_the_server_names(api: KubeApi) -> None:
    await api.put("nodes", "n1")
    api.answers.append(Answer("GET", "/n1", 429, RETRY, {"Retry-After": "7"}))
    async with with_a_clock(Connection(master=api.url, qps=-1)) as (client, clock):
        asked = asyncio.ensure_future(client.request("GET", "/api/v1/nodes/n1"))
        await until(lambda: clock.next_timer_s() is not None)
        assert clock.next_timer_s() == 7.0
        assert len(api.requests) == 1
        clock.advance(7.0)
        assert (await asked)["kind"] == "Node"
    assert len(api.requests) == 2


async def test_429_with_a_wait_beyond_the_timeout_is_an_error(api: KubeApi, client: KubeClient) -> None:
    api.answers.append(Answer("GET", "/n1", 429, RETRY, {"Retry-After": "60"}))
    with pytest.raises(TooManyRequestsError, match="please try again later") as caught:
        await client.request("GET", "/api/v1/nodes/n1")
    assert caught.value.retry_after_s == 60
    assert len(api.requests) == 1


async def test_500_without_retry_after_is_not_retried(api: KubeApi, client: KubeClient) -> None:
    api.answers.append(Answer("POST", "/binding", 500, {"kind": "Status", "message": "etcd is away"}))
    with pytest.raises(UnavailableError, match="etcd is away"):
        await client.request("POST", "/api/v1/namespaces/default/pods/web/binding", body=b"{}")
    assert len(api.requests) == 1


async def test_no_answer_in_time_is_its_own_error(api: KubeApi, client: KubeClient) -> None:
    api.answers.append(Answer("GET", "/n1", 200, {}, wait_s=5.0))
    with pytest.raises(TimedOutError, match=r"nodes 'n1': no answer from http://\S+ within 0.1 s"):
        await client.request("GET", "/api/v1/nodes/n1", timeout_s=0.1, resource="nodes", key="n1")


async def test_refused_connection_says_where_and_what_to_look_at(api: KubeApi) -> None:
    client = await KubeClient.open(Connection(master="http://127.0.0.1:9"))
    with pytest.raises(UnavailableError) as caught:
        await client.request("GET", "/version", resource="version")
    await client.close()
    text = str(caught.value)
    assert isinstance(caught.value, RepeatableError)
    assert "cannot connect to http://127.0.0.1:9" in text
    assert text.endswith("is the API server running, and the address right?")
    assert "\n" not in text


async def test_forbidden_is_forbidden(api: KubeApi, client: KubeClient) -> None:
    message = 'pods is forbidden: User "x" cannot list resource "pods"'
    api.answers.append(Answer("GET", "/pods", 403, {"kind": "Status", "code": 403, "message": message}))
    with pytest.raises(ForbiddenError, match="cannot list resource"):
        await client.request("GET", "/api/v1/pods")


async def test_answer_that_is_no_json_is_unavailable(api: KubeApi, client: KubeClient) -> None:
    api.answers.append(Answer("GET", "/n1", 200, b"<html>"))
    with pytest.raises(UnavailableError, match="answered no JSON"):
        await client.request("GET", "/api/v1/nodes/n1")


async def test_condition_to_stop_sending_is_asked_before_every_try(api: KubeApi) -> None:
    asked = 0

    def stop_at_the_second() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise UnavailableError("", "", "cut")

    api.answers.append(Answer("GET", "/n1", 429, RETRY, {"Retry-After": "1"}))
    async with with_a_clock(Connection(master=api.url, qps=-1)) as (client, clock):
        asking = client.request("GET", "/api/v1/nodes/n1", before_sending=stop_at_the_second)
        asked_again = asyncio.ensure_future(asking)
        await until(lambda: clock.next_timer_s() is not None)
        clock.advance(1.0)
        with pytest.raises(UnavailableError, match="cut"):
            await asked_again
    assert len(api.requests) == 1


async def test_requests_beyond_the_burst_wait_for_the_rate_limit(api: KubeApi) -> None:
    await api.put("nodes", "n1")
    async with with_a_clock(Connection(master=api.url, qps=50, burst=5)) as (client, clock):
        calls = [asyncio.ensure_future(client.request("GET", "/api/v1/nodes/n1")) for _ in range(8)]
        await asyncio.gather(*calls[:5])
        await client.request("GET", "/api/v1/nodes/n1", limited=False)
        assert len(api.requests) == 6
        for turn, call in enumerate(calls[5:], start=1):
            assert clock.next_timer_s() == pytest.approx(turn / 50)
            clock.advance_to(turn / 50 + 1e-6)
            await call
    assert len(api.requests) == 9


async def test_concurrent_requests_are_limited_and_waiting_for_a_turn_is_not_timed(api: KubeApi) -> None:
    """A request whose turn comes after an hour is still retried; an unlimited request does not wait."""
    for name in ("early", "late"):
        await api.put("nodes", name)
    api.held = asyncio.Event()
    async with with_a_clock(Connection(master=api.url, qps=-1)) as (client, clock):

        def begun(name: str, *, limited: bool = True) -> asyncio.Future[object]:
            return asyncio.ensure_future(client.request("GET", f"/api/v1/nodes/{name}", limited=limited))

        early = [begun("early") for _ in range(MAX_UNDER_WAY)]
        await until(lambda: len(api.requests) == MAX_UNDER_WAY)
        late = begun("late")
        passing = begun("early", limited=False)
        await until(lambda: len(api.requests) == MAX_UNDER_WAY + 1)
        api.answers.append(Answer("GET", "/late", 429, RETRY, {"Retry-After": "1"}))
        clock.advance(3600.0)
        api.held.set()
        await asyncio.gather(*early, passing)
        await until(lambda: clock.next_timer_s() is not None)
        clock.advance(1.5)
        await late
    names = [seen.path.rpartition("/")[2] for seen in api.requests]
    assert names[MAX_UNDER_WAY:] == ["early", "late", "late"]


@pytest.fixture
async def counted(api: KubeApi) -> AsyncIterator[tuple[KubeClient, RestClientMetrics]]:
    metrics = RestClientMetrics()
    client = await KubeClient.open(Connection(master=api.url), metrics)
    yield client, metrics
    await client.close()


async def test_requests_are_counted_by_code_and_method(
    api: KubeApi, counted: tuple[KubeClient, RestClientMetrics]
) -> None:
    client, metrics = counted
    await api.put("nodes", "n1")
    await client.request("GET", "/api/v1/nodes/n1")
    authority = api.url.removeprefix("http://")
    assert metrics.requests.value(("200", authority, "GET")) == 1
