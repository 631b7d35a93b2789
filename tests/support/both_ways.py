"""A plugin class in process, and through the whole contract without a socket: a client for each way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from berth_host.attach.configure import accept
from berth_host.attach.configured_places import Place
from berth_host.attach.handshake import read_handshake, with_arguments
from berth_host.attach.routes import AttachedPlugin, Offer
from berth_host.attach.state_feed import InstanceFeed
from berth_host.config.berth.points import FailurePolicy
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.client import PluginClient
from berth_host.rpc.failure_record import FailureRecord
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.route import ClientSettings, LocalRoute
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.outbox import Outbox
from berth_host.rpc.served.sender import LinkSender
from berth_sdk.handle import Handle
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.serve.instance import Instance
from support.attached import PROFILE, ClusterState, Witness, wanted
from support.loopback import loopback_link
from support.patience import patient


@dataclass(frozen=True, slots=True)
class BothWays:
    """`local`, `served`: the clients. `instance`: the server. `calls`: those that reached it, in order."""

    local: PluginClient
    served: PluginClient
    instance: Instance
    attached: AttachedPlugin
    calls: list[str]

    @property
    def clients(self) -> tuple[PluginClient, PluginClient]:
        """In process, then served."""
        return self.local, self.served


@asynccontextmanager
async def both_ways(
    cls: type, state: ClusterState, policies: Mapping[str, FailurePolicy] | None = None
) -> AsyncIterator[BothWays]:
    """Serve the class. `policies`: by point; None: the defaults."""
    name = cls.__name__
    points = {point: PointPolicy(None, policy) for point, policy in (policies or {}).items()}
    settings = ClientSettings(points=patient(points))
    plugin = make_plugin(cls, {}, cast(Handle, None), name)
    route = LocalRoute(InProcessTransport(PluginRuntime(plugin, name=name)))
    local = PluginClient(name, PROFILE, route, state, settings=settings)
    instance = Instance({name: cls})
    place = Place(endpoint="loopback:", plugins=(wanted(name),))
    attached = AttachedPlugin(place.plugins[0], Outbox(name), Witness())
    introduction = read_handshake(
        instance.handshake(identity_pb2.HandshakeRequest(attachment_id="loopback")), place
    )
    reply = instance.configure(accept("loopback", place, introduction))
    introduction = with_arguments(introduction, reply)
    (descriptor,) = introduction.plugins
    calls: list[str] = []
    link = loopback_link(instance, InstanceFeed(state, descriptor.needs), calls)
    attached.offer(
        Offer(
            instance_id=introduction.instance_id,
            started_at_s=introduction.started_at_s,
            order=0,
            descriptor=descriptor,
            transports={PROFILE: GrpcTransport(link, descriptor, PROFILE, attached.outbox)},
            sender=LinkSender(link, name),
            conduct=FailureRecord(name, lambda: None),
            taken_up=lambda: None,
            judged=lambda: None,
        )
    )
    served = PluginClient(name, PROFILE, attached.routes[PROFILE], state, settings=settings)
    try:
        yield BothWays(local, served, instance, attached, calls)
    finally:
        await attached.outbox.close()
        instance.stop()
