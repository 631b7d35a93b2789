"""Every RPC of a plugin's services has a method of ours; none falls back to the generated refusal."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.extension_points import METHODS, ExtensionPoint
from berth_sdk.handle import Handle
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.serve.handle_client import HandleClient
from berth_sdk.serve.optional_services import SERVICES
from berth_sdk.serve.scheduling_servicer import SchedulingServicer
from berth_sdk.serve.servicers import IdentityServicer, QueueServicer, StateServicer

SERVICERS = {
    "IdentityService": IdentityServicer,
    "StateService": StateServicer,
    "QueueService": QueueServicer,
    "SchedulingService": SchedulingServicer,
}


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_every_rpc_has_a_method_of_ours(service: Any) -> None:
    own = vars(SERVICERS[service.name])
    assert {method.name for method in service.methods} == {
        name for name in own if not name.startswith("_") and callable(own[name])
    }


def test_every_service_is_served() -> None:
    assert {service.name for service in SERVICES} == set(SERVICERS)


def test_the_points_are_the_contracts() -> None:
    contract = {
        value.name.removeprefix("EXTENSION_POINT_"): value.number
        for value in identity_pb2.ExtensionPoint.DESCRIPTOR.values
        if value.number
    }
    assert {point.name: point.value for point in ExtensionPoint} == contract
    assert set(METHODS) == set(ExtensionPoint)


def test_a_served_plugin_has_the_whole_handle() -> None:
    wanted = {name for name in vars(Handle) if not name.startswith("_")}
    assert wanted <= set(vars(HandleClient))
