"""gRPC's own health and reflection on the server of HandleService: whether every required plugin is there,
and what may be called. Neither asks for a token, and neither tells anything of a cluster.

Called by `HandleServer`. Source: grpc/health/v1/health.proto, grpc/reflection/v1alpha/reflection.proto.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from berth_sdk.plugin.v1 import handle_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from berth_host.handle.registration import register

LOOK_S: Final = 0.5
"""How often a readiness that is watched is looked at."""
MAX_WATCHES: Final = 64
SERVICE: Final[str] = handle_pb2.DESCRIPTOR.services_by_name["HandleService"].full_name
_HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_Status = health_pb2.HealthCheckResponse


def add_health_and_reflection(server: grpc.aio.Server, ready: Callable[[], bool]) -> None:
    """Before the server starts. `ready`: asked for every answer, on the loop."""
    register(server, health_pb2.DESCRIPTOR.services_by_name["Health"], Health(ready))
    reflection.enable_server_reflection((SERVICE, _HEALTH, reflection.SERVICE_NAME), server)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package has no types
    """Of the server as a whole (the empty name) and of HandleService, which are ready together."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready
        self._watches = 0

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """SERVING or NOT_SERVING; NOT_FOUND for a service that is not here."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The status as it is, and as it becomes, until the caller goes."""
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} watch already")
        self._watches += 1
        last = None
        try:
            while True:
                status = self._status(request.service)
                if status != last:
                    yield _Status(status=status)
                last = status
                await asyncio.sleep(LOOK_S)
        finally:
            self._watches -= 1

    def _status(self, service: str) -> Any:
        if service not in ("", SERVICE):
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if self._ready() else _Status.NOT_SERVING
