"""Scores written and read without a Python object per score: any protobuf library agrees."""

from __future__ import annotations

import numpy as np
import pytest
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.wire.scores import RepeatedScores, Scored, decode_aligned, encode_aligned, take_field
from hypothesis import given
from hypothesis import strategies as st

SCORES = st.one_of(
    st.lists(st.integers(0, 63), max_size=50),
    st.lists(st.integers(0, 255), max_size=50),
    st.lists(st.integers(0, 300), max_size=50),
    st.lists(st.integers(-64, 100), max_size=50),
    st.lists(st.integers(-(2**13), 2**13 - 1), max_size=50),
    st.lists(st.integers(-(2**40), 2**40), max_size=50),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50),
)


@given(SCORES)
def test_protobuf_reads_what_is_written_and_so_does_the_reader(scores: list[int]) -> None:
    raw = encode_aligned(np.asarray(scores, dtype=np.int64))
    message = spb.Scores.FromString(raw)
    assert list(message.dense) + list(message.small) == scores
    assert bool(message.small) == (bool(scores) and all(0 <= score <= 255 for score in scores))
    assert decode_aligned(raw).tolist() == scores


@given(SCORES)
def test_bytes_that_protobuf_wrote_are_read(scores: list[int]) -> None:
    assert decode_aligned(spb.Scores(dense=scores).SerializeToString()).tolist() == scores
    if all(0 <= score <= 255 for score in scores):
        assert decode_aligned(spb.Scores(small=bytes(scores)).SerializeToString()).tolist() == scores


@pytest.mark.parametrize(
    ("scores", "size"), [([0, 50, 255], 3), ([0, -1, 63], 3), ([0, 50, 256], 6), ([0, -8192, 8191], 6)]
)
def test_all_scores_of_an_answer_are_as_wide_as_the_widest(scores: list[int], size: int) -> None:
    assert len(encode_aligned(np.asarray(scores, dtype=np.int64))) == 2 + size


def test_named_scores_are_not_taken_for_aligned_ones() -> None:
    named = spb.Scores(named=[spb.NamedScore(node="n", score=1)])
    with pytest.raises(ValueError, match="aligned scores alone"):
        decode_aligned(named.SerializeToString())
    for both in (spb.Scores(dense=[1], named=named.named), spb.Scores(dense=[1], small=b"1")):
        with pytest.raises(ValueError, match="aligned scores alone"):
            decode_aligned(both.SerializeToString())


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"\x0a\x01\x80", "cut off"),
        (b"\x0a\x03\x80\x01\x80", "cut off"),
        (b"\x0a\x0b" + b"\x80" * 10 + b"\x01", "11 bytes"),
        (b"\x0a\x05\x01", "aligned scores alone"),
        (b"\x0a", "cut off"),
    ],
)
def test_malformed_scores_are_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_aligned(raw)


@given(SCORES, st.booleans(), st.binary(max_size=20))
def test_scores_beside_their_message_are_the_message_that_has_them(
    scores: list[int], skip: bool, token: bytes
) -> None:
    reply = spb.FilterResponse(ctx=pb.ReplyContext(plugin_token=token), skip_score=skip)
    raw = Scored(reply, 3, encode_aligned(np.asarray(scores, dtype=np.int64))).SerializeToString()
    parsed = spb.FilterResponse.FromString(raw)
    assert list(parsed.early_scores.dense) + list(parsed.early_scores.small) == scores
    assert parsed.HasField("early_scores")
    assert (parsed.ctx.plugin_token, parsed.skip_score) == (token, skip)
    rest, taken = take_field(raw, 3)
    assert taken is not None
    assert decode_aligned(taken).tolist() == scores
    assert spb.FilterResponse.FromString(rest) == reply


def test_message_without_the_field_or_with_two_of_it_is_left_to_the_parser() -> None:
    none = spb.FilterResponse(skip_score=True).SerializeToString()
    assert take_field(none, 3) == (none, None)
    one = spb.FilterResponse(early_scores=spb.Scores(dense=[1])).SerializeToString()
    assert take_field(one + one, 3) == (one + one, None)


@given(st.binary(max_size=40))
def test_no_bytes_make_the_search_fail(raw: bytes) -> None:
    rest, taken = take_field(raw, 3)
    assert taken is not None or rest is raw


def test_scores_are_read_again_only_when_they_are_other_ones() -> None:
    last = RepeatedScores()
    one, other = (encode_aligned(np.asarray(scores, dtype=np.int64)) for scores in ([1, 200, -3], [4, 5, 6]))
    first = last.decode(one)
    assert last.decode(bytes(bytearray(one))) is first
    assert last.decode(other).tolist() == [4, 5, 6]
    assert last.decode(one).tolist() == first.tolist() == [1, 200, -3]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 7
    with pytest.raises(ValueError, match="not a Scores message"):
        last.decode(one + b"x")
    assert last.decode(one).tolist() == [1, 200, -3]
    assert last.decode(b"").tolist() == []
