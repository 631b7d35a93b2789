"""Builds the `ConfigureRequest` that accepts or refuses an instance, and the grants of its way back.

Called by `Attachment`. All values in the request are effective ones: clamped, with defaults. Source: the
contract's identity.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire.addresses import host_of
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.struct_pb2 import Struct

from berth_host.attach.configured_places import Place, WantedPlugin, WantedProfile
from berth_host.attach.handshake import ArgumentsRefusedError, Introduction, why_no_way_back
from berth_host.attach.interfaces import HandleGrants, WayBack
from berth_host.rpc.call_rules import call_rules, deadlines_by_point
from berth_host.rpc.served.grpc_transport import DEFAULT_CONCURRENCY

# NormalizeScore belongs to Score and has no list of its own in a profile.
_OF_PROFILE: Final[Mapping[str, str]] = {
    "normalizeScore": "score",
    "normalizePlacementScore": "placementScore",
}


def accept(
    attachment_id: str,
    place: Place,
    introduction: Introduction,
    way_back: WayBack | None = None,
    *,
    trial: bool = False,
) -> identity_pb2.ConfigureRequest:
    """Return the request that accepts an instance.

    `way_back`: for the plugins that use the handle. `trial`: the instance only checks its arguments. Raises
    ArgumentsRefusedError for arguments that are nested more deeply than a message can be.
    """
    request = identity_pb2.ConfigureRequest(
        attachment_id=attachment_id,
        contract=identity_pb2.ContractVersion(major=introduction.contract[0], minor=introduction.contract[1]),
        features=introduction.features,
        max_message_bytes=introduction.max_message_bytes,
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
    """Grant the way back for the plugins that use the handle; None if none does, or may.

    Raises DialError if the host cannot serve the way back now.
    """
    clients = frozenset(item.name for item in introduction.plugins if item.handle_client)
    if (
        grants is None
        or not clients
        or why_no_way_back(place, introduction.features, over_tls=grants.over_tls)
    ):
        return None
    return await grants.grant(
        attachment_id,
        clients,
        loopback_tcp=place.tls is None and not endpoint.startswith("unix:"),
        tls_name="" if place.tls is None else place.tls.server_name or host_of(endpoint),
        max_message_bytes=introduction.max_message_bytes,
    )


def lacks_way_back(place: Place, introduction: Introduction, *, over_tls: bool) -> list[str]:
    """Return a warning for each plugin that uses the handle and does not get the way back."""
    why = why_no_way_back(place, introduction.features, over_tls=over_tls)
    return [
        f"plugin {item.name} gets no way back to its host, so calls through its handle fail: {why}"
        for item in introduction.plugins
        if item.handle_client and why
    ]


def refuse(attachment_id: str, reason: str) -> identity_pb2.ConfigureRequest:
    """Return the request that refuses an instance, with the reason."""
    return identity_pb2.ConfigureRequest(attachment_id=attachment_id, accepted=False, reason=reason)


def effective_concurrency(descriptor: Descriptor, wanted: WantedPlugin) -> int:
    """Return how many binding-cycle calls may run at once: the smaller of both sides' limits."""
    wishes = [count for count in (descriptor.max_concurrency, wanted.max_concurrency) if count]
    return min(wishes, default=DEFAULT_CONCURRENCY)


def _check_depth(args: Struct) -> None:
    """Raise ArgumentsRefusedError if the plugin could not read the arguments in a ConfigureRequest."""
    request = identity_pb2.ConfigureRequest(plugins=[identity_pb2.PluginArgs()])
    try:
        request.plugins[0].args.CopyFrom(args)
        identity_pb2.ConfigureRequest.FromString(request.SerializeToString())
    except (DecodeError, EncodeError) as err:
        raise ArgumentsRefusedError(
            "they are nested too deeply: a message of protobuf holds about 30 levels"
        ) from err


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
        _check_depth(args)
        message.args.CopyFrom(args)
    rules = call_rules(wanted.points, descriptor.deadlines, required=wanted.required)
    deadlines_s = deadlines_by_point(rules)
    for point in descriptor.points:
        if point.value in message.enabled:
            nanos = round(deadlines_s[point.config_name] * 1e9)
            duration = Duration(seconds=nanos // 10**9, nanos=nanos % 10**9)
            message.deadlines.add(point=identity_pb2.ExtensionPoint.ValueType(point.value), deadline=duration)
    return message
