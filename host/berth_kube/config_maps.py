"""`read_config_map`: reads one ConfigMap before the host exists.

Called while a configuration is read, at start and on SIGHUP: the policy of a v1alpha1 configuration may be in
a ConfigMap. The read runs in a thread with its own event loop and connection, so that callers inside and
outside of an event loop can use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

from berth_kube.client import KubeClient
from berth_kube.connection import Connection

TIMEOUT_S: Final = 30.0


def read_config_map(connection: Connection, namespace: str, name: str) -> Mapping[str, str]:
    """Return the `data` of a ConfigMap. Raises ClusterError and ClientConfigError."""
    with ThreadPoolExecutor(1, thread_name_prefix="berth-config-map") as thread:
        return thread.submit(asyncio.run, _read(connection, namespace, name)).result()


async def _read(connection: Connection, namespace: str, name: str) -> Mapping[str, str]:
    client = await KubeClient.open(connection)
    try:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        found = await client.request(
            "GET", path, timeout_s=TIMEOUT_S, resource="configmaps", key=f"{namespace}/{name}"
        )
    finally:
        await client.close()
    data = found.get("data") or {}
    return {str(key): str(value) for key, value in data.items()}
