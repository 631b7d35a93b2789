"""Statuses on the wire: codes, readings of unset and unknown ones, and what is cut."""

from __future__ import annotations

import pytest
from berth_host.errors.plugins import PluginProtocolError
from berth_host.log.hidden import MASK, forget, hide
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.served.statuses import cut, decode_status, plain
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.status import Code, Status
from berth_sdk.wire.status import encode_status
from hypothesis import given
from hypothesis import strategies as st


def read(message: pb.PluginStatus) -> Status:
    return decode_status(message, ("Demo", "Filter"), CodeLog())


@pytest.mark.parametrize("code", list(Code))
def test_every_code_survives_the_way_there_and_back(code: Code) -> None:
    status = Status(code, ("why", "and why"))
    assert read(encode_status(status)) == status.with_plugin("Demo")


def test_status_without_a_code_is_a_violation() -> None:
    with pytest.raises(PluginProtocolError, match=r"answered a status without a code: set `code`"):
        read(pb.PluginStatus())


def test_reasons_without_a_code_are_a_violation() -> None:
    with pytest.raises(PluginProtocolError, match=r"no GPU is free.*set `code`") as caught:
        read(pb.PluginStatus(reasons=["no GPU is free", "more"]))
    assert caught.value.text.startswith('plugin "Demo" answered a status with reasons and without a code')


def test_unknown_code_is_an_error_that_says_so() -> None:
    message = pb.PluginStatus(reasons=["because"])
    message.code = 42  # type: ignore[assignment]  # from a newer contract
    status = read(message)
    assert status.code is Code.ERROR
    assert status.reasons == ('plugin "Demo" answered the unknown status code 42', "because")


def test_reasons_beyond_thirty_two_are_dropped() -> None:
    message = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=[str(i) for i in range(40)])
    assert len(read(message).reasons) == 32


def test_reasons_beyond_four_kib_are_cut() -> None:
    message = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=["x" * 4096, "y" * 5000])
    assert [len(reason) for reason in read(message).reasons] == [4096, 4096]


@given(st.text(max_size=400))
def test_text_is_cut_at_its_limit_and_never_inside_a_character(text: str) -> None:
    short = cut(text, 256)
    assert len(short.encode()) <= 256
    assert text.startswith(short)
    if short != text:
        assert len((short + text[len(short)]).encode()) > 256


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("it costs 5 € — 高い", "it costs 5 € — 高い"),
        ("busy\n227 of 227 pods placed\t", "busy 227 of 227 pods placed "),
        ("\x1b]0;title\x07\x1b[2J\x9bJ\r", "?]0;title??[2J?J "),
        ("\u202ekcab", "?kcab"),
    ],
)
def test_words_of_a_plugin_are_one_line_that_does_nothing_to_a_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown
    message = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=[text])
    assert read(message).reasons == (shown,)


@pytest.mark.parametrize("before", [4080, 4090, 4095, 4096])
def test_secret_that_a_cut_divides_is_hidden(before: int) -> None:
    secret = "hunter2-of-the-cut"
    hide([secret])
    try:
        text = "a" * (before - 1) + " " + secret + " and more"
        (reason,) = read(pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=[text])).reasons
    finally:
        forget([secret])
    assert "hunter" not in reason
    assert reason == (text[:before] + MASK + " and more")[:4096]
