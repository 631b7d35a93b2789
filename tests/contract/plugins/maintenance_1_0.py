"""A plugin that was written for the release 1.0. It runs with the stubs of that release and never changes."""
# ruff: noqa: N802

import json
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import berth_sdk.plugin.v1.common_pb2 as common
import berth_sdk.plugin.v1.identity_pb2 as identity
import berth_sdk.plugin.v1.scheduling_pb2 as scheduling
import grpc
from berth_sdk.plugin.v1 import identity_pb2_grpc, scheduling_pb2_grpc

INSTANCE, MAJOR_1 = str(uuid.uuid4()), identity.ContractVersion(major=1)
closed: set[str] = set()


class Identity(identity_pb2_grpc.IdentityServiceServicer):
    def Handshake(self, request: Any, context: Any) -> identity.HandshakeResponse:
        me = identity.PluginDescriptor(name="Maintenance", points=[identity.EXTENSION_POINT_FILTER])
        me.depends_on, me.host_keeps_answers = identity.DEPENDS_ON_NODE, True
        me.sign_fields.SetInParent()  # no field of the pod counts
        answer = identity.HandshakeResponse(plugins=[me], instance_id=INSTANCE, supported=[MAJOR_1])
        answer.started_at.GetCurrentTime()
        return answer

    def Configure(self, request: Any, context: Any) -> identity.ConfigureResponse:
        for plugin in request.plugins:
            closed.update(name.string_value for name in plugin.args.fields["nodes"].list_value.values)
        return identity.ConfigureResponse()

    def Probe(self, request: Any, context: Any) -> identity.ProbeResponse:
        return identity.ProbeResponse(ready=True, instance_id=INSTANCE)

    def Drain(self, request: Any, context: Any) -> identity.DrainResponse:
        return identity.DrainResponse()


class Scheduling(scheduling_pb2_grpc.SchedulingServiceServicer):
    def Filter(self, request: Any, context: Any) -> scheduling.FilterResponse:
        answer, shut = scheduling.FilterResponse(), [n for n in request.candidates.names if n in closed]
        answer.ctx.cycle_id = request.ctx.cycle_id
        if shut:
            verdict = common.PluginStatus(
                code=common.PluginStatus.CODE_UNSCHEDULABLE, reasons=["under maintenance"]
            )
            answer.verdicts.rejected.add(status=verdict, nodes=common.NodeSet(names=shut))
        return answer


server = grpc.server(ThreadPoolExecutor(4))
identity_pb2_grpc.add_IdentityServiceServicer_to_server(Identity(), server)
scheduling_pb2_grpc.add_SchedulingServiceServicer_to_server(Scheduling(), server)
hello = {"protocol": "berth/1", "address": os.environ["BERTH_PLUGIN_ENDPOINT"], "instance_id": INSTANCE}
server.add_insecure_port(hello["address"])
server.start()
print(json.dumps({**hello, "cookie": os.environ.get("BERTH_PLUGIN_COOKIE", "")}), flush=True)
sys.stdin.read()  # the host holds the other end: this process ends with the host
