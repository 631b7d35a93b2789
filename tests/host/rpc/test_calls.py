"""The table of calls: what every row has, and which rows are repeated, budgeted and told."""

from __future__ import annotations

from berth_host.rpc.call import Lane
from berth_host.rpc.calls import CALLS
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2

BY_RPC = {call.rpc: call for call in CALLS}
PURE = {"PreFilter", "Filter", "SimulateFilter", "PreScore", "Score", "NormalizeScore", "SortKeys"}
PURE |= {"PlacementGenerate", "PlacementScore", "NormalizePlacementScore", "PlacementFeasible"}


def test_every_rpc_that_stands_for_a_decision_has_a_row() -> None:
    services = (
        scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"],
        queue_pb2.DESCRIPTOR.services_by_name["QueueService"],
    )
    rpcs = {method.name for service in services for method in service.methods}
    assert set(BY_RPC) == rpcs


def test_only_pure_calls_are_repeated() -> None:
    assert {call.rpc for call in CALLS if call.pure} == PURE


def test_only_steps_of_the_scheduling_cycle_count_against_its_budget() -> None:
    assert {call.rpc for call in CALLS if call.budgeted} == {
        call.rpc for call in CALLS if call.lane is Lane.CYCLE
    }


def test_calls_that_only_report_have_no_answer_to_read() -> None:
    told = [call for call in CALLS if call.lane is Lane.OUTBOX]
    assert {call.rpc for call in told} == {"Unreserve", "PostBind", "EndCycles"}
    assert {call.answer for call in told} == {None}


def test_the_method_of_a_class_is_named_as_the_call() -> None:
    assert {call.method_name for call in CALLS if call.lane is Lane.BINDING} == {
        "pre_bind_pre_flight",
        "pre_bind",
        "bind",
    }
