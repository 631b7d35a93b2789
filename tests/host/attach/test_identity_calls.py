"""The host's messages about an instance that does not answer while it is being attached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import grpc
import pytest
from berth_host.attach import identity_calls, retrying
from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import dial
from berth_host.attach.identity_calls import Greeting, IdentityCalls
from berth_host.attach.peer import DialError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.serve.server import PluginServer
from support.attached import wanted
from support.echo_plugin import Echo
from support.hosts import World, enabling, node, pod
from support.scripted_plugin import ScriptedError, ScriptedPlugin, descriptor
from support.sdk_server import plugin_args
from support.waiting import until


async def test_attachment_id_that_is_forgotten_leads_to_a_new_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)

    def forgotten(_: object) -> object:
        raise ScriptedError(grpc.StatusCode.PERMISSION_DENIED, "which attachment?")

    path, plugin = tmp_path / "p.sock", ScriptedPlugin(descriptor("Demo", "FILTER"))
    plugin.once("Configure", forgotten)
    text = (
        f"{enabling(['Demo'])}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
    )
    async with plugin.serving(path), World([node("n1"), pod("web")], configuration=text) as world:
        await until(lambda: world.host.attachments.attached_places.plugins["Demo"].is_attached)
        await world.settle()
        assert world.node_of("web") == "n1"
    first, second = plugin.requests("Configure")
    assert first.accepted
    assert second.accepted
    assert first.attachment_id != second.attachment_id


async def test_constructor_that_waits_is_named_with_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_calls, "CONFIGURE_S", 0.2)
    may_end = Event()

    class Waits(Echo):
        def __init__(self, args: object, handle: object) -> None:
            may_end.wait()

    server = PluginServer({"Echo": Waits})
    endpoint = f"unix://{tmp_path}/p.sock"
    server.listen(endpoint)
    place = Place(endpoint=endpoint, plugins=(wanted("Echo"),))
    channel = dial(endpoint, place)
    try:
        calls = IdentityCalls(channel, place, "a1", "Echo")
        await calls.shake_hands(Greeting(host_version="1.0", epoch=1, features=(), credential=""))
        request = identity_pb2.ConfigureRequest(
            attachment_id="a1",
            contract=identity_pb2.ContractVersion(major=1, minor=0),
            plugins=[plugin_args("Echo", [ExtensionPoint.FILTER])],
            max_message_bytes=4 * 1024 * 1024,
            accepted=True,
        )
        with pytest.raises(DialError) as raised:
            await calls.configure(request)
    finally:
        may_end.set()
        await channel.close()
        await asyncio.to_thread(server.stop, 1.0)
    assert str(raised.value) == (
        "did not answer Configure within 0.2 s: Configure creates the plugins, so check what their"
        " __init__ waits for"
    )
