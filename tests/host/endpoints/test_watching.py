"""Watches of `/berth/v1`: what a reader gets, a slow reader, and a reader that leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from berth_host.endpoints import watching
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.request_response import Answer, Request, failure
from berth_host.endpoints.watching import Listed, Watches
from support.waiting import PATIENCE_S, until

PATH = "/berth/v1/things"
ASKED = Request(method="GET", path=PATH, query={"watch": ["true"]})
SOON_S = 0.005


class Things:
    """An answer with a list, that the test changes. `made`: how often it was made."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.more: dict[str, Any] = {"name": "first"}
        self.error: Answer | None = None
        self.made = 0
        self.watches = Watches(self.make, {PATH: Listed("things", "key")}, SOON_S)

    async def make(self, request: Request) -> dict[str, Any] | Answer:
        self.made += 1
        return self.error or {**self.more, "things": list(self.rows.values()), "answeredAt": f"t{self.made}"}

    def put(self, key: str, **values: Any) -> None:
        self.rows[key] = {"key": key, **values}


async def parts_of(things: Things, request: Request = ASKED) -> AsyncGenerator[bytes, None]:
    answer = await things.watches.answer(request)
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    assert answer.parts is not None
    return answer.parts


async def following(parts: AsyncGenerator[bytes, None]) -> tuple[str, Any]:
    """Return name and data of the next event that is not the time."""
    async for part in parts:
        name, _, data = part.decode().partition("\n")
        if name.startswith("event: ") and name != "event: at":
            return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))
    raise AssertionError("the stream ended")


async def test_reader_gets_the_answer_and_then_what_changed() -> None:
    things = Things()
    things.put("a", size=1)
    things.put("b", size=2)
    async with aclosing(await parts_of(things)) as parts:
        name, data = await following(parts)
        assert name == "state"
        assert data.pop("at") in ("t1", "t2")
        assert data == {
            "rows": [{"key": "a", "size": 1}, {"key": "b", "size": 2}],
            "gone": [],
            "list": "things",
            "key": "key",
            "value": {"name": "first"},
        }
        things.put("b", size=3)
        del things.rows["a"]
        assert await following(parts) == ("change", {"rows": [{"key": "b", "size": 3}], "gone": ["a"]})
        things.more = {"name": "second"}
        name, data = await following(parts)
        assert (name, data["value"], data["rows"]) == ("change", {"name": "second"}, [])


async def test_many_rows_come_in_several_events() -> None:
    things = Things()
    for number in range(watching.ROWS_PER_EVENT + 1):
        things.put(f"{number}")
    async with aclosing(await parts_of(things)) as parts:
        first, second = await following(parts), await following(parts)
        assert (first[0], len(first[1]["rows"])) == ("state", watching.ROWS_PER_EVENT)
        assert (second[0], len(second[1]["rows"])) == ("change", 1)


async def test_answer_without_a_list_is_sent_whole_when_it_changes() -> None:
    things = Things()
    request = Request(method="GET", path="/berth/v1/one", query={"watch": ["true"]})
    async with aclosing(await parts_of(things, request)) as parts:
        assert (await following(parts))[1]["value"] == {"name": "first", "things": []}
        things.more = {"name": "second"}
        assert (await following(parts))[1]["value"]["name"] == "second"


async def test_error_is_told_and_the_stream_goes_on() -> None:
    things = Things()
    things.put("a")
    async with aclosing(await parts_of(things)) as parts:
        await following(parts)
        things.error = failure(503, "ServiceUnavailable", "not now")
        name, data = await following(parts)
        assert (name, data["message"]) == ("problem", "not now")
        things.error = None
        things.put("b")
        while (found := await following(parts))[0] == "problem":
            pass
        assert found == ("change", {"rows": [{"key": "b"}], "gone": []})


async def test_error_of_the_first_answer_is_the_answer() -> None:
    things = Things()
    things.error = failure(404, "NotFound", "no such thing")
    answer = await things.watches.answer(ASKED)
    assert (answer.status, answer.parts) == (404, None)


async def test_slow_reader_gets_the_newest_state_alone() -> None:
    things = Things()
    async with aclosing(await parts_of(things)) as parts:
        await following(parts)
        for number in range(100):
            things.put("a", number=number)
            await asyncio.sleep(0)
        assert await following(parts) == ("change", {"rows": [{"key": "a", "number": 99}], "gone": []})


async def test_stream_beyond_the_most_is_refused_until_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_READERS", 1)
    things = Things()
    async with aclosing(await parts_of(things)) as parts:
        await anext(parts)
        refused = await things.watches.answer(ASKED)
        assert (refused.status, b"close a page" in refused.body) == (429, True)
    assert (await things.watches.answer(ASKED)).status == 200


async def test_readers_that_come_at_once_share_an_answer_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "MOST_READERS", 3)
    made = 0

    async def make(request: Request) -> dict[str, Any] | Answer:
        nonlocal made
        made += 1
        for _ in range(10):
            await asyncio.sleep(0)
        return {"things": []}

    watches = Watches(make, {PATH: Listed("things", "key")}, PATIENCE_S)
    answers = await asyncio.gather(*(watches.answer(ASKED) for _ in range(8)))
    assert made == 1
    assert sorted(one.status for one in answers) == [200] * 3 + [429] * 5
    for one in answers:
        if isinstance(one.parts, AsyncGenerator):
            await one.parts.aclose()  # as for readers that left before the first byte
    assert watches.reader_count == 0


async def test_stream_ends_so_that_rights_are_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "STREAM_S", 0.02)
    parts = await parts_of(Things())
    async with asyncio.timeout(PATIENCE_S):
        assert len([part async for part in parts]) > 1


async def test_answer_that_takes_long_leaves_no_reader_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "MOST_PAUSE_S", SOON_S)
    monkeypatch.setattr(watching, "SHARE", 1e6)
    things = Things()

    async def slow(request: Request) -> dict[str, Any] | Answer:
        await asyncio.sleep(SOON_S)
        return await things.make(request)

    things.watches = Watches(slow, {PATH: Listed("things", "key")}, SOON_S)
    async with asyncio.timeout(PATIENCE_S), aclosing(await parts_of(things)) as parts:
        times = 0
        while times < 3:
            times += (await anext(parts)).startswith(b"event: at")


@asynccontextmanager
async def over_http(things: Things) -> AsyncIterator[tuple[LoopbackServer, aiohttp.ClientSession]]:
    server = LoopbackServer(things.watches.answer)
    await server.start(0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            yield server, session
    finally:
        await server.stop()


async def test_reader_that_leaves_ends_its_task() -> None:
    things = Things()
    async with over_http(things) as (_, session):
        async with session.get(PATH) as response:
            assert await response.content.readline() == b"retry: 1000\n"
            assert things.watches.reader_count == 1
        await until(lambda: not things.watches.reader_count)
        made = things.made
        await asyncio.sleep(10 * SOON_S)
        assert things.made == made


async def test_reader_that_takes_nothing_makes_the_host_stop_looking() -> None:
    things = Things()
    async with over_http(things) as (server, session):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**12)
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        stands, last = 0, -1
        async with asyncio.timeout(PATIENCE_S):
            while stands < 20:
                things.put("big", text=f"{things.made:07}" * 2**17)
                await asyncio.sleep(2 * SOON_S)
                stands, last = (stands + 1, last) if things.made == last else (0, things.made)
        # Another reader is served meanwhile.
        async with session.get(PATH) as response:
            assert response.status == 200
        things.put("big", text="newest")
        async with asyncio.timeout(PATIENCE_S):
            await found(reader, b'"text":"newest"')
        writer.close()


async def found(reader: asyncio.StreamReader, text: bytes) -> None:
    """Read until `text` has come."""
    kept = b""
    while text not in kept:
        data = await reader.read(2**16)
        assert data
        kept = kept[-len(text) :] + data
