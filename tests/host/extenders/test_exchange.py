"""One HTTP exchange with an extender, over real sockets: what is sent, and every way in which it fails.

The messages are those of Go's net/http for the same bytes, where the test does not say otherwise.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from berth_bench.versus.free_ports import free_port
from berth_host.config.decoding.types_v1 import Extender, ExtenderTls
from berth_host.errors.extenders import ExtenderError, ExtenderOutcomeUnknownError
from berth_host.extenders import exchange
from berth_host.extenders.exchange import MOST_ANSWERED, Exchange
from support.certificates import Authority, PairFiles, pair_files
from support.raw_http import RawServer, Request, answer, raw_server, stream_server
from support.waiting import PATIENCE_S

CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TEN_BYTES: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
BROKEN: Final = "net/http: HTTP/1.x transport connection broken: "
BODY: Final = b'{"Pod":null}'


@asynccontextmanager
async def exchanging(url: str, **settings: Any) -> AsyncIterator[Exchange]:
    settings.setdefault("given_http_timeout_s", 30.0)
    client = Exchange(Extender(url_prefix=url, filter_verb="filter", bind_verb="bind", **settings))
    try:
        yield client
    finally:
        await client.close()


async def failure(client: Exchange, verb: str = "filter") -> ExtenderError:
    with pytest.raises(ExtenderError) as caught:
        await client.post(verb, BODY)
    return caught.value


async def failure_at(server: RawServer, **settings: Any) -> tuple[str, str]:
    """Return the message, with URL in place of the server's, and the outcome."""
    async with exchanging(server.url, **settings) as client:
        err = await failure(client)
    return str(err).replace(server.url, "URL").replace(server.address, "ADDRESS"), err.outcome


def never(_: Request) -> Awaitable[bytes | None]:
    return asyncio.get_running_loop().create_future()


# --- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "line"),
    [("", "POST /filter"), ("/", "POST /filter"), ("/a/b", "POST /a/b/filter"), ("/a//", "POST /a/filter")],
)
async def test_request_is_kube_schedulers(prefix: str, line: str) -> None:
    async with raw_server(answer()) as server, exchanging(server.url + prefix) as client:
        assert await client.post("filter", BODY) == b"{}"
    (request,) = server.requests
    assert (request.line, request.body) == (line, BODY)
    assert request.headers == {
        "Host": server.address,
        "User-Agent": "Go-http-client/1.1",
        "Content-Length": str(len(BODY)),
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip",
    }


async def test_large_request_arrives_whole_with_its_length() -> None:
    body = b'"' + b"x" * 20_000_000 + b'"'
    async with raw_server(answer()) as server, exchanging(server.url) as client:
        await client.post("filter", body)
    assert server.requests[0].body == body
    assert "Transfer-Encoding" not in server.requests[0].headers


async def test_user_and_password_go_into_a_header_and_never_into_a_message() -> None:
    async with raw_server(answer(status=500)) as server:
        url = server.url.replace("//", "//someone:hunter2@")
        async with exchanging(url) as client:
            refused = await failure(client)
    assert server.requests[0].headers["Authorization"] == "Basic c29tZW9uZTpodW50ZXIy"
    assert "hunter2" not in f"{refused!r} {refused}"
    assert "code 500" in str(refused)
    async with exchanging(f"http://someone:hunter2@127.0.0.1:{free_port()}") as client:
        unreachable = await failure(client)
    assert "hunter2" not in f"{unreachable!r} {unreachable}"
    assert "connection refused" in str(unreachable)


async def test_connections_are_kept_and_one_exchange_waits_for_no_other() -> None:
    release = asyncio.Event()

    async def answering(request: Request) -> bytes:
        if request.body == b"slow":
            await release.wait()
        return answer()

    async with raw_server(answering) as server, exchanging(server.url) as client:
        for _ in range(5):
            await client.post("filter", BODY)
        assert server.connections == 1
        slow = asyncio.ensure_future(client.post("filter", b"slow"))
        await client.post("filter", BODY)
        await client.post("filter", BODY)
        release.set()
        await slow
        assert server.connections == 2


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_proxies_are_not_asked_about_this_machine(
    monkeypatch: pytest.MonkeyPatch, variable: str, host: str
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}")
    async with raw_server(answer()) as server, exchanging(f"http://{host}:{server.port}") as client:
        assert await client.post("filter", BODY) == b"{}"


async def test_proxy_of_the_environment_is_asked_about_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with raw_server(answer(b'"proxied"')) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with exchanging("http://extender.example/x") as client:
            assert await client.post("filter", BODY) == b'"proxied"'
    assert proxy.requests[0].line == "POST http://extender.example/x/filter"


# --- answers that are read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (answer('{"a":1}'), b'{"a":1}'),
        (answer(gzip.compress(b'{"a":1}', mtime=0), Content_Encoding="gzip"), b'{"a":1}'),
        (answer(gzip.compress(b'{"a":1}', mtime=0), Content_Encoding="GZIP"), b'{"a":1}'),
        (CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", b"{}"),
        (CHUNKED + b"2;name=value\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", b"{}"),
        (b"HTTP/1.0 200 OK\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(), b"{}"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer(), b"{}"),
        (answer("x", Content_Encoding="unknown"), b"x"),
        (answer("x", X_Long="y" * 60_000), b"x"),
        (answer(b""), b""),
    ],
)
async def test_answer_is_the_body_of_status_200(given: bytes, body: bytes) -> None:
    async with raw_server(given, keeps=False) as server, exchanging(server.url) as client:
        assert await client.post("filter", BODY) == body


@pytest.mark.parametrize("given", [TEN_BYTES + b"{}", CHUNKED + b"2\r\n{}\r\n"])
async def test_whole_json_value_counts_although_its_body_is_cut_off_or_never_ends(given: bytes) -> None:
    # Go's decoder stops at the end of the first value.
    async with raw_server(given, keeps=False) as server, exchanging(server.url) as client:
        assert await client.post("filter", BODY) == b"{}"
    async with raw_server(given) as server, exchanging(server.url, given_http_timeout_s=1.0) as client:
        assert await client.post("filter", BODY) == b"{}"


# --- redirects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "line", "body"),
    [
        (301, "GET /there", b""),
        (302, "GET /there", b""),
        (303, "GET /there", b""),
        (307, "POST /there", BODY),
        (308, "POST /there", BODY),
    ],
)
async def test_redirect_is_followed_as_net_http_follows_it(status: int, line: str, body: bytes) -> None:
    def answering(request: Request) -> bytes:
        return answer() if "/there" in request.line else answer(status=status, Location="/there")

    async with raw_server(answering) as server, exchanging(server.url) as client:
        assert await client.post("filter", BODY) == b"{}"
    assert (server.requests[1].line, server.requests[1].body) == (line, body)
    headers = server.requests[1].headers
    assert headers["Referer"] == f"{server.url}/filter"
    assert ("Content-Type" in headers) == bool(body)


async def test_referer_of_a_redirect_holds_no_password() -> None:
    def answering(request: Request) -> bytes:
        return answer() if "/there" in request.line else answer(status=307, Location="/there")

    async with (
        raw_server(answering) as server,
        exchanging(server.url.replace("://", "://user:secret@")) as client,
    ):
        assert await client.post("filter", BODY) == b"{}"
    assert server.requests[1].headers["Referer"] == f"{server.url}/filter"


async def test_redirects_without_end_are_given_up_after_ten() -> None:
    def answering(request: Request) -> bytes:
        return answer(status=302, Location=f"/{len(server.requests)}")

    async with raw_server(answering) as server:
        text, outcome = await failure_at(server)
    # As in net/http, the place is the text of the last redirect's header.
    assert (text, outcome) == ('Post "/10": stopped after 10 redirects', "unavailable")
    assert len(server.requests) == 10


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
async def test_redirect_without_a_place_is_a_status_that_is_not_200(status: int) -> None:
    async with raw_server(answer(b"", status)) as server:
        expected = f"failed filter with extender at URL URL/filter, code {status}"
        assert await failure_at(server) == (expected, "refused")


async def test_message_names_the_place_of_a_redirect_that_failed_and_a_binding_may_have_happened() -> None:
    port = free_port()
    async with (
        raw_server(answer(status=302, Location=f"http://127.0.0.1:{port}/x")) as server,
        exchanging(server.url) as client,
    ):
        err = await failure(client, "bind")
    where = f'Post "http://127.0.0.1:{port}/x": dial tcp 127.0.0.1:{port}'
    assert str(err) == f"{where}: connect: connection refused"
    assert isinstance(err, ExtenderOutcomeUnknownError)


async def test_redirect_to_another_scheme_is_an_error() -> None:
    async with raw_server(answer(status=302, Location="ftp://x/y")) as server:
        text, _ = await failure_at(server)
    assert text == 'Post "ftp://x/y": unsupported protocol scheme "ftp"'


# --- failures --------------------------------------------------------------------------------------------


async def test_refused_connection_is_named_and_certainly_had_no_effect() -> None:
    port = free_port()
    async with exchanging(f"http://127.0.0.1:{port}") as client:
        err = await failure(client)
    where = f'Post "http://127.0.0.1:{port}/filter": dial tcp 127.0.0.1:{port}'
    assert str(err) == f"{where}: connect: connection refused"
    assert (err.outcome, isinstance(err, ExtenderOutcomeUnknownError)) == ("unavailable", False)


async def test_address_of_ipv6_is_in_brackets() -> None:
    # The port is closed, and machines without IPv6 fail, too: either way the address is named.
    async with exchanging("http://[::1]:1") as client:
        err = await failure(client)
    assert str(err).startswith('Post "http://[::1]:1/filter": dial tcp [::1]:1: connect: ')


async def test_unknown_host_is_named_and_certainly_had_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    async with exchanging("http://nobody.invalid:80") as client:
        err = await failure(client)
    assert str(err) == 'Post "http://nobody.invalid:80/filter": dial tcp: lookup nobody.invalid: no such host'
    assert not isinstance(err, ExtenderOutcomeUnknownError)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1", 'Post "ftp://127.0.0.1/filter": unsupported protocol scheme "ftp"'),
        ("localhost:1", 'Post "localhost:1/filter": unsupported protocol scheme "localhost"'),
        (
            "127.0.0.1:1",
            'parse "127.0.0.1:1/filter": first path segment in URL cannot contain colon',
        ),
        ("http://[::1", "parse \"http://[::1/filter\": missing ']' in host"),
        ("http://h:port", 'parse "http://h:port/filter": invalid port ":port" after host'),
        ("http://h:99999", 'Post "http://h:99999/filter": dial tcp: address 99999: invalid port'),
        ("", 'Post "/filter": unsupported protocol scheme ""'),
    ],
)
async def test_url_that_is_none_is_an_error_at_the_call(url: str, words: str) -> None:
    async with exchanging(url) as client:
        err = await failure(client)
    assert str(err) == words
    assert not isinstance(err, ExtenderOutcomeUnknownError)


@pytest.mark.parametrize("status", [100 + 101, 204, 400, 401, 404, 409, 429, 500, 502, 503])
async def test_any_status_but_200_is_a_failure(status: int) -> None:
    async with raw_server(answer(b"" if status == 204 else b"{}", status)) as server:
        expected = f"failed filter with extender at URL URL/filter, code {status}"
        assert await failure_at(server) == (expected, "refused")


async def test_extender_that_does_not_answer_in_time_is_a_timeout() -> None:
    async with raw_server(never) as server:
        expected = (
            'Post "URL/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        )
        assert await failure_at(server, given_http_timeout_s=0.05) == (expected, "timeout")


async def test_negative_timeout_is_no_limit() -> None:
    async with raw_server(answer()) as server, exchanging(server.url, given_http_timeout_s=-1.0) as client:
        assert await client.post("filter", BODY) == b"{}"


@pytest.mark.parametrize("given", [b"HTTP/1.1 200 OK\r\nConte", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_head_that_does_not_end_in_time_is_a_timeout(given: bytes) -> None:
    async with raw_server(given) as server:
        text, outcome = await failure_at(server, given_http_timeout_s=0.1)
    assert outcome == "timeout"
    assert text.endswith("(Client.Timeout exceeded while awaiting headers)")


@pytest.mark.parametrize("given", [TEN_BYTES, TEN_BYTES + b'{"a"', CHUNKED + b'5\r\n{"a"'])
async def test_body_that_does_not_end_in_time_is_a_timeout(given: bytes) -> None:
    async with raw_server(given) as server:
        expected = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        assert await failure_at(server, given_http_timeout_s=1.0) == (expected, "timeout")


async def test_body_that_comes_byte_by_byte_has_the_time_of_the_whole_exchange() -> None:
    async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.005)

    async with (
        asyncio.timeout(PATIENCE_S),
        stream_server(dripping) as port,
        exchanging(f"http://127.0.0.1:{port}", given_http_timeout_s=0.2) as client,
    ):
        assert (await failure(client)).outcome == "timeout"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, 'Post "URL/filter": EOF'),
        (b"HTTP/1.1 200 OK\r\n", f'Post "URL/filter": {BROKEN}unexpected EOF'),
        (TEN_BYTES, "unexpected EOF"),
        (TEN_BYTES + b'{"a":', "unexpected EOF"),
        (CHUNKED + b'5\r\n{"a"', "unexpected EOF"),
        (CHUNKED + b'2\r\n{"\r\n', "unexpected EOF"),
        (
            answer(gzip.compress(b'{"a":"' + bytes(range(256)) * 40)[:-99], Content_Encoding="gzip"),
            "unexpected EOF",
        ),
        (answer(b"{} and no gzip", Content_Encoding="gzip"), "gzip: invalid header"),
    ],
)
async def test_answer_that_is_cut_off_is_an_end_of_file(given: bytes | None, words: str) -> None:
    async with raw_server(given, keeps=False) as server:
        text, _ = await failure_at(server)
    assert text == words


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"garbage\r\n\r\n", 'malformed HTTP response "garbage"'),
        (b"SSH-2.0-OpenSSH_9.9\r\n", 'malformed HTTP response "SSH-2.0-OpenSSH_9.9"'),
        (b"200 OK\r\n\r\n", 'malformed HTTP status code "OK"'),
        (b"HTTP/1.1 abc OK\r\n\r\n", 'malformed HTTP status code "abc"'),
        (b"HTTP/1.1 20 OK\r\n\r\n", 'malformed HTTP status code "20"'),
        (b"HTTP/2 200 OK\r\n\r\n", 'malformed HTTP version "HTTP/2"'),
    ],
)
async def test_bytes_that_are_no_http_are_shown_as_net_http_shows_them(given: bytes, words: str) -> None:
    async with raw_server(given) as server:
        assert await failure_at(server) == (f'Post "URL/filter": {BROKEN}{words}', "unavailable")


@pytest.mark.parametrize(
    "given",
    [
        b"\x00\x01\x02\xff\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b'2\r\n{"\r\nzz\r\n',
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(50_000)) + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10_000_000 + b"\r\n\r\n{}",
        b"y" * 10_000_000,
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}",
    ],
)
async def test_every_other_broken_answer_is_an_error_of_one_line(given: bytes) -> None:
    async with raw_server(given, keeps=False) as server:
        text, outcome = await failure_at(server)
    assert "\n" not in text
    assert len(text) < 1000
    assert " object at 0x" not in text
    assert outcome in {"unavailable", "cut_off", "refused"}


# --- kept connections that the extender closes -----------------------------------------------------------


async def test_question_on_a_connection_that_closes_meanwhile_is_asked_once_more() -> None:
    def answering(request: Request) -> bytes | None:
        # Closed when the second request has arrived: as late as it can be.
        return answer() if len(server.requests) != 2 else None

    async with raw_server(answering) as server, exchanging(server.url) as client:
        assert await client.post("filter", BODY) == b"{}"
        assert await client.post("filter", BODY) == b"{}"
    assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_question_is_asked_once_more_and_not_twice() -> None:
    async with (
        raw_server(lambda _: answer() if len(server.requests) == 1 else None) as server,
        exchanging(server.url) as client,
    ):
        await client.post("filter", BODY)
        assert str(await failure(client)).endswith("EOF")
    assert len(server.requests) == 3


async def test_question_on_a_new_connection_is_not_repeated() -> None:
    async with raw_server(None) as server, exchanging(server.url) as client:
        await failure(client)
    assert len(server.requests) == 1


async def test_binding_is_never_sent_twice() -> None:
    async with (
        raw_server(lambda _: answer() if len(server.requests) == 1 else None) as server,
        exchanging(server.url) as client,
    ):
        await client.post("bind", BODY)
        err = await failure(client, "bind")
    assert len(server.requests) == 2
    assert isinstance(err, ExtenderOutcomeUnknownError)


async def test_extender_that_comes_back_is_reached_again() -> None:
    async with exchanging(f"http://127.0.0.1:{free_port()}") as client:
        await failure(client)
    async with raw_server(answer(status=500)) as server, exchanging(server.url) as client:
        await failure(client)
        server.answering = lambda _: answer()
        for writer in list(server.open_now):
            writer.transport.abort()
        assert await client.post("filter", BODY) == b"{}"


# --- bounds ----------------------------------------------------------------------------------------------


HUGE: Final = 100_000_000
PEAK: Final = 3 * MOST_ANSWERED
"""More than the body that is allowed, and less than a body that is not."""


async def peak_of(head: bytes, pieces: AsyncIterator[bytes]) -> tuple[ExtenderError, int]:
    """Return the error of an answer that comes in pieces, and the highest memory that it took here."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()

    async with stream_server(serve) as port, exchanging(f"http://127.0.0.1:{port}") as client:
        tracemalloc.start()
        try:
            err = await failure(client)
            return err, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


async def repeated(piece: bytes, size: int) -> AsyncIterator[bytes]:
    for _ in range(size // len(piece)):
        yield piece


@pytest.mark.parametrize("how", ["length", "chunks", "until the end", "gzip"])
async def test_huge_body_is_refused_in_bounded_memory(how: str) -> None:
    piece = b"x" * 2**20
    if how == "gzip":
        head, pieces = answer(_bomb(), Content_Encoding="gzip"), repeated(b"x", 0)
    elif how == "length":
        head, pieces = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % HUGE, repeated(piece, HUGE)
    elif how == "chunks":
        head, pieces = CHUNKED, repeated(b"100000\r\n" + piece + b"\r\n", HUGE)
    else:
        head, pieces = b"HTTP/1.1 200 OK\r\n\r\n", repeated(piece, HUGE)
    err, peak = await peak_of(head, pieces)
    assert str(err) == (
        "the answer is larger than 32 MiB: an extender should answer with the names of nodes"
        " (nodeCacheCapable: true)"
    )
    assert err.outcome == "too_large"
    assert peak < PEAK


def _bomb() -> bytes:
    """Return 400 MB as gzip."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    zeros = bytes(2**22)
    return b"".join(packer.compress(zeros) for _ in range(100)) + packer.flush()


async def test_answer_may_repeat_the_nodes_of_its_request() -> None:
    body = b"[" + b" " * (MOST_ANSWERED + 2**20) + b"]"
    async with raw_server(answer(body)) as server, exchanging(server.url) as client:
        assert await client.post("filter", b" " * 2**20) == body
        await failure(client)


# --- TLS -------------------------------------------------------------------------------------------------


class Party:
    """A server's files and a client's, each signed by an authority of its own."""

    def __init__(self, folder: Path, **issued: Any) -> None:
        self.of_server, self.of_clients = Authority("server-ca"), Authority("client-ca")
        self.server: PairFiles = pair_files(
            folder, "server", self.of_server.issue("s", **issued), self.of_clients
        )
        self.client: PairFiles = pair_files(folder, "client", self.of_clients.issue("c1"), self.of_server)

    def context(self, *, asks: bool = False) -> ssl.SSLContext:
        """Return the server's TLS. `asks`: it wants a certificate of its client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server.certificate, self.server.key)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.server.authority)
        return context

    def tls(self, **more: Any) -> ExtenderTls:
        return ExtenderTls(ca_file=str(self.client.authority), **more)


async def test_certificate_of_a_known_authority_is_accepted_from_file_and_data(tmp_path: Path) -> None:
    party = Party(tmp_path)
    async with raw_server(answer(), tls=party.context()) as server:
        for tls in (party.tls(), ExtenderTls(ca_data=party.of_server.pem)):
            async with exchanging(server.url, enable_https=True, tls=tls) as client:
                assert await client.post("filter", BODY) == b"{}"


async def test_certificate_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    party = Party(tmp_path)
    words = (
        'Post "URL/filter": tls: failed to verify certificate: x509: certificate signed by unknown authority'
    )
    async with raw_server(answer(), tls=party.context()) as server:
        for settings in (
            {"tls": ExtenderTls(ca_data=Authority("other").pem), "enable_https": True},
            {},  # an https URL alone is checked against the system's authorities
        ):
            assert await failure_at(server, **settings) == (words, "unavailable")
    assert not server.requests


async def test_https_without_an_authority_does_not_verify(tmp_path: Path) -> None:
    party = Party(tmp_path, dns="other.example", expired=True)
    async with raw_server(answer(), tls=party.context()) as server:
        for settings in ({"enable_https": True}, {"tls": ExtenderTls(insecure=True)}):
            async with exchanging(server.url, **settings) as client:
                assert await client.post("filter", BODY) == b"{}"


async def test_expired_certificate_is_refused(tmp_path: Path) -> None:
    party = Party(tmp_path, expired=True)
    async with raw_server(answer(), tls=party.context()) as server:
        text, _ = await failure_at(server, enable_https=True, tls=party.tls())
    assert text.endswith("x509: certificate has expired or is not yet valid")


async def test_server_name_decides_for_which_name_the_certificate_must_be(tmp_path: Path) -> None:
    party = Party(tmp_path, dns="extender.example")
    async with raw_server(answer(), tls=party.context()) as server:
        named = party.tls(server_name="extender.example")
        async with exchanging(server.url, enable_https=True, tls=named) as client:
            assert await client.post("filter", BODY) == b"{}"
        text, _ = await failure_at(server, enable_https=True, tls=party.tls())
        assert "x509: certificate is valid for another name: set tlsConfig.serverName" in text
        text, _ = await failure_at(server, enable_https=True, tls=party.tls(server_name="other.example"))
        assert "x509: certificate is valid for another name" in text


async def test_client_certificate_is_shown_from_files_and_data(tmp_path: Path) -> None:
    party = Party(tmp_path)
    files = party.tls(cert_file=str(party.client.certificate), key_file=str(party.client.key))
    data = party.tls(cert_data=party.client.certificate.read_bytes(), key_data=party.client.key.read_bytes())
    async with raw_server(answer(), tls=party.context(asks=True)) as server:
        for tls in (files, data):
            async with exchanging(server.url, enable_https=True, tls=tls) as client:
                assert await client.post("filter", BODY) == b"{}"


async def test_missing_client_certificate_is_named(tmp_path: Path) -> None:
    party = Party(tmp_path)
    async with raw_server(answer(), tls=party.context(asks=True)) as server:
        text, outcome = await failure_at(server, enable_https=True, tls=party.tls())
    # Where the server closes the connection at once, its alert may be lost.
    assert text.removeprefix('Post "URL/filter": ') in {
        "remote error: tls: certificate required",
        "connection reset by peer",
        "EOF",
    }
    assert outcome == "unavailable"
    assert not server.requests


async def test_client_certificate_that_is_renewed_on_disk_is_used_from_the_next_look_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = Party(tmp_path)
    shown: list[str] = []
    tls = party.tls(cert_file=str(party.client.certificate), key_file=str(party.client.key))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        subject = dict(pair for (pair,) in writer.get_extra_info("peercert")["subject"])
        shown.append(subject["commonName"])
        writer.write(answer(Connection="close"))
        await writer.drain()

    now_s = 1000.0
    monkeypatch.setattr(exchange, "work_s", lambda: now_s)
    async with (
        stream_server(serve, tls=party.context(asks=True)) as port,
        exchanging(f"https://127.0.0.1:{port}", enable_https=True, tls=tls) as client,
    ):
        await client.post("filter", BODY)
        party.client.put(party.of_clients.issue("c2"), party.of_server)
        await client.post("filter", BODY)
        now_s += 11.0
        await client.post("filter", BODY)
        # A half of a new pair: the pair before counts until the other half is there.
        party.client.key.write_bytes(party.of_clients.issue("c3").key)
        now_s += 11.0
        await client.post("filter", BODY)
        party.client.put(party.of_clients.issue("c3"), party.of_server)
        now_s += 11.0
        await client.post("filter", BODY)
    assert shown == ["c1", "c1", "c2", "c2", "c3"]


async def test_files_that_cannot_be_used_are_named_and_nothing_is_sent(tmp_path: Path) -> None:
    party = Party(tmp_path)
    tls = party.tls(cert_file=str(party.client.certificate), key_file=str(party.client.key))
    party.client.key.write_bytes(Authority().issue("x").key)
    async with (
        raw_server(answer(), tls=party.context(asks=True)) as server,
        exchanging(server.url, enable_https=True, tls=tls) as client,
    ):
        err = await failure(client)
        assert "the key is that of another certificate" in str(err)
        assert not isinstance(err, ExtenderOutcomeUnknownError)
        party.client.key.unlink()
        assert f"open {party.client.key}: no such file or directory" in str(await failure(client))
        party.client.put(party.of_clients.issue("c"), party.of_server)
        assert await client.post("filter", BODY) == b"{}"
    assert len(server.requests) == 1


async def test_http_where_https_is_expected_and_the_other_way_round(tmp_path: Path) -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(status=400))
        await writer.drain()

    async with stream_server(refusing) as port:
        url = f"https://127.0.0.1:{port}"
        async with exchanging(url, enable_https=True) as client:
            err = await failure(client)
    assert str(err) == f'Post "{url}/filter": http: server gave HTTP response to HTTPS client'
    async with (
        raw_server(answer(), tls=Party(tmp_path).context()) as secure,
        exchanging(secure.url.replace("https:", "http:")) as client,
    ):
        assert (await failure(client)).outcome == "unavailable"
