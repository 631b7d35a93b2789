"""`berth ui`: the simulation behind the page, as a process that Ctrl-C ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from support.hosts import node, pod
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all([node("n1", cpu="2"), pod("huge", cpu="8"), pod("fits")]))
    return path


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "berth_host", "ui", *arguments, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def address(process: Process) -> str:
    """Return the address that the command prints."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = (await process.stdout.readline()).decode()
    assert line.startswith("serving the page at http://127.0.0.1:"), line
    return line.split()[4]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_simulation_is_served_until_a_signal(manifests: Path, number: signal.Signals) -> None:
    async with command("-f", str(manifests), "--port", "0") as process:
        url = await address(process)
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as response:
                assert (response.status, "<title>berth</title>" in await response.text()) == (200, True)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    async with session.get(url.replace("/ui/", "/berth/v1/queue")) as response:
                        value = await response.json()
                    if value["parts"]["unschedulable"] and len(value["pods"]) == 1:
                        break
            assert [item["key"] for item in value["pods"]] == ["default/huge"]
            # A pod leaves the queue before its binding is written.
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    async with session.get(url.replace("/ui/", "/berth/v1/pods/default/fits")) as response:
                        if (await response.json())["node"] == "n1":
                            break
            # An open stream does not hold the command up.
            async with session.get(url.replace("/ui/", "/berth/v1/queue?watch=true")) as response:
                await response.content.readline()
                process.send_signal(number)
                async with asyncio.timeout(PATIENCE_S):
                    assert await process.wait() == 0


@pytest.mark.long
async def test_port_in_use_and_missing_manifests_end_the_command(manifests: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with command("-f", str(manifests), "--port", str(port)) as process:
            _, said = await process.communicate()
        assert (process.returncode, b"the port is in use; choose another --port" in said) == (2, True)
    async with command() as process:
        _, said = await process.communicate()
    assert (process.returncode, b"no manifests" in said) == (2, True)
