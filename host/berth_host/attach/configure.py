"""The host's verdict on an introduction: the `ConfigureRequest`, and what the plugin says to it.

Called by `Attachment`. All values are effective ones: clamped and defaulted. Source: the contract's
identity.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire.addresses import host_of
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from berth_host.attach.handshake import Introduction, why_no_way_back
from berth_host.attach.wanted import Place, WantedPlugin, WantedProfile
from berth_host.rpc.call_rules import call_rules, deadlines_by_point
from berth_host.rpc.served.grpc_transport import DEFAULT_CONCURRENCY
from berth_host.rpc.served.link import MAX_MESSAGE_BYTES

# NormalizeScore belongs to Score and has no list of its own in a profile.
_OF_PROFILE: Final[Mapping[str, str]] = {"normalizeScore": "score"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """Where an attachment reaches HandleService, with its secret. `server_name`: the name in the host's
    certificate there; empty: plaintext, on this machine.
    """

    target: str
    token: str = field(repr=False)
    server_name: str = ""


class HandleGrants(Protocol):
    """Hands out the way back. Implemented by `handle`, wired by `app`."""

    @property
    def over_tls(self) -> bool:
        """Whether there is one for plugins behind TLS."""
        ...

    async def grant(
        self, attachment_id: str, plugins: frozenset[str], *, loopback_tcp: bool = False, tls_name: str = ""
    ) -> WayBack:
        """The way back of one attachment. `loopback_tcp`: its plugins are reached so, and cannot open
        sockets. `tls_name`: they are behind TLS, and their certificate has this name. Raises DialError where
        the host cannot serve that now.
        """
        ...

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        """The token of this attachment is worth nothing any more, or nothing for one of its plugins."""
        ...


def accept(
    attachment_id: str,
    place: Place,
    introduction: Introduction,
    way_back: WayBack | None = None,
    *,
    trial: bool = False,
) -> identity_pb2.ConfigureRequest:
    """The request that accepts. `way_back`: for those plugins that want it; `trial`: the instance only says
    whether it accepts its arguments.
    """
    request = identity_pb2.ConfigureRequest(
        attachment_id=attachment_id,
        contract=identity_pb2.ContractVersion(major=introduction.contract[0], minor=introduction.contract[1]),
        features=introduction.features,
        max_message_bytes=MAX_MESSAGE_BYTES,
        accepted=True,
        trial=trial,
    )
    for descriptor in introduction.plugins:
        wanted = place.plugin(descriptor.name)
        if wanted is None:
            continue
        request.plugins.extend(_plugin_args(descriptor, wanted, profile) for profile in wanted.profiles)
    if way_back is not None:
        request.handle.target, request.handle.token = way_back.target, way_back.token
        request.handle.server_name = way_back.server_name
    return request


async def way_back_of(
    grants: HandleGrants | None, attachment_id: str, place: Place, introduction: Introduction, endpoint: str
) -> WayBack | None:
    """None where no plugin wants one, or gets one. Raises DialError where the host cannot serve it now."""
    clients = frozenset(item.name for item in introduction.plugins if item.handle_client)
    if (
        grants is None
        or not clients
        or why_no_way_back(place, introduction.features, over_tls=grants.over_tls)
    ):
        return None
    if place.tls is not None:
        return await grants.grant(attachment_id, clients, tls_name=place.tls.server_name or host_of(endpoint))
    return await grants.grant(attachment_id, clients, loopback_tcp=not endpoint.startswith("unix:"))


def lacks_way_back(place: Place, introduction: Introduction, *, over_tls: bool) -> list[str]:
    """A warning for each plugin that wants the handle and does not get it."""
    why = why_no_way_back(place, introduction.features, over_tls=over_tls)
    return [
        f"plugin {item.name} gets no way back to its host, and what it asks through its handle fails: {why}"
        for item in introduction.plugins
        if item.handle_client and why
    ]


def refuse(attachment_id: str, reason: str) -> identity_pb2.ConfigureRequest:
    """The request that tells the plugin why nothing will happen."""
    return identity_pb2.ConfigureRequest(attachment_id=attachment_id, accepted=False, reason=reason)


def effective_concurrency(descriptor: Descriptor, wanted: WantedPlugin) -> int:
    """Binding-cycle calls that may be open at once: the smaller of both sides' limits."""
    wishes = [count for count in (descriptor.max_concurrency, wanted.max_concurrency) if count]
    return min(wishes, default=DEFAULT_CONCURRENCY)


def _plugin_args(
    descriptor: Descriptor, wanted: WantedPlugin, profile: WantedProfile
) -> identity_pb2.PluginArgs:
    message = identity_pb2.PluginArgs(
        name=descriptor.name,
        profile=profile.scheduler_name,
        enabled=[
            identity_pb2.ExtensionPoint.ValueType(point.value)
            for point in descriptor.points
            if _OF_PROFILE.get(point.config_name, point.config_name) in profile.points
        ],
        required=wanted.required,
        max_concurrency=effective_concurrency(descriptor, wanted),
    )
    if isinstance(profile.args, Mapping):
        args = Struct()
        args.update(dict(profile.args))
        message.args.CopyFrom(args)
    rules = call_rules(wanted.points, descriptor.deadlines, required=wanted.required)
    deadlines_s = deadlines_by_point(rules)
    for point in descriptor.points:
        if point.value in message.enabled:
            nanos = round(deadlines_s[point.config_name] * 1e9)
            duration = Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
            message.deadlines[point.config_name].CopyFrom(duration)
    return message
