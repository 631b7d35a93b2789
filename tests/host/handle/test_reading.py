"""The snapshot and the nominations, read through HandleService: whole, of one version, in bounds."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import deque
from collections.abc import Sequence

import grpc
import pytest
from berth_host.handle.reading import StateReader
from berth_host.handle.service import MAX_READS
from berth_host.model.resources import kind_of
from berth_host.rpc import state_codec
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import (
    NominatedPod,
)
from berth_sdk.testing.builders import make_node, make_pod
from berth_sdk.wire import records as wire
from support.attached import ClusterState
from support.handle_serving import (
    open_call,
    open_list,
    open_read,
    read,
    serving,
)
from support.waiting import PATIENCE_S, until


async def test_snapshot_is_read_whole_in_chunks_of_one_version() -> None:
    async with serving(2000) as host:
        chunks = await read(host)
        names = [node.name for chunk in chunks for node in chunk.nodes]
        assert len(chunks) > 1
        assert sorted(names) == sorted(host.state.node_names())
        assert {chunk.version.generation for chunk in chunks} == {host.state.version.generation}
        assert all(node.HasField("summary") for chunk in chunks for node in chunk.nodes)


async def test_some_nodes_are_read_by_name_by_bit_and_by_exclusion() -> None:
    async with serving(5) as host:
        by_name = await read(host, nodes=pb.NodeSet(names=["n3", "n1"]))
        assert sorted(node.name for chunk in by_name for node in chunk.nodes) == ["n1", "n3"]
        slot = host.state.index_of("n2") or 0
        by_bit = await read(host, nodes=pb.NodeSet(bitmap=(1 << slot).to_bytes(4, "little")))
        assert [node.name for chunk in by_bit for node in chunk.nodes] == ["n2"]
        others = await read(host, nodes=pb.NodeSet(complement=True, names=["n2"]))
        assert len([node for chunk in others for node in chunk.nodes]) == 4


async def test_a_node_with_many_pods_comes_in_one_piece() -> None:
    async with serving(2) as host:
        for i in range(400):
            host.state.put(make_pod(f"p{i}", uid=f"p{i}", annotations={"x/y": "z" * 300}), "n1")
        needs = [
            identity_pb2.DeclaredNeed(
                kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, annotation_prefixes=["x/"]
            )
        ]
        chunks = await read(host, needs=needs)
        nodes = [node for chunk in chunks for node in chunk.nodes]
        assert sorted(node.name for node in nodes) == ["n0", "n1"]
        assert max(len(node.pods) for node in nodes) == 400


async def test_objects_that_another_plugin_declared_are_not_read() -> None:
    """The host holds what any plugin declares; which of it a plugin sees is what its own handshake says."""
    async with serving() as host:
        for kind, resource in (("Secret", "secrets"), ("ConfigMap", "configmaps")):
            item = {"metadata": {"namespace": "shop", "name": "held"}, "data": {"password": "hush"}}
            host.state.objects.put(kind_of(resource), KubeObject("v1", kind, parsed=item))
            assert len(host.state.objects.of_resource(resource).list()) == 1
        await host.state.refresh()

        def objects(resource: str) -> list[identity_pb2.DeclaredNeed]:
            return [
                identity_pb2.DeclaredNeed(
                    kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource=resource, drop_fields=["data"]
                )
            ]

        chunks = await read(host, needs=objects("configmaps"))
        assert [item.resource for chunk in chunks for item in chunk.objects] == ["configmaps"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host, needs=[*objects("configmaps"), *objects("secrets")])
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert caught.value.details() == (
            "Demo reads objects of 'secrets', which it did not declare:"
            " add Need.objects('secrets') to `needs`"
        )


async def test_other_versions_cannot_be_read_and_the_current_one_is_named() -> None:
    async with serving() as host:
        version = host.state.version
        current = pb.StateVersion(epoch=version.epoch, generation=version.generation)
        assert await read(host, at=current)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host, at=pb.StateVersion(epoch=version.epoch, generation=version.generation - 1))
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == f"{version.epoch}/{version.generation}"


def contents(state: ClusterState) -> dict[str, tuple[int, list[str]]]:
    """By node: its generation, and its pods in order."""
    columns, pods = state.snapshot.columns, state.snapshot.pods
    return {
        name: (int(columns.generation[slot]), [pod.uid for pod in pods.pods_of(slot)])
        for name, slot in columns.index_of.items()
    }


NODES_AND_PODS = [
    identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY),
    identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY),
]


def read_contents(chunks: Sequence[handle_pb2.ReadStateResponse]) -> dict[str, tuple[int, list[str]]]:
    """Return the same of the reply."""
    return {
        node.name: (node.generation, [item.pod.ref.uid for item in node.pods])
        for chunk in chunks
        for node in chunk.nodes
    }


@pytest.mark.long
@pytest.mark.slow
async def test_reads_while_pods_are_scheduled_are_each_of_one_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_codec, "CHUNK_BYTES", 2048)  # so that a read takes many turns of the loop
    async with serving(300) as host:
        state = host.state
        by_generation = {state.version.generation: contents(state)}

        async def schedule() -> None:
            placed: deque[Pod] = deque()
            for i in itertools.count():
                placed.append(state.put(make_pod(f"p{i}", uid=f"p{i}"), f"n{299 - i % 50}"))
                if len(placed) > 100:
                    state.cache.remove_pod(placed.popleft())
                if i % 5 == 0 and i < 1000:
                    state.cache.remove_node(f"n{i // 5}")
                    state.add_nodes([make_node(f"late-{i}")])
                by_generation[state.version.generation] = contents(state)
                await asyncio.sleep(0)

        scheduling = asyncio.create_task(schedule())
        for _ in range(10):
            chunks = await read(host, needs=NODES_AND_PODS)
            (generation,) = {chunk.version.generation for chunk in chunks}
            assert len(chunks) > 10
            assert read_contents(chunks) == by_generation[generation]
            assert state.version.generation > generation, "nothing was scheduled meanwhile"
        scheduling.cancel()
        await asyncio.wait([scheduling])
        assert scheduling.cancelled()


async def test_a_version_that_was_current_when_the_read_began_is_read_to_its_end() -> None:
    async with serving(400) as host:
        before, version = contents(host.state), host.state.version
        stream = open_read(host, needs=NODES_AND_PODS, at=wire.encode_version(version))
        first = await anext(stream)
        host.state.put(make_pod("p", uid="p"), "n399")
        chunks = [first, *[chunk async for chunk in stream]]
        assert {wire.decode_version(chunk.version) for chunk in chunks} == {version}
        assert read_contents(chunks) == before != contents(host.state)


@pytest.mark.long
@pytest.mark.slow
async def test_number_of_open_reads_of_a_plugin_is_bounded() -> None:
    async with serving(2000) as host:
        # Nobody takes the rest of these: they stay open until they are ended.
        calls = [open_call(host) for _ in range(MAX_READS)]
        for call in calls:
            assert await call.read() is not grpc.aio.EOF
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(host)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == "Demo has 4 reads under way: end one first"
        assert captured() == MAX_READS
        calls.pop().cancel()
        await until(lambda: captured() == MAX_READS - 1)
        assert await read(host)
        for call in calls:
            call.cancel()
        await until(lambda: captured() == 0)


def captured() -> int:
    """Return the number of reads whose state is kept."""
    gc.collect()
    return sum(type(item) is StateReader for item in gc.get_objects())


async def test_read_of_unknown_nodes_is_refused() -> None:
    async with serving() as host:
        for nodes in (pb.NodeSet(names=["nowhere"]), pb.NodeSet(bitmap=b"\x00\x00\xff")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await read(host, nodes=nodes)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_nominated_pods_are_listed_with_their_objects_on_request() -> None:
    async with serving() as host:
        assert [chunk async for chunk in open_list(host)] == []
        host.backend.nominated = [
            NominatedPod(pod=make_pod("web", uid="u1", nominated="n2"), node_name="n1"),
            NominatedPod(pod=make_pod("db", uid="u2"), node_name="n2"),
        ]
        (plain,) = [chunk async for chunk in open_list(host, node_names=["n1", "n2"])]
        assert [(item.pod.ref.uid, item.pod.nominated_node, item.node_name) for item in plain.pods] == [
            ("u1", "n2", "n1"),
            ("u2", "", "n2"),
        ]
        assert not plain.pods[0].HasField("object")
        (full,) = [chunk async for chunk in open_list(host, all_nodes=True, with_objects=True)]
        assert b'"web"' in full.pods[0].object.raw
        assert host.backend.asked == [
            ("nominated", "Demo", []),
            ("nominated", "Demo", ["n1", "n2"]),
            ("nominated", "Demo", None),
        ]


async def test_many_nominated_pods_come_in_chunks_below_the_agreed_size() -> None:
    async with serving() as host:
        pods = [make_pod(f"p{i}", uid=f"u{i}", annotations={"a": "x" * (5000 * (i % 9))}) for i in range(400)]
        host.backend.nominated = [NominatedPod(pod=pod, node_name="n1") for pod in pods]
        chunks = [chunk async for chunk in open_list(host, all_nodes=True, with_objects=True)]
        assert [item.pod.ref.uid for chunk in chunks for item in chunk.pods] == [pod.uid for pod in pods]
        alone = max(chunk.pods[0].ByteSize() for chunk in chunks)
        assert alone > state_codec.CHUNK_BYTES > 1000
        for chunk in chunks:
            assert chunk.ByteSize() < state_codec.CHUNK_BYTES + 1000 or len(chunk.pods) == 1


async def test_lists_are_among_the_reads_that_are_bounded() -> None:
    async with serving() as host:
        pods = [make_pod(f"p{i}", uid=f"u{i}", annotations={"a": "x" * 9000}) for i in range(2000)]
        host.backend.nominated = [NominatedPod(pod=pod, node_name="n1") for pod in pods]
        calls = [open_list(host, all_nodes=True, with_objects=True) for _ in range(MAX_READS)]
        for call in calls:
            assert await call.read() is not grpc.aio.EOF
        for refused in (open_list(host, all_nodes=True), open_call(host)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await refused.read()
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()

        async def listed() -> bool:
            try:
                return bool([chunk async for chunk in open_list(host, all_nodes=True)])
            except grpc.aio.AioRpcError:
                return False

        async with asyncio.timeout(PATIENCE_S):
            while not await listed():
                await asyncio.sleep(0.01)
