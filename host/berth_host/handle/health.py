"""gRPC's own health and reflection on the server of HandleService: that it serves, whichever plugins are
there, and what may be called. Neither asks for a token, and neither tells anything of a cluster.

Called by `HandleServer`. Source: grpc/health/v1/health.proto, grpc/reflection/v1alpha/reflection.proto.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from berth_sdk.plugin.v1 import handle_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from berth_host.rpc.served.registration import register

MAX_WATCHES: Final = 64
SERVICE: Final[str] = handle_pb2.DESCRIPTOR.services_by_name["HandleService"].full_name
_HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_Status = health_pb2.HealthCheckResponse


def add_health_and_reflection(server: grpc.aio.Server) -> None:
    """Add gRPC's health and reflection to a server that has not started."""
    health = Health()
    answers = {"Check": health.Check, "Watch": health.Watch}
    register(server, health_pb2.DESCRIPTOR.services_by_name["Health"], answers)
    reflection.enable_server_reflection((SERVICE, _HEALTH, reflection.SERVICE_NAME), server)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package has no types
    """The health of the server as a whole (the empty name) and of HandleService: both serve while the server
    does.

    A plugin that waited for the others here, as they do for it, would wait for ever.
    """

    def __init__(self) -> None:
        self._watches = 0

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return SERVING; refuse an unknown service with NOT_FOUND."""
        status = _status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _Status(status=status)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Yield the status, which never changes; the stream ends when the caller or the server does."""
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} watch already")
        self._watches += 1
        try:
            yield _Status(status=_status(request.service))
            await asyncio.Event().wait()
        finally:
            self._watches -= 1


def _status(service: str) -> Any:
    return _Status.SERVING if service in ("", SERVICE) else _Status.SERVICE_UNKNOWN
