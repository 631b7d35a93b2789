"""Requests are read as the contract says, unset and unknown values included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.results import PatchOutcome
from berth_sdk.status import UNRESOLVABLE, Code
from berth_sdk.testing import make_node, make_table
from berth_sdk.wire.requests import (
    decode_args,
    decode_names,
    decode_patched,
    decode_rejections,
    decode_scores,
    decode_status,
)
from google.protobuf.struct_pb2 import Struct

NODES = make_table([make_node(f"n{i}") for i in range(3)])


def test_arguments_get_their_integers_back() -> None:
    args: dict[str, Any] = {
        "weight": 3,
        "share": 0.5,
        "on": True,
        "none": None,
        "list": [1, "two", {"three": 3}],
        "map": {"deep": {"four": 4}},
    }
    message = Struct()
    message.update(args)
    got = decode_args(message)
    assert got == args
    assert [type(got["weight"]), type(got["on"]), type(got["list"][2]["three"])] == [int, bool, int]


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (pb.PluginStatus.CODE_UNSPECIFIED, Code.ERROR),
        (pb.PluginStatus.CODE_PENDING, Code.PENDING),
        (42, Code.ERROR),
    ],
)
def test_unset_code_and_unknown_one_are_read_as_error(
    code: pb.PluginStatus.Code.ValueType, want: Code
) -> None:
    assert decode_status(pb.PluginStatus(code=code)).code is want


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (spb.PatchResult.OUTCOME_APPLIED, PatchOutcome.APPLIED),
        (spb.PatchResult.OUTCOME_UNSPECIFIED, PatchOutcome.REFUSED),
        (77, PatchOutcome.REFUSED),
    ],
)
def test_an_unknown_outcome_reads_as_refused(
    outcome: spb.PatchResult.Outcome.ValueType, want: PatchOutcome
) -> None:
    (got,) = decode_patched([spb.PatchResult(outcome=outcome, ref=pb.ObjectRef(name="x"))])
    assert got.outcome is want


def test_rejections_have_the_status_of_their_group_and_others_are_unresolvable() -> None:
    groups = [
        spb.NodeGroup(
            status=pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE),
            nodes=pb.NodeSet(bitmap=b"\x01"),
        ),
        spb.NodeGroup(
            status=pb.PluginStatus(code=pb.PluginStatus.CODE_PENDING), nodes=pb.NodeSet(names=["n1"])
        ),
    ]
    got = decode_rejections(groups, ["Fit"], NODES)
    assert (got.status("n0").code, got.status("n0").plugin) == (Code.UNSCHEDULABLE, "Fit")
    assert (got.status("n1").code, got.status("n1").plugin) == (Code.PENDING, "")
    assert got.status("n2") == UNRESOLVABLE


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (pb.NodeSet(), []),
        (pb.NodeSet(complement=True), ["n0", "n1", "n2"]),
        (pb.NodeSet(bitmap=b"\x05"), ["n0", "n2"]),
        (pb.NodeSet(names=["n2", "elsewhere"]), ["n2", "elsewhere"]),
        (pb.NodeSet(names=["n2"], complement=True), ["n0", "n1"]),
    ],
)
def test_a_set_of_nodes_reads_as_names(message: pb.NodeSet, want: list[str]) -> None:
    assert decode_names(message, NODES) == want


def test_scores_come_dense_or_by_name() -> None:
    named = [spb.NamedScore(node=name, score=score) for name, score in (("n2", 9), ("n0", 1), ("n1", 5))]
    for message in (spb.Scores(dense=[1, 5, 9]), spb.Scores(named=named)):
        got = decode_scores(message, NODES)
        assert np.array_equal(got, np.array([1, 5, 9], dtype=np.int64))
    with pytest.raises(KeyError):
        decode_scores(spb.Scores(named=named[:2]), NODES)
