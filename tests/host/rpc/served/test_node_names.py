"""The encoded names of candidates: the bytes are those of protobuf, and follow the list of nodes."""

from __future__ import annotations

from berth_host.rpc.served.node_names import EncodedNames, NamedRequest, field_bytes
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.testing.builders import make_node
from support.attached import ClusterState


def test_bytes_are_those_of_the_message_for_all_nodes_and_for_some() -> None:
    state, encoded = ClusterState(), EncodedNames()
    state.add_nodes(make_node(name) for name in ("a", "b" * 200, "knöten"))
    for nodes in (state.nodes, state.nodes.take([0, 2]), state.nodes.take([2, 0]), state.nodes.take([])):
        assert encoded.of(nodes) == pb.NodeSet(names=nodes.names).SerializeToString()
    assert encoded.of(state.nodes) is encoded.of(state.nodes)


def test_names_follow_the_list_of_nodes() -> None:
    state, encoded = ClusterState(), EncodedNames()
    state.add_nodes([make_node("a")])
    before = encoded.of(state.nodes)
    state.add_nodes([make_node("b")])
    assert encoded.of(state.nodes) == pb.NodeSet(names=["a", "b"]).SerializeToString() != before


def test_request_with_appended_candidates_is_read_as_a_whole() -> None:
    names = pb.NodeSet(names=[f"node-{i}" for i in range(300)])
    request = NamedRequest(spb.FilterRequest(), field_bytes(2, names.SerializeToString()))
    request.ctx.cycle_id = "c1"
    number = spb.FilterRequest.DESCRIPTOR.fields_by_name["candidates"].number
    request.tail = field_bytes(number, names.SerializeToString())
    read = spb.FilterRequest.FromString(request.SerializeToString())
    assert (read.ctx.cycle_id, read.candidates) == ("c1", names)
    request.ClearField("ctx")
    assert not spb.FilterRequest.FromString(request.SerializeToString()).HasField("ctx")
