"""How calls travel: which transports are offered and tried, and what the host falls back to and tells."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from berth_host.attach.carrying import offered
from berth_host.config.berth.configuration import Transport
from berth_sdk.serve.server import PluginServer
from berth_sdk.wire.frames import framed_path
from support.attached import AttachedHost, at_socket, attached_host, launched
from support.echo_plugin import Echo
from support.plugin_processes import plugin_environment, serve_command

ECHO = "support.echo_plugin:Echo"


def told(host: AttachedHost) -> tuple[str, tuple[str, ...]]:
    (condition,) = host.attachments.conditions()
    return condition.carrier, condition.warnings


def test_frames_are_offered_over_a_unix_socket_alone() -> None:
    place = at_socket(Path("/p.sock"), "Echo")
    assert offered(place, "unix:///p.sock") == {"framed"}
    assert offered(place, "127.0.0.1:7001") == frozenset()
    assert offered(replace(place, transport=Transport.UNARY), "unix:///p.sock") == frozenset()


@pytest.mark.parametrize("transport", list(Transport))
async def test_a_served_class_is_asked_as_the_configuration_says(
    tmp_path: Path, transport: Transport
) -> None:
    path = tmp_path / "p.sock"
    with PluginServer({"Echo": Echo}) as server:
        server.listen(f"unix:{path}")
        async with attached_host(replace(at_socket(path, "Echo"), transport=transport)) as host:
            assert told(host) == (transport.value, ())
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            assert server.framed.connection_count == (transport is Transport.FRAMED)


@pytest.mark.slow
async def test_a_child_is_asked_in_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", plugin_environment()["PYTHONPATH"])
    async with attached_host(launched(serve_command(ECHO), "Echo")) as host:
        assert told(host) == ("framed", ())
        assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


async def test_calls_over_tcp_are_unary() -> None:
    with PluginServer({"Echo": Echo}) as server:
        endpoint = server.listen("127.0.0.1:0")
        async with attached_host(replace(at_socket(Path(), "Echo"), endpoint=endpoint)) as host:
            assert told(host) == ("unary", ())
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


@pytest.mark.parametrize("lies", ["nothing", "a link"])
async def test_a_framed_socket_that_may_not_be_used_is_named_and_left(tmp_path: Path, lies: str) -> None:
    path = tmp_path / "p.sock"
    with PluginServer({"Echo": Echo}) as server:
        server.listen(f"unix:{path}")
        framed = framed_path(path).rename(tmp_path / "elsewhere")
        if lies == "a link":
            framed_path(path).symlink_to(framed)
        async with attached_host(at_socket(path, "Echo")) as host:
            carrier, (warning,) = told(host)
            assert carrier == "unary"
            assert warning.startswith("the frames that the plugin offers cannot be used: ")
            assert ("is not a socket" if lies == "a link" else "No such file") in warning
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3


async def test_calls_go_on_where_the_framed_socket_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PluginServer({"Echo": Echo}))
        server.listen(f"unix:{path}")
        async with attached_host(at_socket(path, "Echo")) as host:
            assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            server.framed.stop()
            for _ in range(3):
                assert len(await host.client.filter(host.cycle(), host.nodes)) == 3
            assert host.client.stats.of("Filter").failures == {}
