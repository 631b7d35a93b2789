"""The host's verdict on an introduction: the `ConfigureRequest`, and what the plugin says to it.

Called by `Attachment`. All values are effective ones: clamped and defaulted. Source: the contract's
identity.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from berth_host.attach.handshake import Introduction
from berth_host.attach.wanted import Place, WantedPlugin, WantedProfile
from berth_host.rpc.call_rules import call_rules, deadlines_by_point
from berth_host.rpc.remote.grpc_transport import DEFAULT_CONCURRENCY
from berth_host.rpc.remote.link import MAX_MESSAGE_BYTES

# NormalizeScore belongs to Score and has no list of its own in a profile.
_OF_PROFILE: Final[Mapping[str, str]] = {"normalizeScore": "score"}


class HandleGrants(Protocol):
    """Hands out the way back. Implemented by `handle`, wired by `app`."""

    def grant(self, attachment_id: str, plugins: frozenset[str], *, loopback_tcp: bool) -> tuple[str, str]:
        """(target, token): where the host serves the handle, and the secret for this attachment."""
        ...

    def revoke(self, attachment_id: str) -> None:
        """The token of this attachment is worth nothing any more."""
        ...


def accept(
    attachment_id: str,
    place: Place,
    introduction: Introduction,
    grant: Callable[[frozenset[str]], tuple[str, str] | None],
) -> identity_pb2.ConfigureRequest:
    """The request that accepts. `grant` gives the way back to those plugins that want it."""
    request = identity_pb2.ConfigureRequest(
        attachment_id=attachment_id,
        contract=identity_pb2.ContractVersion(major=introduction.contract[0], minor=introduction.contract[1]),
        features=introduction.features,
        max_message_bytes=MAX_MESSAGE_BYTES,
        accepted=True,
    )
    for descriptor in introduction.plugins:
        wanted = place.plugin(descriptor.name)
        if wanted is None:
            continue
        request.plugins.extend(_plugin_args(descriptor, wanted, profile) for profile in wanted.profiles)
    clients = frozenset(item.name for item in introduction.plugins if item.handle_client)
    granted = grant(clients) if clients and has_way_back(place) else None
    if granted is not None:
        request.handle.target, request.handle.token = granted
    return request


def has_way_back(place: Place) -> bool:
    """Whether the host serves the handle to plugins there. It does so on this machine and in plaintext: a
    plugin that is behind TLS may be elsewhere, and its token must not travel so.
    """
    return place.tls is None


def lacks_way_back(place: Place, introduction: Introduction) -> list[str]:
    """A warning for each plugin that wants the handle and does not get it."""
    if has_way_back(place):
        return []
    return [
        f"plugin {item.name} gets no way back to its host, which there is not over TLS: what it asks through"
        " its handle fails; a plugin that needs it runs on the host's machine"
        for item in introduction.plugins
        if item.handle_client
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
