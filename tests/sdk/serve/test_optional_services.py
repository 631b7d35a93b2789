"""Health and reflection are imported with the first call to them, and know of a server that stops."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from berth_sdk.serve.optional_services import OptionalServices
from grpc_health.v1 import health_pb2

CHECK = "/grpc.health.v1.Health/Check"
NOTHING_YET = f"""
import sys
from types import SimpleNamespace
from berth_sdk.serve.optional_services import OptionalServices
services = OptionalServices()
assert services.service(SimpleNamespace(method="/berth.plugin.v1.IdentityService/Probe")) is None
print("grpc_health.v1.health" in sys.modules)
assert services.service(SimpleNamespace(method="{CHECK}")) is not None
print("grpc_health.v1.health" in sys.modules)
"""


def health(services: OptionalServices, service: str = "") -> int:
    details: Any = SimpleNamespace(method=CHECK)
    handler = services.service(details)
    reply = handler.unary_unary(health_pb2.HealthCheckRequest(service=service), SimpleNamespace())
    return int(reply.status)


def test_a_call_to_another_service_imports_neither() -> None:
    done = subprocess.run([sys.executable, "-c", NOTHING_YET], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_server_that_stops_is_not_healthy_whenever_it_is_asked_first() -> None:
    asked_before = OptionalServices()
    assert health(asked_before) == health_pb2.HealthCheckResponse.SERVING
    asked_before.stop()
    asked_after = OptionalServices()
    asked_after.stop()
    for services in (asked_before, asked_after):
        assert (
            health(services, "berth.plugin.v1.IdentityService") == health_pb2.HealthCheckResponse.NOT_SERVING
        )


def test_reflection_is_there_and_other_methods_are_not() -> None:
    services = OptionalServices()
    found: list[Any] = [
        services.service(SimpleNamespace(method=f"/grpc.{rest}"))
        for rest in (
            "reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "health.v1.Health/NoSuchMethod",
        )
    ]
    assert found[0] is not None
    assert found[1] is None
