"""Which required plugins are missing: a metric and a remark of `/readyz` name them; the host stays ready."""

from __future__ import annotations

from collections.abc import Mapping

from berth_host.app.clients import Clients
from berth_host.attach.routes import RemotePlugin


def absent_plugins(clients: Clients, remote: Mapping[str, RemotePlugin]) -> list[str]:
    """Required plugins that cannot be asked: their calls fail as the policy of the point says. One that is
    stood by for counts as there.
    """
    return sorted(
        {
            client.name
            for of_profile in clients.by_profile.values()
            for client in of_profile.values()
            if client.settings.required
            and not client.available
            and not (client.name in remote and remote[client.name].stands_by)
        }
    )
