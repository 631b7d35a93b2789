"""`RemotePlugin`: one plugin elsewhere, whichever instance serves it; `PluginRoute`: the same in one profile.

Attachments put transports in and take them out; clients look at them for every call. The outbox and the
last known descriptor outlive attachments.
"""

from __future__ import annotations

from berth_sdk.extension_points import ExtensionPoint, NodeMode, PodSensitivity
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attach.wanted import WantedPlugin, WantedProfile
from berth_host.rpc.remote.grpc_transport import GrpcTransport
from berth_host.rpc.remote.outbox import Outbox
from berth_host.rpc.remote.sender import LinkSender


class RemotePlugin:
    """absent -use-> attached -lose-> absent. `absence`: why it is absent, as the end of a sentence."""

    def __init__(self, wanted: WantedPlugin, outbox: Outbox) -> None:
        self.wanted = wanted
        self.outbox = outbox
        self.absence = "is not attached yet"
        self.stands_by = False
        """Whether an instance is there, which this host will attach to when it leads."""
        self.seen = False
        self._sender: LinkSender | None = None
        self.descriptor = _expected(wanted)
        self.routes = {profile.scheduler_name: PluginRoute(self, profile) for profile in wanted.profiles}

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.wanted.name

    @property
    def is_attached(self) -> bool:
        """Whether an instance can be asked."""
        return any(route.transport is not None for route in self.routes.values())

    def use(self, descriptor: Descriptor, transports: dict[str, GrpcTransport]) -> None:
        """An instance serves it now, one transport per profile."""
        self.descriptor = descriptor
        self.seen = True
        self.absence = ""
        for profile, transport in transports.items():
            self.routes[profile].transport = transport

    def attach_outbox(self, sender: LinkSender) -> None:
        """The outbox sends to this instance from now on."""
        self._sender = sender
        self.outbox.attach(sender)

    def lose(self, reason: str) -> None:
        """No instance serves it any more."""
        self.absence = reason
        if self._sender is not None:
            self.outbox.detach(self._sender)
            self._sender = None
        for route in self.routes.values():
            route.transport = None


class PluginRoute:
    """`rpc.client.Route` of one plugin in one profile."""

    def __init__(self, plugin: RemotePlugin, profile: WantedProfile) -> None:
        self.plugin = plugin
        self.profile = profile
        self.transport: GrpcTransport | None = None

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the latest instance; before the first, as the configuration tells it."""
        return self.plugin.descriptor

    @property
    def absence(self) -> str:
        """Why there is no transport."""
        return self.plugin.absence


def _expected(wanted: WantedPlugin) -> Descriptor:
    """The descriptor of a plugin without an instance so far."""
    named = {point for profile in wanted.profiles for point in profile.points}
    return Descriptor(
        name=wanted.name,
        points=tuple(point for point in ExtensionPoint if point.config_name in named),
        node_mode=NodeMode.NAMES,
        pod_sensitivity=PodSensitivity.CLUSTER,
    )
