"""Write frames.json: bytes of framed connections and what they mean, for authors in other languages.

    python proto/vectors/frames.py

The bytes are packed here from docs/reference/framed-transport.md alone, without the code of host or SDK. So
`tests/contract/test_frame_vectors.py` compares three readings of the page. It also fails if the file is not
what this script writes.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final

from berth_sdk.plugin.v1 import common_pb2, scheduling_pb2

PATH: Final = Path(__file__).with_name("frames.json")
CALL, FAILURE, CLOSING = 0, 1, 2
FILTER, RESERVE, PERMIT, FEASIBLE = 2, 7, 8, 12
INTERNAL, UNAVAILABLE = 13, 14
LIMIT: Final = 4 * 1024 * 1024


def document() -> dict[str, Any]:
    """Return the content of frames.json."""
    return {
        "source": "docs/reference/framed-transport.md; written by proto/vectors/frames.py",
        "limitBytes": LIMIT,
        "frames": [
            dict(zip(("name", "hex", "kind", "call", "payload"), row, strict=True)) for row in _frames()
        ],
        "conversations": _conversations(),
        "refusedByHost": [{"name": name, "hex": raw.hex(), "why": why} for name, raw, why in _bad_answers()],
        "refusedByServer": [
            {"name": name, "hex": raw.hex(), "why": why} for name, raw, why in _bad_requests()
        ],
    }


def _frame(kind: int, call: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBB", len(payload), kind, call) + payload


def _failure(call: int, code: int, text: str) -> bytes:
    return _frame(FAILURE, call, struct.pack(">I", code) + text.encode())


def _reserve() -> bytes:
    pod = common_pb2.CyclePod(complete=True)
    pod.summary.ref.CopyFrom(common_pb2.ObjectRef(namespace="default", name="p", uid="u-1"))
    context = common_pb2.CallContext(
        attachment_id="a-1", plugin="Demo", profile="default-scheduler", cycle_id="c-1", pod=pod
    )
    return scheduling_pb2.ReserveRequest(ctx=context, node_name="n0").SerializeToString(deterministic=True)


def _reserved() -> bytes:
    status = common_pb2.PluginStatus(code=common_pb2.PluginStatus.CODE_SUCCESS)
    context = common_pb2.ReplyContext(cycle_id="c-1", status=status)
    return scheduling_pb2.ReserveResponse(ctx=context).SerializeToString(deterministic=True)


def _feasible() -> bytes:
    """Return the question about three members of a gang, of which one may fail: seven steps."""
    group = common_pb2.CycleGroup(complete=True)
    group.summary.ref.CopyFrom(common_pb2.ObjectRef(namespace="default", name="g", uid="u-2"))
    group.summary.gang, group.summary.min_count = True, 2
    parents = [common_pb2.CycleParent(cycle_id="g-1")]
    context = common_pb2.CallContext(
        attachment_id="a-1",
        plugin="Demo",
        profile="default-scheduler",
        cycle_id="g-1.1",
        group=group,
        parents=parents,
    )
    return scheduling_pb2.PlacementFeasibleRequest(
        ctx=context, remaining=3, max_failures=1
    ).SerializeToString(deterministic=True)


def _judged() -> bytes:
    """Return the answer: with no failure it waits until two are scheduled; after one failure too."""
    wait = common_pb2.PluginStatus(code=common_pb2.PluginStatus.CODE_WAIT, reasons=["{scheduled} of 2"])
    runs = [
        scheduling_pb2.FeasibleRun(count=count, status=status)
        for count, status in ((2, wait), (2, None), (2, wait), (1, None))
    ]
    context = common_pb2.ReplyContext(cycle_id="g-1.1")
    return scheduling_pb2.PlacementFeasibleResponse(ctx=context, runs=runs).SerializeToString(
        deterministic=True
    )


def _frames() -> list[tuple[str, str, str, int, str]]:
    rows = [
        ("a request: Reserve of the pod default/p on the node n0", CALL, RESERVE, _reserve()),
        ("its answer: SUCCESS in the cycle c-1", CALL, RESERVE, _reserved()),
        ("an empty message", CALL, PERMIT, b""),
        ("a request: PlacementFeasible of seven steps in a group's cycle", CALL, FEASIBLE, _feasible()),
        ("its answer: four runs", CALL, FEASIBLE, _judged()),
        ("a failure: INTERNAL, in UTF-8", FAILURE, FILTER, struct.pack(">I", INTERNAL) + "größer".encode()),
        ("a failure without a text: UNAVAILABLE", FAILURE, FILTER, struct.pack(">I", UNAVAILABLE)),
        ("the server closes", CLOSING, 0, b""),
    ]
    names = {CALL: "CALL", FAILURE: "FAILURE", CLOSING: "CLOSING"}
    return [
        (name, _frame(kind, call, payload).hex(), names[kind], call, payload.hex())
        for name, kind, call, payload in rows
    ]


def _conversations() -> list[dict[str, Any]]:
    """Return requests of the host, the bytes that the server sends, and what the host makes of them."""
    asked, answered = _frame(CALL, RESERVE, _reserve()), _frame(CALL, RESERVE, _reserved())
    rows: list[tuple[str, list[tuple[bytes, bytes, str]]]] = [
        ("an answer", [(asked, answered, "answer")]),
        ("one call after the other", [(asked, answered, "answer"), (asked, answered, "answer")]),
        (
            "a call that fails leaves the connection open",
            [
                (asked, _failure(RESERVE, INTERNAL, "Demo.reserve raised"), "INTERNAL"),
                (asked, answered, "answer"),
            ],
        ),
        ("a server that stops before it executes the call", [(asked, _frame(CLOSING, 0), "not executed")]),
        ("a server that stops after its answer", [(asked, answered + _frame(CLOSING, 0), "answer")]),
    ]
    return [
        {
            "name": name,
            "steps": [
                {"host": host.hex(), "server": server.hex(), "outcome": outcome}
                for host, server, outcome in steps
            ],
        }
        for name, steps in rows
    ]


def _bad_answers() -> list[tuple[str, bytes, str]]:
    """Return what the host refuses in place of the answer to a Reserve; it closes the connection."""
    return [
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n", "the kind is not known"),
        ("an unknown kind", _frame(3, RESERVE), "the kind is not known"),
        ("the answer to another call", _frame(CALL, PERMIT), "the call differs from the request's"),
        (
            "the failure of another call",
            _failure(PERMIT, INTERNAL, "no"),
            "the call differs from the request's",
        ),
        ("a failure without a code", _frame(FAILURE, RESERVE, b"\0\0"), "a FAILURE has four bytes at least"),
        (
            "a frame over the limit",
            struct.pack(">IBB", LIMIT + 1, CALL, RESERVE),
            "the length is over the limit",
        ),
    ]


def _bad_requests() -> list[tuple[str, bytes, str]]:
    """Return what the server refuses; it closes the connection."""
    asked = _frame(CALL, RESERVE, _reserve())
    return [
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the kind is not known"),
        ("a failure", _failure(RESERVE, INTERNAL, "no"), "only the server sends FAILURE"),
        ("a closing", _frame(CLOSING, 0), "only the server sends CLOSING"),
        ("two requests at once", asked + asked, "the first one has no answer yet"),
        ("more than one request", asked + b"\0", "the first one has no answer yet"),
        (
            "a frame over the limit",
            struct.pack(">IBB", 2**32 - 1, CALL, RESERVE),
            "the length is over the limit",
        ),
    ]


if __name__ == "__main__":
    PATH.write_text(json.dumps(document(), indent=1, ensure_ascii=False) + "\n")
