"""The envelope of a call on a stream is what protobuf reads and writes."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.plugin.v1 import stream_pb2
from berth_sdk.wire.stream import NUMBERS, unwrap_answer, unwrap_request, wrap
from hypothesis import given
from hypothesis import strategies as st

CALLS = sorted(NUMBERS)


def snake(call: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in call).lstrip("_")


def test_request_and_answer_of_a_call_have_one_number_and_its_messages() -> None:
    for envelope, kind in (
        (stream_pb2.StreamCallsRequest, "Request"),
        (stream_pb2.StreamCallsResponse, "Response"),
    ):
        fields: Any = envelope.DESCRIPTOR.fields
        assert {field.name: (field.number, field.message_type.name) for field in fields} == {
            snake(call): (number, f"{call}{kind}") for call, number in NUMBERS.items()
        }


def test_calls_of_a_stream_are_those_of_the_scheduling_cycle_that_run_one_at_a_time() -> None:
    service: Any = spb.DESCRIPTOR.services_by_name["SchedulingService"]
    names = [method.name for method in service.methods]
    cycle = names[: names.index("PreBindPreFlight")]
    # PostFilter stays open while SimulateFilter comes; Unreserve is not of a cycle that goes on.
    assert sorted(set(cycle) - {"PostFilter", "Unreserve"}) == CALLS


@pytest.mark.parametrize("call", CALLS)
@given(token=st.binary(max_size=300))
def test_wrapped_is_what_protobuf_writes(call: str, token: bytes) -> None:
    request = getattr(spb, f"{call}Request")()
    request.ctx.plugin_token = token
    envelope = stream_pb2.StreamCallsRequest(**{snake(call): request})
    raw = wrap(NUMBERS[call], request.SerializeToString())
    assert raw == envelope.SerializeToString()
    assert unwrap_request(raw) == (NUMBERS[call], request.SerializeToString())
    answer = getattr(spb, f"{call}Response")()
    answer.ctx.plugin_token = token
    raw = wrap(NUMBERS[call], answer.SerializeToString())
    assert unwrap_answer(raw) == (NUMBERS[call], answer.SerializeToString())


def test_another_way_of_writing_is_read_too() -> None:
    reserve = spb.ReserveRequest(node_name="n0")
    plain = wrap(NUMBERS["Reserve"], reserve.SerializeToString())
    of_a_later_minor = plain + bytes((0xA2, 0x06, 0x00))  # field 100, empty
    assert unwrap_request(of_a_later_minor) == (NUMBERS["Reserve"], reserve.SerializeToString())
    in_two_parts = plain + wrap(NUMBERS["Reserve"], spb.ReserveRequest(node_index=3).SerializeToString())
    number, raw = unwrap_request(in_two_parts)
    assert number == NUMBERS["Reserve"]
    assert spb.ReserveRequest.FromString(raw) == spb.ReserveRequest(node_name="n0", node_index=3)


@pytest.mark.parametrize("raw", [b"", b"\x12", b"\x12\xff\xff", b"\x12\x05x", b"\xa2\x06\x00", b"\xff"])
def test_envelope_without_a_call_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unwrap_request(raw)
