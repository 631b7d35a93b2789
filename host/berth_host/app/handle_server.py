"""The way back for plugins in other processes, wired to the host's parts. Made by `parts`."""

from __future__ import annotations

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.backend import Backend
from berth_host.app.late_parts import LateParts
from berth_host.app.open_calls import OpenCalls
from berth_host.cache.snapshot_state import SnapshotState
from berth_host.config.berth.configuration import BerthConfiguration
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams
from berth_host.handle.tls_port import TlsPort


def handle_server(
    berth: BerthConfiguration,
    own_address: str,
    backend: Backend,
    open_calls: OpenCalls,
    state: SnapshotState,
    later: LateParts,
) -> HandleServer:
    """HandleService of a host; it also listens on loopback TCP if a plugin is reached that way, in plaintext,
    and as `handle` says if one is reached over TLS. `own_address`: see `HostOptions`.
    """
    remote = [
        plugin for plugin in berth.plugins if plugin.endpoint and not plugin.endpoint.startswith("unix:")
    ]
    behind_tls = any(plugin.tls is not None for plugin in remote)
    seams = HandleSeams(
        backend=backend,
        state=state,
        filters=open_calls,
        descriptor_of=lambda name: _descriptor(later, name),
    )
    return HandleServer(
        seams,
        tcp=any(plugin.tls is None for plugin in remote),
        tls=TlsPort(berth.handle, own_address) if berth.handle is not None and behind_tls else None,
    )


def _descriptor(later: LateParts, name: str) -> Descriptor | None:
    for clients in later.clients.by_profile.values():
        client = clients.get(name)
        if client is not None and client.is_remote and client.available:
            return client.descriptor
    return None
