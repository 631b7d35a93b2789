"""gRPC health and reflection, if their packages are installed (the extra `berth-sdk[server]`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Final

import grpc

from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2

IDENTITY: Final[Any] = identity_pb2.DESCRIPTOR.services_by_name["IdentityService"]
STATE: Final[Any] = state_pb2.DESCRIPTOR.services_by_name["StateService"]
QUEUE: Final[Any] = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
SCHEDULING: Final[Any] = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]
SERVICES: Final = (IDENTITY, STATE, QUEUE, SCHEDULING)
"""The services of a plugin process."""
_PACKAGES: Final = ("grpc_health.v1", "grpc_reflection.v1alpha")
_PATHS: Final = ("/grpc.health.", "/grpc.reflection.")
MISSING: Final = (
    "gRPC health and reflection are not served, the packages are missing: pip install 'berth-sdk[server]'"
)


class OptionalServices(grpc.GenericRpcHandler):
    """Both services. The first call to one of them imports them, so that the start of a process is faster.

    waiting -first call-> serving; `stop` may come at any time.
    """

    def __init__(self) -> None:
        """Check the packages. Raises ImportError if one is missing."""
        missing = [name for name in _PACKAGES if not _is_there(name)]
        if missing:
            raise ImportError(f"no module named {', '.join(missing)}")
        self._lock = threading.Lock()
        self._health: Any = None
        self._handlers: list[Any] = []
        self._stopping = False

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call to one of the services; None for any other call."""
        if not handler_call_details.method.startswith(_PATHS):
            return None
        with self._lock:
            if self._health is None:
                self._load()
        found = (handler.service(handler_call_details) for handler in self._handlers)
        return next((one for one in found if one is not None), None)

    def stop(self) -> None:
        """Report the server as not serving, as it begins to stop."""
        with self._lock:
            self._stopping = True
            if self._health is not None:
                self._health.enter_graceful_shutdown()

    # --- the interface of a server to which services are added ------------------------------------------

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Keep the handlers."""
        self._handlers += handlers

    def add_registered_method_handlers(self, *_: object) -> None:
        """Do nothing: the same handlers were kept by `add_generic_rpc_handlers`."""

    def _load(self) -> None:
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        from grpc_reflection.v1alpha import reflection

        servicer = health.HealthServicer()
        add: Any = health_pb2_grpc.add_HealthServicer_to_server
        add(servicer, self)
        names = [service.full_name for service in SERVICES]
        for name in ("", *names):
            servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        enable: Any = reflection.enable_server_reflection
        enable((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self)
        if self._stopping:
            servicer.enter_graceful_shutdown()
        self._health = servicer


def add_optional_services(server: grpc.Server) -> Callable[[], None]:
    """Serve health and reflection. Raises ImportError if a package is missing.

    Returns a function to call when the server begins to stop.
    """
    services = OptionalServices()
    server.add_generic_rpc_handlers((services,))
    return services.stop


def _is_there(module: str) -> bool:
    """Return True if the module is installed, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # for a parent package that is not installed
        return False


def services_on(channel: grpc.Channel, timeout_s: float) -> dict[str, list[str]]:
    """Return the methods of each service of a server with reflection. Closes the channel.

    Raises ImportError without the package, and grpc.RpcError if the server does not answer.
    """
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with channel:
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
