"""Nominations between the contract and the SDK's records. Called by `HandleService`.

The list goes out in chunks: every pending pod may be nominated, each with its object.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.results import NominatedPod, Nomination
from berth_sdk.wire import records as wire

from berth_host.handle.backend import HandleBackend
from berth_host.rpc.pace import Pace
from berth_host.rpc.state_chunks import CHUNK_BYTES


async def nominated_chunks(
    pods: Sequence[NominatedPod], *, with_objects: bool
) -> AsyncGenerator[handle_pb2.ListNominatedPodsResponse, None]:
    """All of them, in order; a pod larger than a chunk has one to itself."""
    pace = Pace()
    response, used = handle_pb2.ListNominatedPodsResponse(), 0
    for item in pods:
        message = handle_pb2.NominatedPod(pod=wire.encode_pod(item.pod), node_name=item.node_name)
        if with_objects and item.pod.object is not None:
            message.object.CopyFrom(wire.encode_object(item.pod.object))
        size = message.ByteSize()
        if used and used + size > CHUNK_BYTES:
            yield response
            response, used = handle_pb2.ListNominatedPodsResponse(), 0
        response.pods.append(message)
        used += size
        await pace.step()
    if used:
        yield response


def nominate(backend: HandleBackend, plugin: str, item: handle_pb2.Nomination) -> Nomination:
    """Carry out one item."""
    if item.mode == handle_pb2.Nomination.MODE_OVERRIDE:
        # An empty name is no node, and here not the wish to have none.
        if not item.node_name:
            return Nomination.UNKNOWN_NODE
        return backend.nominate(plugin, item.pod_uid, item.node_name)
    if item.mode == handle_pb2.Nomination.MODE_FROM_STATUS:
        return backend.nominate(plugin, item.pod_uid, None)
    if item.mode == handle_pb2.Nomination.MODE_REMOVE:
        return backend.nominate(plugin, item.pod_uid, "")
    return Nomination.NOT_PERMITTED
