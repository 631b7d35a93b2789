"""Maintenance: keeps pods off the nodes in its arguments, in NAMES mode, with generated stubs and no SDK.
In another language, generate the stubs from proto/berth/plugin/v1 and answer the same five calls."""
# ruff: noqa: D101, N802

import hmac
import json
import os
import sys
import uuid
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import berth_sdk.plugin.v1.common_pb2 as common
import berth_sdk.plugin.v1.identity_pb2 as identity
import berth_sdk.plugin.v1.scheduling_pb2 as scheduling
import grpc
from berth_sdk.plugin.v1 import identity_pb2_grpc, scheduling_pb2_grpc

INSTANCE, SECRET = str(uuid.uuid4()), os.environ.get("BERTH_PLUGIN_CREDENTIAL", "").encode()
ME = identity.PluginDescriptor(name="Maintenance", points=[identity.EXTENSION_POINT_FILTER])
ME.depends_on, ME.host_keeps_answers = identity.DEPENDS_ON_NODE, True
ME.sign_fields.SetInParent()  # no field of the pod counts
HELLO = identity.HandshakeResponse(instance_id=INSTANCE, plugins=[ME])
HELLO.supported.add(major=1)
HELLO.started_at.GetCurrentTime()
SHUT = common.PluginStatus(code=common.PluginStatus.CODE_UNSCHEDULABLE, reasons=["under maintenance"])
named, attached, closed = deque[str](maxlen=64), [""], dict[str, set[str]]()  # attachments; nodes by profile


def check(who: Any, known: Any, context: grpc.ServicerContext) -> None:
    names = {"berth-attachment-id": who.attachment_id, "berth-plugin": getattr(who, "plugin", "")}
    if any(names.get(key, said) != said for key, said in context.invocation_metadata()):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the metadata differs from the message")
    if who.attachment_id not in known:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "another attachment")


class Identity(identity_pb2_grpc.IdentityServiceServicer):
    def Handshake(self, request: Any, context: Any) -> identity.HandshakeResponse:
        if not hmac.compare_digest(request.credential.encode() if SECRET else b"", SECRET):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "not the secret of BERTH_PLUGIN_CREDENTIAL")
        named.append(request.attachment_id)
        check(request, named, context)
        return HELLO

    def Configure(self, request: Any, context: Any) -> identity.ConfigureResponse:
        check(request, named, context)
        if request.accepted:
            attached[0] = request.attachment_id
            closed.clear()
        for plugin in request.plugins:
            closed[plugin.profile] = {n.string_value for n in plugin.args.fields["nodes"].list_value.values}
        return identity.ConfigureResponse()

    def Probe(self, request: Any, context: Any) -> identity.ProbeResponse:
        check(request, attached, context)
        return identity.ProbeResponse(ready=True, instance_id=INSTANCE)

    def Drain(self, request: Any, context: Any) -> identity.DrainResponse:
        check(request, attached, context)
        return identity.DrainResponse()


class Scheduling(scheduling_pb2_grpc.SchedulingServiceServicer):
    def Filter(self, request: Any, context: Any) -> scheduling.FilterResponse:
        check(ctx := request.ctx, attached, context)
        if ctx.plugin != ME.name or ctx.profile not in closed:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Configure named no such plugin or profile")
        shut = [name for name in request.candidates.names if name in closed[ctx.profile]]
        group = scheduling.NodeGroup(status=SHUT, nodes=common.NodeSet(names=shut))
        verdicts = scheduling.NodeVerdicts(rejected=[group] if shut else [])
        return scheduling.FilterResponse(ctx=common.ReplyContext(cycle_id=ctx.cycle_id), verdicts=verdicts)


server = grpc.server(ThreadPoolExecutor(4))
identity_pb2_grpc.add_IdentityServiceServicer_to_server(Identity(), server)
scheduling_pb2_grpc.add_SchedulingServiceServicer_to_server(Scheduling(), server)
port = server.add_insecure_port(address := os.environ["BERTH_PLUGIN_ENDPOINT"])
if not address.startswith("unix:"):
    address = f"{address.rpartition(':')[0]}:{port}"  # port 0: the one that was free
server.start()
hello = {"address": address, "instance_id": INSTANCE, "cookie": os.environ.get("BERTH_PLUGIN_COOKIE", "")}
print(json.dumps({"protocol": "berth/1", **hello}), flush=True)
sys.stdin.read()  # the host holds the other end: this process ends with the host
