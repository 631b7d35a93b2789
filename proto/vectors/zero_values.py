"""Write zero_values.json: messages with zero values, and how each field must be read.

    python proto/write_vectors.py zero_values

Zero values are not on the wire in proto3. Some generators leave such fields out of their objects, show enums
as text or as numbers, and 64-bit numbers as text. The vectors say for each field what a program must see. The
expected values are written here by hand; `tests/contract/test_vectors.py` reads the bytes.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2, state_pb2
from google.protobuf.message import Message
from vectors.writing import written

Field = dict[str, Any]


def document() -> dict[str, Any]:
    """Return the content of zero_values.json."""
    return {
        "source": "the proto3 wire format; written by proto/write_vectors.py",
        "messages": [
            {"name": name, "message": written(message), "fields": fields} for name, message, fields in _rows()
        ],
        "unknown": [
            {"name": name, "type": kind.DESCRIPTOR.full_name, "hex": raw.hex(), "fields": fields}
            for name, kind, raw, fields in _unknown()
        ],
    }


def _value(path: str, value: Any) -> Field:
    return {"path": path, "value": value}


def _present(path: str, is_present: bool) -> Field:
    return {"path": path, "present": is_present}


def _enum(path: str, name: str, number: int) -> Field:
    return {"path": path, "value": number, "enum": name}


def _rows() -> list[tuple[str, Message, list[Field]]]:
    code = pb.PluginStatus
    return [
        (
            "an empty status",
            code(),
            [_enum("code", "CODE_UNSPECIFIED", 0), _value("reasons", [])],
        ),
        ("no status: nothing to object", pb.ReplyContext(cycle_id="c"), [_present("status", False)]),
        ("a status", code(code=code.CODE_SUCCESS), [_enum("code", "CODE_SUCCESS", 1), _value("reasons", [])]),
        (
            "a code that was lost: a status without a code is a violation",
            code(reasons=["no"]),
            [_enum("code", "CODE_UNSPECIFIED", 0), _value("reasons", ["no"])],
        ),
        (
            "the first chunk of a stream has sequence 0",
            state_pb2.SyncStateRequest(chunk=pb.StateDelta(), attachment_id="a-1"),
            [_value("sequence", 0), _value("last", False), _present("chunk", True)],
        ),
        (
            "the node with index 0",
            scheduling_pb2.ReserveRequest(node_name="n0", node_index=0),
            [_present("node_index", True), _value("node_index", 0), _present("trial", False)],
        ),
        (
            "no index: the plugin names nodes by name",
            scheduling_pb2.ReserveRequest(node_name="n0"),
            [_present("node_index", False)],
        ),
        (
            "every pod is in the scope",
            identity_pb2.PluginDescriptor(name="P"),
            [_present("scope", False)],
        ),
        (
            "no pod is in the scope",
            identity_pb2.PluginDescriptor(name="P", scope=identity_pb2.PodScope()),
            [_present("scope", True), _value("scope.terms", [])],
        ),
        (
            "the version of the empty snapshot",
            pb.StateVersion(epoch=7),
            [_value("epoch", 7), _value("generation", 0)],
        ),
        (
            "a delta without a base is the full state",
            pb.StateDelta(target=pb.StateVersion(epoch=7, generation=1)),
            [_present("base", False), _present("target", True), _value("node_count", 0)],
        ),
        (
            "a delta whose base is the empty snapshot",
            pb.StateDelta(base=pb.StateVersion(epoch=7), target=pb.StateVersion(epoch=7, generation=1)),
            [_present("base", True), _value("base.generation", 0)],
        ),
        ("no token: the last one stays", pb.ReplyContext(cycle_id="c"), [_present("plugin_token", False)]),
        (
            "an empty token: the host forgets the token",
            pb.ReplyContext(cycle_id="c", plugin_token=b""),
            [_present("plugin_token", True), _value("plugin_token", "")],
        ),
        ("no narrowing", scheduling_pb2.PreFilterResponse(), [_present("eligible", False)]),
        (
            "narrowed to no node",
            scheduling_pb2.PreFilterResponse(eligible=pb.NodeSet()),
            [_present("eligible", True), _value("eligible.complement", False)],
        ),
        (
            "the host binds",
            scheduling_pb2.BindResponse(host_binds=True),
            [_value("host_binds", True), _present("ctx", False)],
        ),
        ("the plugin has bound", scheduling_pb2.BindResponse(), [_value("host_binds", False)]),
        (
            "an explicit request of 0 has a key",
            pb.PodSummary(requests={"cpu": 0}),
            [_value("requests", {"cpu": 0}), _value("non_zero_requests", {}), _value("priority", 0)],
        ),
        ("a score of 0", scheduling_pb2.NamedScore(node="n0"), [_value("score", 0), _value("node", "n0")]),
        ("a negative priority", pb.PodSummary(priority=-5), [_value("priority", -5)]),
        (
            "numbers up to 2^53 - 1",
            pb.StateVersion(epoch=2**53 - 1, generation=2**53 - 1),
            [_value("epoch", 2**53 - 1), _value("generation", 2**53 - 1)],
        ),
        (
            "a large negative score",
            scheduling_pb2.NamedScore(node="n0", score=-(2**53) + 1),
            [_value("score", -(2**53) + 1)],
        ),
        (
            "enums in a list",
            identity_pb2.PluginDescriptor(
                points=[identity_pb2.EXTENSION_POINT_FILTER, identity_pb2.EXTENSION_POINT_SCORE]
            ),
            [_value("points", [4, 7]), _enum("node_mode", "NODE_MODE_UNSPECIFIED", 0)],
        ),
        (
            "a secret of the handshake, which no debug print may show",
            identity_pb2.HandshakeRequest(host_version="1.0", credential="open-sesame"),
            [_value("credential", "open-sesame"), _value("host_epoch", 0)],
        ),
        (
            "a secret of the way back, which no debug print may show",
            identity_pb2.ConfigureRequest(
                handle=identity_pb2.HandleEndpoint(target="unix:///run/h.sock", token="open-sesame")
            ),
            [_value("handle.token", "open-sesame"), _value("accepted", False)],
        ),
    ]


def _unknown() -> list[tuple[str, type[Message], bytes, list[Field]]]:
    """Return messages of a newer peer, as bytes: JSON cannot say them."""
    return [
        ("an unknown code", pb.PluginStatus, b"\x08\x63", [_value("code", 99)]),
        (
            "an unknown point in a list",
            identity_pb2.PluginDescriptor,
            b"\x1a\x03\x04\xf4\x03",
            [_value("points", [4, 500])],
        ),
        (
            "an unknown outcome",
            pb.CycleEnd,
            b"\x0a\x01c\x10\x2a",
            [_value("cycle_id", "c"), _value("outcome", 42)],
        ),
        (
            "an unknown field",
            pb.StateVersion,
            b"\x08\x07\x10\x05\xfa\x3f\x03new",
            [_value("epoch", 7), _value("generation", 5)],
        ),
        (
            "an unknown field of numbers",
            pb.StateVersion,
            b"\x98\x3f\x2a\x08\x07",
            [_value("epoch", 7), _value("generation", 0)],
        ),
    ]
