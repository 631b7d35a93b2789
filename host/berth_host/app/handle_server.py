"""The way back for plugins in other processes, wired to the host's parts. Made by `Host`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.attachments import SnapshotState
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams

if TYPE_CHECKING:
    from berth_host.app.host import Host


def handle_server(host: Host) -> HandleServer:
    """HandleService of this host; it also listens on loopback TCP if some plugin is reached that way."""
    plugins = host.configuration.berth.plugins
    seams = HandleSeams(
        backend=host.backend,
        state=SnapshotState(host),
        filters=host.open_calls,
        descriptor_of=lambda name: _descriptor(host, name),
    )
    return HandleServer(
        seams, tcp=any(plugin.endpoint and not plugin.endpoint.startswith("unix:") for plugin in plugins)
    )


def _descriptor(host: Host, name: str) -> Descriptor | None:
    for clients in host.clients.by_profile.values():
        client = clients.get(name)
        if client is not None and client.is_remote and client.available:
            return client.descriptor
    return None
