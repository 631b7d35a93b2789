"""Node sets of every form, read by the host and by the SDK, against plain sets of Python.

Bitmaps that are empty, short, long or end in zeros, complements, names, and nothing at all. Memory is filled
with ones before each reading, so that code which reads memory that was never written reads ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.replies import ReplyReader
from berth_host.rpc.served.requests import encode_candidates, encode_names
from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.requests import decode_names
from berth_sdk.wire.scores import Scored
from hypothesis import given
from hypothesis import strategies as st
from support.frameworks import table_of

REJECTED = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE)

SLOTS = 70
NAMES = [f"n{slot}" for slot in range(SLOTS)]
INDEX: Mapping[str, int] = {name: slot for slot, name in enumerate(NAMES)}
EVERYTHING = table_of(*NAMES)

slots = st.sets(st.integers(0, SLOTS - 1))
spare_bytes = st.integers(0, 3)


def bitmap_of(members: set[int], spare: int) -> bytes:
    """As the contract says it, bit by bit; `spare`: zero bytes at the end that could be left out."""
    raw = bytearray(max((slot // 8 + 1 for slot in members), default=0) + spare)
    for slot in members:
        raw[slot // 8] |= 1 << slot % 8
    return bytes(raw)


def table(chosen: set[int]) -> NodeTable:
    return EVERYTHING.take(np.asarray(sorted(chosen), dtype=np.intp))


def dirty_memory() -> None:
    """Blocks of all the sizes that a set of nodes may take, full of ones, and free again."""
    blocks = [np.full(size, 0xFF, dtype=np.uint8) for size in range(1, SLOTS + 32) for _ in range(8)]
    del blocks


def reader(candidates: set[int], mode: NodeMode) -> ReplyReader:
    return ReplyReader("P", "Filter", mode, table(candidates))


def rejected(candidates: set[int], nodes: pb.NodeSet, mode: NodeMode) -> set[int]:
    """Which of the candidates the host takes for rejected."""
    message = scheduling_pb2.NodeVerdicts()
    message.rejected.add(status=REJECTED, nodes=nodes)
    dirty_memory()
    verdicts = reader(candidates, mode).verdicts(message)
    positions = np.flatnonzero(verdicts.groups)
    return {sorted(candidates)[position] for position in positions}


@pytest.mark.slow
@given(candidates=slots, listed=slots, complement=st.booleans(), spare=spare_bytes)
def test_host_reads_bitmaps_of_replies(
    candidates: set[int], listed: set[int], complement: bool, spare: int
) -> None:
    message = pb.NodeSet(bitmap=bitmap_of(listed, spare), complement=complement)
    if listed <= candidates:
        expected = candidates - listed if complement else listed
        assert rejected(candidates, message, NodeMode.SNAPSHOT) == expected
    else:
        with pytest.raises(PluginProtocolError, match="not among the candidates"):
            rejected(candidates, message, NodeMode.SNAPSHOT)


@pytest.mark.slow
@given(candidates=slots, listed=slots, complement=st.booleans())
def test_host_reads_names_of_replies(candidates: set[int], listed: set[int], complement: bool) -> None:
    message = pb.NodeSet(names=[NAMES[slot] for slot in listed], complement=complement)
    if listed <= candidates:
        expected = candidates - listed if complement else listed
        assert rejected(candidates, message, NodeMode.NAMES) == expected
    else:
        with pytest.raises(PluginProtocolError, match="not among the candidates"):
            rejected(candidates, message, NodeMode.NAMES)


@given(
    candidates=slots,
    listed=slots,
    complement=st.booleans(),
    spare=spare_bytes,
    by_name=st.booleans(),
    mode=st.sampled_from([NodeMode.SNAPSHOT, NodeMode.NAMES]),
)
def test_host_reads_the_nodes_that_pre_filter_leaves(
    candidates: set[int], listed: set[int], complement: bool, spare: int, by_name: bool, mode: NodeMode
) -> None:
    names = [NAMES[slot] for slot in listed]
    form = {"names": names} if by_name else {"bitmap": bitmap_of(listed, spare)}
    message = scheduling_pb2.PreFilterResponse(eligible=pb.NodeSet(complement=complement, **form))
    read = ReplyReader("P", "PreFilter", mode, table(candidates))
    dirty_memory()
    if not by_name and not listed <= candidates:
        with pytest.raises(PluginProtocolError, match="not among the candidates"):
            CODECS["PreFilter"].read(read, Scored(message, 4, None))
        return
    # Names may go beyond the candidates: they stay in the diagnosis.
    expected = candidates - listed if complement else listed
    assert CODECS["PreFilter"].read(read, Scored(message, 4, None)).eligible == frozenset(
        NAMES[slot] for slot in expected
    )


@given(nodes=slots, listed=slots, complement=st.booleans(), spare=spare_bytes, by_name=st.booleans())
def test_plugin_reads_sets_of_requests(
    nodes: set[int], listed: set[int], complement: bool, spare: int, by_name: bool
) -> None:
    names = [NAMES[slot] for slot in listed]
    form = {"names": names} if by_name else {"bitmap": bitmap_of(listed, spare)}
    message = pb.NodeSet(complement=complement, **form)
    within = np.asarray(sorted(nodes), dtype=np.intp)
    dirty_memory()
    if listed <= nodes:
        expected = nodes - listed if complement else listed
        assert wire.decode_rows(message, within, INDEX).tolist() == sorted(expected)
        assert set(decode_names(message, table(nodes))) == {NAMES[slot] for slot in expected}
    else:
        with pytest.raises(wire.UnknownNodeError):
            wire.decode_rows(message, within, INDEX)


@given(candidates=slots, mode=st.sampled_from([NodeMode.SNAPSHOT, NodeMode.NAMES]))
def test_sets_that_the_host_writes_are_read_alike_by_a_plugin(candidates: set[int], mode: NodeMode) -> None:
    expected = [NAMES[slot] for slot in sorted(candidates)]
    of_nodes = encode_candidates(table(candidates), mode)
    of_names = encode_names(expected, mode, INDEX.get)
    assert decode_names(of_nodes, EVERYTHING) == expected
    assert decode_names(of_names, EVERYTHING) == expected


def test_unset_node_set_is_the_empty_set() -> None:
    for mode in (NodeMode.SNAPSHOT, NodeMode.NAMES):
        assert rejected({0, 3, 69}, pb.NodeSet(), mode) == set()
        assert rejected({0, 3, 69}, pb.NodeSet(complement=True), mode) == {0, 3, 69}
    assert wire.decode_bitmap(b"").tolist() == []


def test_rejection_with_success_is_a_violation() -> None:
    message = scheduling_pb2.NodeVerdicts()
    message.rejected.add(
        nodes=pb.NodeSet(bitmap=b"\x01"), status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)
    )
    with pytest.raises(PluginProtocolError, match="as rejected and gave them SUCCESS"):
        reader({0, 1}, NodeMode.SNAPSHOT).verdicts(message)


@pytest.mark.parametrize("mode", NodeMode)
def test_set_with_a_bitmap_and_names_is_a_violation(mode: NodeMode) -> None:
    both = pb.NodeSet(bitmap=b"\x01", names=["n1"])
    with pytest.raises(PluginProtocolError, match="by a bitmap and by names"):
        reader({0, 1}, mode).eligible(both)
    message = scheduling_pb2.NodeVerdicts()
    message.rejected.add(status=REJECTED, nodes=both)
    with pytest.raises(PluginProtocolError):
        reader({0, 1}, mode).verdicts(message)
