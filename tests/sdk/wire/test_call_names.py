"""The metadata that names attachment and plugin, compared with requests."""

from __future__ import annotations

import pytest
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2, scheduling_pb2
from berth_sdk.wire.call_names import disagreement_of, metadata_of
from google.protobuf.message import Message

CYCLE = scheduling_pb2.FilterRequest(ctx=pb.CallContext(attachment_id="a", plugin="P"))
BATCH = scheduling_pb2.PostBindRequest(attachment_id="a", plugin="P")
PROBE = identity_pb2.ProbeRequest(attachment_id="a")
ASKING = handle_pb2.NominateRequest(plugin="P")


@pytest.mark.parametrize("request_of_call", [CYCLE, BATCH, PROBE, ASKING], ids=lambda one: type(one).__name__)
def test_metadata_of_a_call_agrees_with_its_request(request_of_call: Message) -> None:
    disagreement = disagreement_of(type(request_of_call))
    assert disagreement(request_of_call, metadata_of("a", "P")) == ""
    assert disagreement(request_of_call, (("user-agent", "x"),)) == ""


@pytest.mark.parametrize(
    ("request_of_call", "metadata", "text"),
    [
        (
            CYCLE,
            metadata_of("b", "P"),
            "berth-attachment-id names 'b', and attachment_id of the request names 'a'",
        ),
        (CYCLE, metadata_of("a", "Q"), "berth-plugin names 'Q', and plugin of the request names 'P'"),
        (BATCH, metadata_of("a", "Q"), "berth-plugin names 'Q'"),
        (PROBE, metadata_of("b"), "berth-attachment-id names 'b'"),
        (ASKING, metadata_of(plugin="Q"), "berth-plugin names 'Q'"),
    ],
    ids=[
        "attachment-of-cycle",
        "plugin-of-cycle",
        "plugin-of-batch",
        "attachment-of-probe",
        "plugin-of-handle",
    ],
)
def test_disagreement_is_named(
    request_of_call: Message, metadata: tuple[tuple[str, str], ...], text: str
) -> None:
    assert text in disagreement_of(type(request_of_call))(request_of_call, metadata)


def test_name_that_metadata_cannot_hold_is_left_out() -> None:
    assert metadata_of("a", "Prüfer") == metadata_of("a", "two words") == (("berth-attachment-id", "a"),)
