"""Records and messages are paired by the names of their fields; one that does not fit is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.results import BindResult, PatchOutcome, PatchResult, PermitResult, PostFilterResult
from berth_sdk.runtime.early import PreScored
from berth_sdk.status import SUCCESS, Status
from berth_sdk.wire import records as wire
from berth_sdk.wire.codec import RPCS, Layout

WRITERS: dict[str, Any] = {
    "ObjectRef": lambda _scope, ref: wire.encode_ref(ref),
    "Outcome": lambda _scope, outcome: outcome.value,
    "ObjectPatch": lambda _scope, patch: patch,
    "Duration": lambda scope, _seconds: scope,
}
READERS: dict[str, Any] = {
    "ObjectRef": lambda _scope, message: wire.decode_ref(message),
    "Outcome": lambda _scope, number: PatchOutcome(number),
    "ObjectPatch": lambda _scope, message: message,
    "Duration": lambda scope, _message: scope,
}


@dataclass(frozen=True)
class TooMuch:
    status: Status
    host_binds: bool = False
    color: str = ""


@dataclass(frozen=True)
class TooLittle:
    status: Status


def test_a_record_with_more_than_the_message_is_refused() -> None:
    with pytest.raises(TypeError, match=r"TooMuch\.color has no field in BindResponse"):
        Layout(TooMuch, spb.BindResponse)


def test_a_message_with_more_than_the_record_is_refused() -> None:
    with pytest.raises(TypeError, match=r"BindResponse\.host_binds has no attribute in TooLittle"):
        Layout(TooLittle, spb.BindResponse)


def test_plain_values_and_lists_survive_both_ways() -> None:
    layout = Layout(PostFilterResult, spb.PostFilterResponse)
    victims = (ObjectRef(namespace="d", name="a", uid="1"), ObjectRef(namespace="d", name="b", uid="2"))
    answer = PostFilterResult(SUCCESS, "n1", True, victims)
    message = layout.encode(WRITERS, None, answer)
    assert (message.nominated_node, message.clear_nomination, len(message.victims)) == ("n1", True, 2)
    assert PostFilterResult(SUCCESS, **layout.decode(READERS, None, message)) == answer


def test_nothing_in_a_record_is_an_empty_message() -> None:
    layout = Layout(PostFilterResult, spb.PostFilterResponse)
    assert layout.encode(WRITERS, None, PostFilterResult(SUCCESS)).ByteSize() == 0


def test_an_optional_value_travels_even_if_it_is_empty() -> None:
    layout = Layout(PermitResult, spb.PermitResponse)
    empty = spb.PermitResponse().wait_timeout
    assert layout.encode(WRITERS, empty, PermitResult(SUCCESS, 0.0)).HasField("wait_timeout")
    assert not layout.encode(WRITERS, empty, PermitResult(SUCCESS)).HasField("wait_timeout")
    assert layout.decode(READERS, 7.0, spb.PermitResponse()) == {}


def test_enums_and_nested_messages_have_a_kind() -> None:
    layout = Layout(PatchResult, spb.PatchResult)
    assert {part.attribute: part.kind for part in layout.parts} == {
        "outcome": "Outcome",
        "ref": "ObjectRef",
        "object": "KubeObject",
        "message": "",
    }
    result = PatchResult(outcome=PatchOutcome.CONFLICT, ref=ObjectRef(name="a"), message="late")
    message = layout.encode(WRITERS, None, result)
    assert message.outcome == spb.PatchResult.OUTCOME_CONFLICT
    assert PatchResult(**layout.decode(READERS, None, message)) == result


def test_scores_and_status_are_left_to_the_caller() -> None:
    layout = Layout(PreScored, spb.PreScoreResponse)
    assert layout.parts == ()
    assert layout.scores is not None
    assert (layout.scores.attribute, layout.scores.field) == ("scores", "early_scores")
    assert layout.has_own_status
    assert Layout(BindResult, spb.BindResponse).scores is None


def test_calls_have_the_paths_and_messages_of_the_contract() -> None:
    bind, hints = RPCS["Bind"], RPCS["QueueingHints"]
    assert (bind.path, bind.request, bind.reply) == (
        "/berth.plugin.v1.SchedulingService/Bind",
        spb.BindRequest,
        spb.BindResponse,
    )
    assert hints.path == "/berth.plugin.v1.QueueService/QueueingHints"
