"""The page's requests, passed on to a secure port: answers, streams, refusals, and a host that is lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from berth_host.cli.kubectl.passing import Passing
from berth_host.endpoints.request_response import Answer, Request
from berth_host.model.user import User
from support.serving import FakeProcess, KnownUsers, Served, served
from support.waiting import PATIENCE_S

from .conftest import READS

UNSET = ("token_file", "certificate_authority", "client_certificate", "client_key", "kubeconfig", "context")
PLUGINS = Request(method="GET", path="/berth/v1/plugins")


def options(port: Served, token: str = "reads") -> dict[str, Any]:
    return {
        "server": f"https://127.0.0.1:{port.endpoints.server.port}",
        "token": token,
        "insecure_skip_tls_verify": True,
        **dict.fromkeys(UNSET, ""),
    }


async def body_of(answer: Answer) -> bytes:
    if answer.parts is None:
        return answer.body
    return b"".join([part async for part in answer.parts])


async def test_answers_and_refusals_come_as_they_are(port: Served) -> None:
    async with Passing(options(port)) as passing:
        answer = await passing.answer(PLUGINS)
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert b'"NodeResourcesFit"' in await body_of(answer)
        missing = Request(method="GET", path="/berth/v1/pods/default/none", query={"attempts": ["2"]})
        answer = await passing.answer(missing)
        assert (answer.status, b"no pod default/none" in await body_of(answer)) == (404, True)
    async with Passing(options(port, "other")) as passing:
        answer = await passing.answer(PLUGINS)
        assert (answer.status, b'User \\"other\\" cannot get path' in await body_of(answer)) == (403, True)


async def test_stream_is_passed_on_part_by_part(port: Served) -> None:
    async with Passing(options(port)) as passing:
        answer = await passing.answer(
            Request(method="GET", path="/berth/v1/queue", query={"watch": ["true"]})
        )
        assert answer.content_type == "text/event-stream"
        assert answer.parts is not None
        got = b""
        async with asyncio.timeout(PATIENCE_S):
            while b"event: state" not in got:
                got += await anext(answer.parts)
        await answer.parts.aclose()


async def test_host_that_is_lost_is_told_and_found_again(process: FakeProcess) -> None:
    users = KnownUsers({"reads": READS, "other": User(name="other")})
    async with served(process, users) as port:
        chosen = options(port)
        async with Passing(chosen) as passing:
            await body_of(await passing.answer(PLUGINS))
            await port.endpoints.stop()
            answer = await passing.answer(PLUGINS)
            assert (answer.status, b"cannot be reached" in answer.body) == (502, True)
            async with served(process, users) as other:
                chosen["server"] = options(other)["server"]
                answer = await passing.answer(PLUGINS)
                assert (answer.status, b'"NodeResourcesFit"' in await body_of(answer)) == (200, True)


async def test_token_that_has_expired_is_told_and_read_anew(port: Served, tmp_path: Path) -> None:
    chosen = options(port, "") | {"token_file": str(tmp_path / "token")}
    (tmp_path / "token").write_text("expired")
    async with Passing(chosen) as passing:
        answer = await passing.answer(PLUGINS)
        assert (answer.status, b"Unauthorized" in await body_of(answer)) == (401, True)
        (tmp_path / "token").write_text("reads")
        answer = await passing.answer(PLUGINS)
        assert (answer.status, b'"NodeResourcesFit"' in await body_of(answer)) == (200, True)


@pytest.mark.long
@pytest.mark.slow
async def test_command_serves_the_page_until_a_signal(port: Served) -> None:
    server = f"https://127.0.0.1:{port.endpoints.server.port}"
    arguments = ["ui", "--port", "0", "--server", server, "--token", "reads", "--insecure-skip-tls-verify"]
    started = "import sys; from berth_host.__main__ import kubectl; sys.exit(kubectl())"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", started, *arguments, stdout=PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            url = (await process.stdout.readline()).decode().split()[4]
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as response:
                    assert response.status == 200
                async with session.get(url.replace("/ui/", "/berth/v1/queue")) as response:
                    assert (await response.json())["parts"]["gated"] == 2
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
