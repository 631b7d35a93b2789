"""Plays a host: raw stubs against a real `PluginServer` on a Unix socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2, state_pb2
from berth_sdk.plugin.v1.identity_pb2_grpc import IdentityServiceStub
from berth_sdk.plugin.v1.queue_pb2_grpc import QueueServiceStub
from berth_sdk.plugin.v1.scheduling_pb2_grpc import SchedulingServiceStub
from berth_sdk.plugin.v1.state_pb2_grpc import StateServiceStub
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.tables import NodeUsage
from berth_sdk.wire import records as wire
from google.protobuf.struct_pb2 import Struct
from support.waiting import PATIENCE_S

EPOCH = 7
ALL = pb.NodeSet(complement=True)
PROFILE = "default-scheduler"
TIMEOUT_S = PATIENCE_S


def node_state(
    index: int, node: Node, usage: NodeUsage | None = None, generation: int | None = None
) -> pb.NodeState:
    """Return a node as it first appears in a delta."""
    return pb.NodeState(
        index=index,
        generation=index + 1 if generation is None else generation,
        name=node.name,
        summary=wire.encode_node(node),
        usage=wire.encode_usage(usage or NodeUsage()),
    )


def full_state(states: Sequence[pb.NodeState], generation: int = 1, epoch: int = EPOCH) -> pb.StateDelta:
    """Everything there is."""
    return pb.StateDelta(
        target=pb.StateVersion(epoch=epoch, generation=generation),
        upserts=states,
        node_count=len(states),
        generation_sum=sum(state.generation for state in states),
    )


class _Named(grpc.UnaryUnaryClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Sets the attachment of every request that names none."""

    def __init__(self, host: RawHost) -> None:
        self._host = host

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, self._of_attachment(request))

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details, map(self._of_attachment, requests))

    def _of_attachment(self, request: Any) -> Any:
        named = request.ctx if "ctx" in request.DESCRIPTOR.fields_by_name else request
        if "attachment_id" in named.DESCRIPTOR.fields_by_name and not named.attachment_id:
            named.attachment_id = self._host.attachment_id
        return request


class RawHost:
    """The calls of a host, without a host. `version`: the snapshot that calls name; `attachment_id`: the
    attachment, in every request that names none.
    """

    def __init__(self, target: str) -> None:
        self.attachment_id = ""
        self.credential = ""
        self._channel = grpc.insecure_channel(target)
        self.channel = grpc.intercept_channel(self._channel, _Named(self))
        self.identity = IdentityServiceStub(self.channel)
        self.state = StateServiceStub(self.channel)
        self.queue = QueueServiceStub(self.channel)
        self.scheduling = SchedulingServiceStub(self.channel)
        self.version: pb.StateVersion | None = None
        self._attachments = 0

    def close(self) -> None:
        self._channel.close()

    # --- attaching -----------------------------------------------------------------------------

    def handshake(self, attachment_id: str = "a1") -> identity_pb2.HandshakeResponse:
        return self.identity.Handshake(
            identity_pb2.HandshakeRequest(
                host_version="1.0",
                host_epoch=EPOCH,
                attachment_id=attachment_id,
                offered=[identity_pb2.ContractVersion(major=1, minor=0)],
                credential=self.credential,
            ),
            timeout=TIMEOUT_S,
        )

    def configure(
        self,
        plugins: Iterable[identity_pb2.PluginArgs],
        attachment_id: str = "a1",
        **fields: Any,
    ) -> identity_pb2.ConfigureResponse:
        request = identity_pb2.ConfigureRequest(
            attachment_id=attachment_id,
            contract=identity_pb2.ContractVersion(major=1, minor=0),
            plugins=plugins,
            max_message_bytes=4 * 1024 * 1024,
            accepted=True,
        )
        request.MergeFrom(identity_pb2.ConfigureRequest(**fields))  # a field given here wins
        reply = self.identity.Configure(request, timeout=TIMEOUT_S)
        self.attachment_id = attachment_id
        return reply

    def attach(self, args: Mapping[str, Any] | None = None, **fields: Any) -> identity_pb2.HandshakeResponse:
        """Handshake and Configure: every plugin in one profile, at all its points."""
        self._attachments += 1
        hello = self.handshake(f"a{self._attachments}")
        plugins = [plugin_args(item.name, item.points, args=args) for item in hello.plugins]
        reply = self.configure(plugins, f"a{self._attachments}", **fields)
        assert not reply.error, reply.error
        return hello

    # --- state ---------------------------------------------------------------------------------

    def sync(self, *chunks: pb.StateDelta) -> state_pb2.SyncStateResponse:
        """SyncState in as many chunks."""
        reply = self.state.SyncState(
            iter(
                state_pb2.SyncStateRequest(chunk=chunk, sequence=i, last=i == len(chunks) - 1)
                for i, chunk in enumerate(chunks)
            ),
            timeout=TIMEOUT_S,
        )
        if not reply.need_full:
            self.version = chunks[-1].target
        return reply

    def give_nodes(self, *nodes: Node, generation: int = 1) -> None:
        """A full sync of nodes in slots 0, 1, ..."""
        reply = self.sync(full_state([node_state(i, node) for i, node in enumerate(nodes)], generation))
        assert not reply.need_full

    # --- cycles --------------------------------------------------------------------------------

    def ctx(
        self,
        plugin: str,
        pod: Pod,
        cycle_id: str = "c1",
        *,
        complete: bool = True,
        item: pb.KubeObject | None = None,
        **fields: Any,
    ) -> pb.CallContext:
        """Return the context of a call of the scheduling cycle. `item`: the pod's object."""
        context = pb.CallContext(
            cycle_id=cycle_id, plugin=plugin, profile=PROFILE, attachment_id=self.attachment_id
        )
        sent = context.pod
        sent.CopyFrom(pb.CyclePod(complete=complete, object=item))
        if complete:
            sent.summary.CopyFrom(wire.encode_pod(pod))
        else:
            sent.summary.ref.CopyFrom(wire.encode_ref(pod.ref))
        if self.version is not None:
            context.version.CopyFrom(self.version)
        context.MergeFrom(pb.CallContext(**fields))
        return context

    def filter(
        self, plugin: str, pod: Pod, cycle_id: str = "c1", **fields: Any
    ) -> scheduling_pb2.FilterResponse:
        """Filter over all nodes."""
        return self.scheduling.Filter(
            scheduling_pb2.FilterRequest(ctx=self.ctx(plugin, pod, cycle_id, **fields), candidates=ALL),
            timeout=TIMEOUT_S,
        )


def plugin_args(
    name: str, points: Iterable[int], *, profile: str = PROFILE, args: Mapping[str, Any] | None = None
) -> identity_pb2.PluginArgs:
    """One plugin in one profile."""
    message = identity_pb2.PluginArgs(name=name, profile=profile)
    message.enabled.extend(identity_pb2.ExtensionPoint.ValueType(point) for point in points)
    if args is not None:
        struct = Struct()
        struct.update(args)
        message.args.CopyFrom(struct)
    return message


class Serving:
    """A server and a raw host attached to it."""

    def __init__(self, folder: Path, *classes: type, name: str = "plugin") -> None:
        self.server = PluginServer({cls.__name__: cls for cls in classes})
        self.address = self.server.listen(f"unix:{folder / name}.sock")
        self.host = RawHost(self.address)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.host.close()
        self.server.stop(0.2)


def refused(call: Any) -> grpc.RpcError:
    """Return the error of a call that must fail."""
    try:
        call()
    except grpc.RpcError as err:
        return err
    raise AssertionError("the call was answered")
