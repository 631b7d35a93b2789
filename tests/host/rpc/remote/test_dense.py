"""Dense scores read without a Python object per score."""

from __future__ import annotations

import pytest
from berth_host.rpc.remote.dense import decode_dense
from berth_sdk.plugin.v1 import scheduling_pb2
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300))
def test_what_protobuf_wrote_is_read(scores: list[int]) -> None:
    raw = scheduling_pb2.Scores(dense=scores).SerializeToString()
    assert decode_dense(raw).tolist() == scores


def test_named_scores_are_not_taken_for_dense_ones() -> None:
    named = scheduling_pb2.Scores(named=[scheduling_pb2.NamedScore(node="n", score=1)])
    with pytest.raises(ValueError, match="dense scores alone"):
        decode_dense(named.SerializeToString())
