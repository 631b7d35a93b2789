"""`KubeLeases`: the calls of `lease.Leases` to a real API server. Made by `process`.

It has its own client, so that a renewal never waits behind bindings for the rate limit. Source:
recordings of kube-scheduler 1.36.2 (`timeout=5s`, and a LeaderElection event of the core API);
`k8s.io/client-go/tools/leaderelection/resourcelock`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from berth_host.errors.cluster import ClusterError, NotFoundError
from berth_host.log import get_logger
from berth_host.model.clock import Clock
from berth_host.model.lease_record import API_VERSION
from berth_sdk.rfc3339 import format_time

from berth_kube.answers import check_object
from berth_kube.client import KubeClient, path_of
from berth_kube.lease_settings import LeaseSettings

log = get_logger()

RESOURCE: Final = "coordination.k8s.io/leases"
_LEASES: Final = f"/apis/{API_VERSION}"
_EVENT_PATIENCE_S: Final = 2.0


class KubeLeases:
    """The calls about one Lease. `reporter`: the events' reporting component (first profile's scheduler)."""

    def __init__(self, client: KubeClient, settings: LeaseSettings, reporter: str, clock: Clock) -> None:
        self._client = client
        self._namespace = settings.resource_namespace
        self._name = settings.resource_name
        self._timeout_s = max(settings.renew_deadline_s / 2, 1.0)
        self._reporter = reporter
        self._clock = clock
        self._events: set[asyncio.Task[None]] = set()

    async def get(self) -> Mapping[str, Any] | None:
        """Read the Lease; return None if it does not exist. Raises ClusterError."""
        try:
            return await self._send("GET", self._name)
        except NotFoundError:
            return None

    async def create(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the Lease. Raises ConflictError if it exists, and other ClusterErrors."""
        return await self._send("POST", "", lease)

    async def update(self, lease: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace the Lease. Raises ConflictError for an old resource version, and other ClusterErrors."""
        return await self._send("PUT", self._name, lease)

    def record_event(self, lease: Mapping[str, Any], message: str) -> None:
        """Write a LeaderElection event about the Lease, in the background."""
        task = asyncio.ensure_future(self._write_event(lease, message))
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    async def close(self) -> None:
        """Wait shortly for events that are being written, then close the connections."""
        if self._events:
            _, late = await asyncio.wait(self._events, timeout=_EVENT_PATIENCE_S)
            for task in late:
                task.cancel()
        await self._client.close()

    async def _send(self, method: str, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        key = f"{self._namespace}/{self._name}"
        answer = await self._client.request(
            method,
            path_of(_LEASES, "leases", self._namespace, name),
            query={"timeout": f"{self._timeout_s:g}s"},
            body=body,
            timeout_s=self._timeout_s,
            resource=RESOURCE,
            key=key,
        )
        # An intermediary's answer must not count as a renewal.
        check_object(answer, "Lease", RESOURCE, key)
        return answer

    async def _write_event(self, lease: Mapping[str, Any], message: str) -> None:
        now_s = self._clock.now_s()
        metadata = lease.get("metadata") or {}
        moment = format_time(now_s)
        event = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{self._name}.{round(now_s * 1e9):x}", "namespace": self._namespace},
            "involvedObject": {
                "kind": "Lease",
                "namespace": self._namespace,
                "name": self._name,
                "uid": metadata.get("uid", ""),
                "apiVersion": API_VERSION,
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": "LeaderElection",
            "message": message,
            "source": {"component": self._reporter},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "type": "Normal",
            "eventTime": None,
            "reportingComponent": self._reporter,
            "reportingInstance": "",
        }
        path = path_of("/api/v1", "events", self._namespace)
        try:
            await self._client.request("POST", path, body=event, resource="events", key=self._name)
        except ClusterError as err:
            log.warning("lease.event_dropped", lease=f"{self._namespace}/{self._name}", error=str(err))
