"""gRPC health and reflection, where their packages are installed (the extra `berth-sdk[server]`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc

from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2, stream_pb2

IDENTITY: Final[Any] = identity_pb2.DESCRIPTOR.services_by_name["IdentityService"]
STATE: Final[Any] = state_pb2.DESCRIPTOR.services_by_name["StateService"]
QUEUE: Final[Any] = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
SCHEDULING: Final[Any] = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]
STREAM: Final[Any] = stream_pb2.DESCRIPTOR.services_by_name["StreamService"]
SERVICES: Final = (IDENTITY, STATE, QUEUE, SCHEDULING, STREAM)
"""The services of a plugin process."""
MISSING: Final = (
    "gRPC health and reflection are not served, the packages are missing: pip install 'berth-sdk[server]'"
)


def add_optional_services(server: grpc.Server) -> Callable[[], None]:
    """Serve both. Returns a function to call when the server begins to stop. Raises ImportError."""
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = [service.full_name for service in SERVICES]
    for name in ("", *names):
        servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    served = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(served, server)
    stop: Callable[[], None] = servicer.enter_graceful_shutdown
    return stop


def services_at(endpoint: str, timeout_s: float) -> dict[str, list[str]]:
    """The methods of each service that a server with reflection offers.

    Raises ImportError without the package, grpc.RpcError when the server does not answer.
    """
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo

        def asked(**request: str) -> Any:
            return next(ask(iter([reflection_pb2.ServerReflectionRequest(**request)]), timeout=timeout_s))

        names = [item.name for item in asked(list_services="").list_services_response.service]
        return {
            name: _methods(name, asked(file_containing_symbol=name).file_descriptor_response)
            for name in sorted(names)
        }


def _methods(service: str, files: Any) -> list[str]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for raw in files.file_descriptor_proto:
        file = FileDescriptorProto.FromString(raw)
        for item in file.service:
            if f"{file.package}.{item.name}" == service:
                return [method.name for method in item.method]
    return []
