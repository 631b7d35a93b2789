"""The page of examples/python is true of Python's generated code, by the vectors of the contract."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2, state_pb2
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict, MessageToJson
from support.places import ROOT

FILE = json.loads((ROOT / "proto/vectors/zero_values.json").read_text())
MODULES = (pb, identity_pb2, scheduling_pb2, state_pb2)


def vector(name: str) -> Any:
    """Return the message of the vectors that has a name."""
    (one,) = [one for part in ("messages", "unknown") for one in FILE[part] if one["name"] == name]
    kind = one.get("message", one)["type"].rpartition(".")[2]
    (cls,) = {getattr(module, kind) for module in MODULES if hasattr(module, kind)}
    raw = bytes.fromhex(one["hex"]) if "hex" in one else base64.b64decode(one["message"]["base64"])
    return cls.FromString(raw)


def test_zero_values_are_there_and_left_out_as_json_unless_asked_for() -> None:
    chunk = vector("the first chunk of a stream has sequence 0")
    assert (chunk.sequence, chunk.last) == (0, False)
    assert "sequence" not in MessageToDict(chunk)
    shown = MessageToDict(chunk, always_print_fields_with_no_presence=True)
    assert (shown["sequence"], shown["last"]) == (0, False)


def test_what_is_unset_is_told_by_has_field() -> None:
    delta = vector("a delta without a base is the full state")
    assert not delta.HasField("base")
    assert delta.base.generation == 0
    assert vector("a delta whose base is the empty snapshot").HasField("base")
    assert not vector("no token: the last one stays").HasField("plugin_token")
    forget = vector("an empty token: the host forgets the token")
    assert (forget.HasField("plugin_token"), forget.plugin_token) == (True, b"")


def test_enums_are_numbers_and_names_as_json_unless_asked_for() -> None:
    status = vector("a status")
    assert status.code == pb.PluginStatus.CODE_SUCCESS == 1
    assert MessageToDict(status) == {"code": "CODE_SUCCESS"}
    assert MessageToDict(status, use_integers_for_enums=True) == {"code": 1}
    assert vector("an unknown code").code == 99


def test_numbers_of_64_bits_are_text_as_json() -> None:
    version = vector("numbers up to 2^53 - 1")
    assert version.epoch == 2**53 - 1
    assert MessageToDict(version)["epoch"] == str(2**53 - 1)


def test_unknown_fields_are_kept() -> None:
    version = vector("an unknown field")
    assert version.SerializeToString() == bytes.fromhex("08071005fa3f036e6577")


def test_a_map_adds_the_key_that_is_read() -> None:
    pod = vector("an explicit request of 0 has a key")
    assert "cpu" in pod.requests
    assert "memory" not in pod.requests
    assert pod.requests["memory"] == 0
    assert "memory" in pod.requests


@pytest.mark.parametrize("what", ["the handshake", "the way back"])
def test_debug_print_shows_secrets(what: str) -> None:
    """With a library that leaves secrets out, this fails: then change the page."""
    message = vector(f"a secret of {what}, which no debug print may show")
    for printed in (
        str(message),
        repr(message),
        text_format.MessageToString(message),
        MessageToJson(message),
    ):
        assert "open-sesame" in printed
