"""The way back for plugins in other processes, wired to the host's parts. Made by `parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.backend import Backend
from berth_host.app.late_parts import LateParts
from berth_host.app.open_calls import OpenCalls
from berth_host.app.snapshot_state import SnapshotState
from berth_host.config.berth.configuration import BerthPlugin
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams


def handle_server(
    plugins: Iterable[BerthPlugin],
    backend: Backend,
    open_calls: OpenCalls,
    state: SnapshotState,
    later: LateParts,
    ready: Callable[[], bool],
) -> HandleServer:
    """HandleService of a host; it also listens on loopback TCP if one of `plugins` is reached that way, in
    plaintext. `ready`: what its health says.
    """
    seams = HandleSeams(
        backend=backend,
        state=state,
        filters=open_calls,
        descriptor_of=lambda name: _descriptor(later, name),
    )
    return HandleServer(
        seams,
        tcp=any(
            plugin.endpoint and plugin.tls is None and not plugin.endpoint.startswith("unix:")
            for plugin in plugins
        ),
        ready=ready,
    )


def _descriptor(later: LateParts, name: str) -> Descriptor | None:
    for clients in later.clients.by_profile.values():
        client = clients.get(name)
        if client is not None and client.is_remote and client.available:
            return client.descriptor
    return None
