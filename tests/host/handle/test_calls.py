"""The table of the way back: a row for each call of the contract, and what a row leaves out of a request."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.handle.calls import HANDLE_CALLS, MAX_WORD_BYTES, is_writable
from berth_sdk.plugin.v1 import handle_pb2

LONG = "x" * (MAX_WORD_BYTES + 1)
HANDLE: Any = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]


def test_every_call_of_the_contract_has_one_row() -> None:
    assert [call.rpc for call in HANDLE_CALLS] == [method.name for method in HANDLE.methods]


def test_calls_with_chunked_replies_are_those_that_can_grow() -> None:
    in_chunks = {method.name for method in HANDLE.methods if method.server_streaming}
    assert {call.rpc for call in HANDLE_CALLS if call.in_chunks} == in_chunks


def test_handle_calls_that_need_an_open_call_name_its_cycle() -> None:
    named = {method.name for method in HANDLE.methods if "cycle_id" in method.input_type.fields_by_name}
    assert {call.rpc for call in HANDLE_CALLS if call.open_in} == named


@pytest.mark.parametrize(
    ("event", "passes"),
    [
        pytest.param({"reason": "Held"}, True, id="reason alone"),
        pytest.param({"reason": "Held", "type": "Warning", "action": "Waiting"}, True, id="all of it"),
        pytest.param({"reason": LONG[1:], "action": LONG[1:]}, True, id="as long as may be"),
        pytest.param({"reason": "Held", "type": "Fatal"}, False, id="type"),
        pytest.param({"action": "Waiting"}, False, id="no reason"),
        pytest.param({"reason": LONG}, False, id="long reason"),
        pytest.param({"reason": "Held", "action": LONG}, False, id="long action"),
        pytest.param({"reason": "\u00e4" * 65}, False, id="bytes count"),
    ],
)
def test_events_that_the_api_server_would_refuse_are_dropped(event: dict[str, Any], passes: bool) -> None:
    assert is_writable(handle_pb2.EventRecord(**event)) is passes
