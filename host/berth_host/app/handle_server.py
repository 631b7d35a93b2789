"""The way back for plugins in other processes, wired to the host's parts. Made by `Host`."""

from __future__ import annotations

from typing import Protocol

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.attachments import SnapshotState, StateOfHost
from berth_host.app.backend import Backend
from berth_host.app.clients import Clients
from berth_host.app.open_calls import OpenCalls
from berth_host.config.configuration import LoadedConfiguration
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams


class HostWithHandles(StateOfHost, Protocol):
    """The parts of the host that the way back leads to."""

    configuration: LoadedConfiguration
    backend: Backend
    open_calls: OpenCalls
    clients: Clients


def handle_server(host: HostWithHandles) -> HandleServer:
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


def _descriptor(host: HostWithHandles, name: str) -> Descriptor | None:
    for clients in host.clients.by_profile.values():
        client = clients.get(name)
        if client is not None and client.is_remote and client.available:
            return client.descriptor
    return None
