"""Counter, in Python, over the generated code alone: a small plugin that keeps every rule of the contract.

It rejects nodes without room for the pod, prefers those with most free cpu, and grants `limit` pods of each
profile at a time. A granted pod waits at Permit until the next one is granted. A pod with a gate stays out of
the queue, and of the others the one with the highest priority comes first. Each patch beside this file breaks
one rule. Cpu is read from NodeUsage, memory from the pods.
"""

from __future__ import annotations

import hmac
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import (
    handle_pb2,
    handle_pb2_grpc,
    identity_pb2_grpc,
    queue_pb2_grpc,
    scheduling_pb2_grpc,
    state_pb2_grpc,
)
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2 as queue
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2 as state

NAME = "Counter"
MODULUS = 2**53
LARGEST = 64 * 1024 * 1024
SAID_LARGEST = LARGEST
Code = pb.PluginStatus
INVALID, DENIED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED


class RefusedError(Exception):
    """The end of a call with a gRPC code."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Node:
    """What is kept of one node. `pods`: the memory of each, by uid."""

    name: str = ""
    generation: int = 0
    allocatable: dict[str, int] = field(default_factory=dict)
    zone: str = ""
    tainted: bool = False
    used_cpu: int = 0
    count: int = 0
    pods: dict[str, int] = field(default_factory=dict)


class Table:
    """The copy of the nodes."""

    def __init__(self) -> None:
        self.version: tuple[int, int] | None = None
        self.nodes: dict[int, Node] = {}

    def apply(self, chunks: Sequence[pb.StateDelta]) -> bool:
        """Bring the copy to the target of a delta, which came in chunks. False: the copy is as it was."""
        first, last = chunks[0], chunks[-1]
        target = (first.target.epoch, first.target.generation)
        is_full = not first.HasField("base")
        if not is_full and self.version == target:
            return True
        if not is_full and self.version != (first.base.epoch, first.base.generation):
            return False
        nodes = {} if is_full else dict(self.nodes)
        for chunk in chunks:
            for index in chunk.removed:
                nodes.pop(index, None)
        seen: set[int] = set()
        for chunk in chunks:
            for sent in chunk.upserts:
                if not rightly_named(nodes.get(sent.index), sent):
                    return False
                nodes[sent.index] = changed(nodes.get(sent.index), sent, is_piece=sent.index in seen)
                seen.add(sent.index)
        total = sum(node.generation for node in nodes.values()) % MODULUS
        if (len(nodes), total) != (last.node_count, last.generation_sum):
            return False
        self.nodes, self.version = nodes, target
        return True

    def chosen(self, nodes: pb.NodeSet) -> list[int]:
        """Return the indices of a set, in ascending order."""
        bits = int.from_bytes(nodes.bitmap, "little")
        return [index for index in sorted(self.nodes) if (bits >> index & 1) != nodes.complement]


def rightly_named(old: Node | None, sent: pb.NodeState) -> bool:
    """Return False for a new node without a name, and for another name of a node."""
    return bool(sent.name) if old is None else sent.name in ("", old.name)


def changed(old: Node | None, sent: pb.NodeState, *, is_piece: bool) -> Node:
    """Return a node with what a delta says of it. `is_piece`: more pods of a node that was in this delta."""
    node = Node() if old is None else replace(old, pods=dict(old.pods))
    node.generation = sent.generation
    if sent.name:
        node.name = sent.name
    if sent.HasField("summary"):
        node.allocatable = dict(sent.summary.allocatable)
        node.zone = sent.summary.labels.get("topology.kubernetes.io/zone", "")
        node.tainted = bool(sent.summary.taints)
    if sent.HasField("usage"):
        node.used_cpu = sent.usage.requested.get("cpu", 0)
        node.count = sent.usage.pod_count
    if sent.pods_complete and not is_piece:
        node.pods.clear()
    for uid in sent.removed_pod_uids:
        node.pods.pop(uid, None)
    for item in sent.pods:
        node.pods[item.pod.ref.uid] = item.pod.requests.get("memory", 0)
    return node


@dataclass
class Held:
    """A reservation or a wait. `profile`: whose limit it counts for; empty: it is only a wait."""

    uid: str
    profile: str = ""
    waits: bool = False


class Counter:
    """The plugin, for all services."""

    def __init__(self, credential: str = "") -> None:
        self.credential = credential
        self.instance_id = str(uuid.uuid4())
        self.lock = threading.RLock()
        self.named: deque[str] = deque(maxlen=64)
        self.attachment_id = ""
        self.limits: dict[str, int] = {}
        self.closed: dict[str, set[str]] = {}
        self.endpoint = identity.HandleEndpoint()
        self.channel: grpc.Channel | None = None
        self.decided: Any = None
        self.table = Table()
        self.pods: OrderedDict[str, pb.PodSummary] = OrderedDict()
        self.held: dict[str, Held] = {}
        self.answered: dict[str, Code.Code.ValueType] = {}
        self.over: set[str] = set()

    # --- identity ------------------------------------------------------------------------------------

    def Handshake(self, request: Any) -> Any:  # noqa: N802
        if self.credential and not hmac.compare_digest(request.credential, self.credential):
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "another credential")
        self.named.append(request.attachment_id)
        answer = identity.HandshakeResponse(
            supported=[identity.ContractVersion(major=1)],
            features=["configure-trial"],
            plugins=[self.descriptor()],
            instance_id=self.instance_id,
            max_message_bytes=SAID_LARGEST,
        )
        answer.started_at.FromSeconds(1_763_638_000)
        return answer

    def descriptor(self) -> identity.PluginDescriptor:
        need = identity.DeclaredNeed
        before = ("PRE_ENQUEUE", "QUEUE_SORT", "FILTER", "SCORE")
        points = (*before, "RESERVE", "PERMIT", "PRE_BIND", "POST_BIND")
        return identity.PluginDescriptor(
            name=NAME,
            points=[identity.ExtensionPoint.Value(f"EXTENSION_POINT_{point}") for point in points],
            node_mode=identity.NODE_MODE_SNAPSHOT,
            needs=[
                need(kind=need.KIND_NODE_SUMMARY, label_prefixes=["topology.kubernetes.io/"]),
                need(kind=need.KIND_POD_SUMMARY),
            ],
            pod_sensitivity=identity.POD_SENSITIVITY_NODE,
            depends_on=identity.DEPENDS_ON_ROW,
            sign_fields=identity.PodFields(
                fields=[identity.POD_FIELD_REQUESTS, identity.POD_FIELD_TOLERATIONS]
            ),
            normalization=identity.SCORE_NORMALIZATION_HOST_MAX,
            handle_client=True,
        )

    def Configure(self, request: Any) -> Any:  # noqa: N802
        if request.attachment_id not in self.named:
            raise RefusedError(DENIED, "no Handshake named this id")
        if not request.accepted:
            return identity.ConfigureResponse()
        limits: dict[str, int] = {}
        closed: dict[str, set[str]] = {}
        for plugin in request.plugins:
            limit = plugin.args.fields["limit"].number_value if "limit" in plugin.args.fields else 4
            if limit < 1 or limit != int(limit):
                return identity.ConfigureResponse(error="limit: must be a whole number above 0")
            limits[plugin.profile] = int(limit)
            names = plugin.args.fields["closed"].list_value.values if "closed" in plugin.args.fields else ()
            closed[plugin.profile] = {name.string_value for name in names}
        if request.trial:
            return identity.ConfigureResponse()
        self.limits, self.closed = limits, closed
        self.attachment_id = request.attachment_id
        self.endpoint = request.handle
        self.channel = grpc.insecure_channel(self.endpoint.target) if self.endpoint.target else None
        return identity.ConfigureResponse()

    def Probe(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return identity.ProbeResponse(ready=True, instance_id=self.instance_id)

    def Drain(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        return identity.DrainResponse()

    # --- state ---------------------------------------------------------------------------------------

    def SyncState(self, requests: Sequence[Any]) -> Any:  # noqa: N802
        chunks = []
        for request in self.pages(requests):
            chunks.append(request.chunk)
        done = self.table.apply(chunks)
        return state.SyncStateResponse(have=self.have(), need_full=not done)

    def pages(self, requests: Sequence[Any]) -> Iterator[Any]:
        """Yield the messages of a stream. Raises RefusedError for a gap, and if the last one is missing."""
        last = False
        for number, request in enumerate(requests):
            self.check(request.attachment_id)
            if request.sequence != number or last:
                raise RefusedError(INVALID, f"message {request.sequence} came in the place of {number}")
            last = request.last
            yield request
        if not last:
            raise RefusedError(INVALID, "the last message is missing")

    def have(self) -> pb.StateVersion | None:
        if self.table.version is None:
            return None
        return pb.StateVersion(epoch=self.table.version[0], generation=self.table.version[1])

    def Reconcile(self, requests: Sequence[Any]) -> Any:  # noqa: N802
        live = [item for page in list(self.pages(requests)) for item in page.live]
        unknown = []
        held: dict[str, Held] = {}
        for item in live:
            known = self.held.get(item.cycle_id)
            if known is None and not item.plugin_token and not item.waiting_on_permit:
                unknown.append(item.cycle_id)
                continue
            profile = (item.profile if item.plugin_token else "") if known is None else known.profile
            held[item.cycle_id] = Held(item.pod.uid, profile, item.waiting_on_permit)
        self.over.update(self.held.keys() - held.keys())
        self.held = held
        return state.ReconcileResponse(unknown_cycle_ids=unknown)

    # --- the queue -----------------------------------------------------------------------------------

    def PreEnqueue(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        answer = queue.PreEnqueueResponse()
        for queued in request.pods:
            gates = queued.summary.scheduling_gates
            code = Code.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE if gates else Code.CODE_SUCCESS
            answer.statuses.add(code=code, reasons=[f"waits for {gate}" for gate in gates])
        return answer

    def SortKeys(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        answer = queue.SortKeysResponse()
        for queued in request.pods:
            place = (2**31 - queued.summary.priority, queued.added_at.ToNanoseconds())
            answer.keys.append(b"".join(number.to_bytes(8) for number in place))
        return answer

    # --- cycles --------------------------------------------------------------------------------------

    def check(self, attachment_id: str) -> None:
        if not attachment_id or attachment_id != self.attachment_id:
            raise RefusedError(DENIED, "another attachment")

    def names(self, request: Any) -> None:
        """Refuse a request of the attachment about a plugin or a profile that its Configure did not name."""
        about = request.ctx if hasattr(request, "ctx") else request
        if getattr(about, "attachment_id", "") != self.attachment_id:
            return
        if getattr(about, "plugin", NAME) != NAME:
            raise RefusedError(INVALID, f"Configure named no plugin {about.plugin}")
        if hasattr(about, "profile") and about.profile not in self.limits:
            raise RefusedError(INVALID, f"Configure named no profile {about.profile}")

    def begin(self, ctx: pb.CallContext, reply: Any) -> pb.PodSummary | None:
        """Begin a call of a cycle; return its pod. None: the reply says what is missing."""
        self.check(ctx.attachment_id)
        reply.ctx.cycle_id = ctx.cycle_id
        self.end(ctx.ended)
        if ctx.HasField("delta"):
            self.table.apply([ctx.delta])
        if ctx.HasField("version") and self.table.version != (ctx.version.epoch, ctx.version.generation):
            reply.ctx.missing.append(pb.MISSING_STATE)
            if (have := self.have()) is not None:
                reply.ctx.have.CopyFrom(have)
        if ctx.pod.complete:
            self.pods[ctx.cycle_id] = ctx.pod.summary
            if len(self.pods) > 1000:
                self.pods.popitem(last=False)
        pod = self.pods.get(ctx.cycle_id)
        if pod is None and ctx.HasField("version"):
            reply.ctx.missing.append(pb.MISSING_POD)
        return None if reply.ctx.missing else pod or ctx.pod.summary

    def end(self, ended: Sequence[pb.CycleEnd]) -> None:
        """Drop what is kept for cycles that are over. Those that are not bound end by Unreserve."""
        for one in ended:
            self.pods.pop(one.cycle_id, None)
            if one.outcome == pb.CycleEnd.OUTCOME_BOUND:
                self.held.pop(one.cycle_id, None)

    def verdict(self, node: Node, pod: pb.PodSummary, profile: str) -> str:
        """Return why a node cannot take a pod; empty: it can."""
        if node.name in self.closed.get(profile, ()):
            return f"{node.name} is closed"
        if node.tainted and not pod.tolerations:
            return f"{node.name} is tainted"
        if node.count >= node.allocatable.get("pods", 0):
            return f"{node.name} has too many pods"
        if node.used_cpu + pod.requests.get("cpu", 0) > node.allocatable.get("cpu", 0):
            return f"{node.name} lacks cpu"
        if sum(node.pods.values()) + pod.requests.get("memory", 0) > node.allocatable.get("memory", 0):
            return f"{node.name} lacks memory"
        return ""

    def Filter(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.FilterResponse()
        pod = self.begin(request.ctx, reply)
        if pod is None:
            return reply
        for index in self.table.chosen(request.candidates):
            if why := self.verdict(self.table.nodes[index], pod, request.ctx.profile):
                group = reply.verdicts.rejected.add()
                group.status.CopyFrom(Code(code=Code.CODE_UNSCHEDULABLE, reasons=[why]))
                group.nodes.bitmap = (1 << index).to_bytes(index // 8 + 1, "little")
        return reply

    def SimulateFilter(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.SimulateFilterResponse()
        pod = self.begin(request.ctx, reply)
        if pod is None:
            return reply
        for scenario in request.scenarios:
            there = self.table.nodes[scenario.node.node_index]
            node = replace(there, pods=dict(there.pods))
            node.used_cpu = scenario.node.usage.requested.get("cpu", 0)
            node.count = scenario.node.usage.pod_count
            for gone in scenario.node.removed:
                node.pods.pop(gone.uid, None)
            for item in scenario.node.added:
                node.pods[item.pod.ref.uid] = item.pod.requests.get("memory", 0)
            why = self.verdict(node, pod, request.ctx.profile)
            code = Code.CODE_UNSCHEDULABLE if why else Code.CODE_SUCCESS
            reply.statuses.add(code=code, reasons=[why] if why else [])
        return reply

    def Score(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.ScoreResponse()
        pod = self.begin(request.ctx, reply)
        if pod is None:
            return reply
        for index in self.table.chosen(request.candidates):
            node = self.table.nodes[index]
            free = node.allocatable.get("cpu", 0) - node.used_cpu - pod.requests.get("cpu", 0)
            reply.scores.dense.append(max(0, free) + (1000 if node.zone == "zone-1" else 0))
        return reply

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.ReserveResponse()
        if self.begin(request.ctx, reply) is None:
            return reply
        cycle_id, profile = request.ctx.cycle_id, request.ctx.profile
        if cycle_id in self.over:
            reply.ctx.status.code = Code.CODE_ERROR
            return reply
        if cycle_id not in self.answered:
            taken = sum(held.profile == profile for held in self.held.values())
            is_free = taken < self.limits.get(profile, 0)
            self.answered[cycle_id] = Code.CODE_SUCCESS if is_free else Code.CODE_UNSCHEDULABLE
            if is_free:
                self.held[cycle_id] = Held(request.ctx.pod.summary.ref.uid, profile)
                self.allow_others(cycle_id)
        reply.ctx.status.code = self.answered[cycle_id]
        if self.answered[cycle_id] == Code.CODE_SUCCESS:
            reply.ctx.plugin_token = b"granted"
        return reply

    def Permit(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.PermitResponse()
        if self.begin(request.ctx, reply) is None:
            return reply
        held = self.held.setdefault(request.ctx.cycle_id, Held(request.ctx.pod.summary.ref.uid))
        held.waits = True
        reply.ctx.status.code = Code.CODE_WAIT
        reply.wait_timeout.FromSeconds(60)
        return reply

    def PreBindPreFlight(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.PreBindPreFlightResponse()
        self.begin(request.ctx, reply)
        return reply

    def PreBind(self, request: Any) -> Any:  # noqa: N802
        reply = scheduling.PreBindResponse()
        self.begin(request.ctx, reply)
        reply.ctx.status.code = Code.CODE_SUCCESS
        if any(one.outcome != scheduling.PatchResult.OUTCOME_APPLIED for one in request.patched):
            reply.ctx.status.code = Code.CODE_ERROR
        elif not request.patched and not request.pod_deleted:
            body = b'{"metadata":{"annotations":{"counter.example.com/granted":"true"}}}'
            reply.patches.add(resource="pods", ref=request.ctx.pod.summary.ref, merge_patch_json=body)
            reply.done_when_applied = True
        return reply

    def allow_others(self, cycle_id: str) -> None:
        """Allow the pods that wait, but for that of a cycle. Reserve does not wait for the host."""
        waiting = [(id_, held) for id_, held in self.held.items() if held.waits and id_ != cycle_id]
        if not waiting or self.channel is None:
            return
        asked = handle_pb2.DecideWaitingPodsRequest(plugin=NAME)
        for id_, held in waiting:
            asked.decisions.add(pod_uid=held.uid, cycle_id=id_, verdict=handle_pb2.WaitDecision.VERDICT_ALLOW)
            held.waits = False
        who = (("authorization", f"Bearer {self.endpoint.token}"), ("berth-plugin", NAME))
        host = handle_pb2_grpc.HandleServiceStub(self.channel)
        self.decided = host.DecideWaitingPods.future(asked, metadata=who, timeout=5.0)

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        for item in request.items:
            self.held.pop(item.cycle_id, None)
            self.over.add(item.cycle_id)
        return scheduling.UnreserveResponse(done_cycle_ids=[item.cycle_id for item in request.items])

    def PostBind(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        for item in request.items:
            self.held.pop(item.cycle_id, None)
        return scheduling.PostBindResponse()

    def EndCycles(self, request: Any) -> Any:  # noqa: N802
        self.check(request.attachment_id)
        self.end(request.ended)
        return scheduling.EndCyclesResponse()


class Servicer:
    """Hands the calls of all services to the plugin, one at a time."""

    def __init__(self, plugin: Counter) -> None:
        self.plugin = plugin

    def __getattr__(self, rpc: str) -> Any:
        method = getattr(self.plugin, rpc, None)

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            if method is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, rpc)
            is_stream = not hasattr(request, "DESCRIPTOR")
            try:
                for one in (messages := list(request) if is_stream else [request]):
                    agree(one, context)
                    self.plugin.names(one)
                with self.plugin.lock:
                    return method(messages if is_stream else request)
            except RefusedError as err:
                context.abort(err.code, str(err))

        return call


def agree(request: Any, context: grpc.ServicerContext) -> None:
    """Refuse a request whose metadata names another attachment or plugin."""
    about = request.ctx if hasattr(request, "ctx") else request
    named = {
        "berth-attachment-id": getattr(about, "attachment_id", ""),
        "berth-plugin": getattr(about, "plugin", ""),
    }
    for key, value in context.invocation_metadata():
        if named.get(key, value) != value:
            raise RefusedError(INVALID, f"the metadata {key} differs from the message")


def serve(address: str, credential: str = "") -> grpc.Server:
    """Serve the plugin at an address. Stop the server that is returned."""
    server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", LARGEST)])
    servicer: Any = Servicer(Counter(credential))
    identity_pb2_grpc.add_IdentityServiceServicer_to_server(servicer, server)
    state_pb2_grpc.add_StateServiceServicer_to_server(servicer, server)
    queue_pb2_grpc.add_QueueServiceServicer_to_server(servicer, server)
    scheduling_pb2_grpc.add_SchedulingServiceServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    server.start()
    return server
