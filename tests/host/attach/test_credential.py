"""The credential with which a host authenticates to a plugin: from the configuration, or given to a child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.state import State
from berth_sdk.serve.server import PluginServer
from support.attached import AttachedHost, attached_host, launched, wanted
from support.echo_plugin import Echo
from support.places import TESTS
from support.plugin_processes import serve_command
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import until

SECRET = "open sesame"


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second; modules of tests can be served."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@asynccontextmanager
async def guarded(path: Path) -> AsyncIterator[PluginServer]:
    """A plugin that expects the secret."""
    server = PluginServer({"Echo": Echo}, SECRET)
    try:
        server.listen(f"unix://{path}")
        yield server
    finally:
        await asyncio.to_thread(server.stop, 1.0)


def place(path: Path, credential_file: str = "") -> Place:
    return Place(endpoint=f"unix://{path}", credential_file=credential_file, plugins=(wanted("Echo"),))


def condition(host: AttachedHost) -> tuple[State, str]:
    (found,) = host.attachments.conditions()
    return found.state, found.reason


async def test_host_that_knows_the_secret_attaches(tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_text(f"{SECRET}\n")
    path = tmp_path / "p.sock"
    async with guarded(path), attached_host(place(path, str(file))) as host:
        assert condition(host) == (State.ACTIVE, "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "name the file that holds it as its credentialFile", id="none named"),
        pytest.param("wrong", "the plugin was told to expect another one", id="another"),
        pytest.param("", "holds no credential", id="empty"),
    ],
)
async def test_host_without_the_secret_reports_the_cure_and_retries(
    tmp_path: Path, content: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "credential", tmp_path / "p.sock"
    named = "" if content is None else str(file)
    file.write_text(content or "")
    async with guarded(path), attached_host(place(path, named), patience_s=0.0) as host:
        await until(lambda: condition(host)[0] is State.BACKOFF)
        state, reason = condition(host)
        assert words in reason
        assert not host.client.available
        if named:
            file.write_text(SECRET)  # read anew each time
            await until(lambda: condition(host)[0] is State.ACTIVE)
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert state is State.BACKOFF


async def test_plugin_that_expects_none_is_sent_none(tmp_path: Path) -> None:
    plugin = ScriptedPlugin(descriptor("Echo", "FILTER"))
    async with plugin.serving(tmp_path / "p.sock"), attached_host(place(tmp_path / "p.sock")):
        assert [request.credential for request in plugin.requests("Handshake")] == [""]


async def test_a_child_expects_what_its_host_gave_it(tmp_path: Path) -> None:
    async with attached_host(launched(serve_command("support.echo_plugin:Echo"), "Echo")) as host:
        assert condition(host) == (State.ACTIVE, "")
        (attachment,) = host.attachments.places
        child: Any = attachment.child
        assert len(child.credential) == 64
        stranger = Place(endpoint=child.address, plugins=(wanted("Echo"),))
        async with attached_host(stranger, patience_s=0.0) as other:
            await until(lambda: "expects a credential" in condition(other)[1])
        assert condition(host) == (State.ACTIVE, "")
