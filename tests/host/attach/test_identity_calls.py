"""The host's messages about an instance that does not answer while it is being attached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest
from berth_host.attach import identity_calls
from berth_host.attach.dialing import dial
from berth_host.attach.identity_calls import Greeting, IdentityCalls
from berth_host.attach.peer import DialError
from berth_host.attach.wanted import Place
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.serve.server import PluginServer
from support.attached import wanted
from support.echo_plugin import Echo
from support.sdk_server import plugin_args


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
