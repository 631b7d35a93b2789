"""The page's files, on the secure port and on loopback: who may read them, and what the browser may load."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import berth_host
import pytest
import pytest_asyncio
from berth_host.config.loading import default_configuration
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.request_response import Answer, Request, as_json
from berth_host.endpoints.ui import Ui
from berth_host.errors.endpoints import EndpointError
from berth_host.model.user import User
from support.serving import FakeProcess, FakeSettings, KnownUsers, Served, served

FILES = Path(berth_host.__file__).parent / "ui"


class Readers(KnownUsers):
    """A user with the rights that the chart grants with `ui.enabled`, and one without."""

    def __init__(self) -> None:
        super().__init__({"reads": User(name="reader"), "other": User(name="other")})

    async def may(self, user: User, verb: str, path: str) -> bool:
        return user.name == "reader" and verb == "get" and (path == "/ui" or path.startswith("/ui/"))


@pytest_asyncio.fixture
async def port() -> AsyncIterator[Served]:
    settings = FakeSettings(serving=ServingOptions(ui=True))
    async with served(FakeProcess(default_configuration()), Readers(), settings) as port:
        yield port


@pytest_asyncio.fixture
async def loopback() -> AsyncIterator[LoopbackServer]:
    async def answers(request: Request) -> Answer:
        return as_json({"path": request.path})

    server = LoopbackServer(answers)
    await server.start(0)
    yield server
    await server.stop()


async def test_page_is_served_to_users_with_the_right_alone(port: Served) -> None:
    reply = await port.ask("GET", "/ui/", token="reads")
    assert (reply.status, reply.content_type) == (200, "text/html; charset=utf-8")
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'self'; ")
    assert (await port.ask("GET", "/ui/", token="other")).status == 403
    assert (await port.ask("GET", "/ui/app.js")).status == 403
    assert (await port.ask("GET", "/ui/", token="wrong")).status == 401


async def test_address_without_the_slash_leads_to_the_page(port: Served) -> None:
    reply = await port.ask("GET", "/ui", token="reads", allow_redirects=False)
    assert (reply.status, reply.headers["Location"]) == (308, "ui/")


async def test_page_is_off_by_default() -> None:
    async with served(FakeProcess(default_configuration()), Readers()) as port:
        assert (await port.ask("GET", "/ui/", token="reads")).status == 404


async def test_only_files_of_the_page_are_served(port: Served) -> None:
    for path in ("/ui/none.js", "/ui/../secure_port.py", "/ui/%2e%2e/secure_port.py", "/ui/ui.css/"):
        assert (await port.ask("GET", path, token="reads")).status in (403, 404)
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
    for file in FILES.iterdir():
        reply = await port.ask("GET", f"/ui/{file.name}", token="reads")
        assert (reply.status, str(reply.content_type).partition(";")[0]) == (200, types[file.suffix[1:]])


def test_page_names_nothing_of_another_server() -> None:
    for file in FILES.iterdir():
        text = file.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|url\(|@import", text), file.name
        for name in re.findall(r'(?:from|src=|href=) ?"\.?/?([a-z]+\.(?:js|css|svg))"', text):
            assert (FILES / name).exists()


async def test_loopback_serves_the_page_and_the_answers(loopback: LoopbackServer) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{loopback.port}") as session:
        async with session.get("/") as response:
            assert (response.status, response.url.path) == (200, "/ui/")
        async with session.get("/berth/v1/plugins") as response:
            assert await response.json() == {"path": "/berth/v1/plugins"}
        async with session.get("/metrics") as response:
            assert response.status == 404
        async with session.post("/berth/v1/plugins") as response:
            assert response.status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "[::1]:{port}", ""])
async def test_loopback_answers_to_its_own_address_alone(loopback: LoopbackServer, host: str) -> None:
    headers = {"Host": host.format(port=loopback.port)}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{loopback.port}/berth/v1/plugins", headers=headers) as response,
    ):
        assert response.status == 421
        assert loopback.url in (await response.json())["message"]


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/berth/v1/pods/default/web/fit", 403),
        ("same-site", "/berth/v1/plugins", 403),
        ("same-origin", "/berth/v1/plugins", 200),
        ("none", "/berth/v1/plugins", 200),
        ("cross-site", "/ui/", 200),
    ],
)
async def test_loopback_answers_no_question_of_another_site(
    loopback: LoopbackServer, site: str, path: str, status: int
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{loopback.port}{path}", headers={"Sec-Fetch-Site": site}) as response,
    ):
        assert response.status == status
        if status == 403:
            assert loopback.url in (await response.json())["message"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("is_watched", [False, True], ids=["once", "watched"])
@pytest.mark.parametrize(
    "path", ["queue", "nodes", "plugins", "podgroups", "podgroups/a/b", "pods/a/b", "pods/a/b/fit"]
)
async def test_right_to_the_page_alone_gives_no_answer(port: Served, path: str, *, is_watched: bool) -> None:
    address = f"/berth/v1/{path}{'?watch=true' if is_watched else ''}"
    for token in ("", "reads", "other"):
        reply = await port.ask("GET", address, token=token)
        assert reply.status == 403, token
    assert (await port.ask("GET", address, token="wrong")).status == 401


async def test_port_that_is_in_use_is_named_with_the_cure(loopback: LoopbackServer) -> None:
    async def answers(request: Request) -> Answer:
        return Answer()

    with pytest.raises(EndpointError, match=rf"127.0.0.1:{loopback.port}: the port is in use; choose"):
        await LoopbackServer(answers).start(loopback.port)


async def test_page_loads_further_modules_where_a_program_gives_some() -> None:
    script = b"export {};\n"
    ui, plain = Ui({"more.js": script}), Ui()
    page = await ui.answer(Request(method="GET", path="/ui/"))
    assert page.body.count(b'<script type="module" src="more.js"></script>\n</head>') == 1
    assert (await ui.answer(Request(method="GET", path="/ui/index.html"))).body == page.body
    module = await ui.answer(Request(method="GET", path="/ui/more.js"))
    assert (module.body, module.content_type) == (script, "text/javascript; charset=utf-8")
    assert b"more.js" not in (await plain.answer(Request(method="GET", path="/ui/"))).body
    assert (await plain.answer(Request(method="GET", path="/ui/more.js"))).status == 404
