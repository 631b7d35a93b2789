"""Every call of the contract has a handler, and those of frames have one by their number."""

from __future__ import annotations

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.optional_services import SERVICES
from berth_sdk.serve.services import Services
from berth_sdk.status import SUCCESS, Status
from berth_sdk.wire.frames import NUMBERS


class Names(Plugin):
    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status:
        return SUCCESS


def test_every_call_of_the_contract_has_a_handler() -> None:
    services = Services(Instance({"Names": Names}))
    assert {name: set(handlers) for name, handlers in services.handlers.items()} == {
        service.full_name: {method.name for method in service.methods} for service in SERVICES
    }
    assert set(services.framed) == set(NUMBERS.values())
    streams = {
        name for handlers in services.handlers.values() for name, one in handlers.items() if one.stream_unary
    }
    assert streams == {"SyncState", "Reconcile"}
