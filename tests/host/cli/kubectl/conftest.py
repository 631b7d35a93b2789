"""A host on an embedded cluster behind its secure port, and a command that is run beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest_asyncio
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.model.user import User
from click.testing import CliRunner, Result
from support.holding_world import holding_world
from support.hosts import World
from support.serving import FakeProcess, KnownUsers, Served, served

Ask = Callable[..., Awaitable[Result]]
READS = User(name="reads", groups=("system:masters",))


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with holding_world("in_process", tmp_path) as world:
        yield world


@pytest_asyncio.fixture
async def process(world: World) -> FakeProcess:
    return FakeProcess(world.host.configuration, world.host)


@pytest_asyncio.fixture
async def port(process: FakeProcess) -> AsyncIterator[Served]:
    users = KnownUsers({"reads": READS, "other": User(name="other")})
    async with served(process, users) as port:
        yield port


@pytest_asyncio.fixture
async def ask(port: Served) -> Ask:
    """Run `kubectl berth` against the port, with a token that may read; other options win."""
    server = f"https://127.0.0.1:{port.endpoints.server.port}"

    async def asked(*arguments: str) -> Result:
        more = ["--server", server, "--insecure-skip-tls-verify"]
        if not any(argument.startswith("--token") for argument in arguments):
            more += ["--token", "reads"]
        return await run(*arguments, *more)

    return asked


async def run(*arguments: str) -> Result:
    """Run it in a thread: the host answers on this loop meanwhile."""
    result = await asyncio.to_thread(
        CliRunner().invoke, kubectl_berth, list(arguments), catch_exceptions=False
    )
    assert isinstance(result, Result)
    return result
