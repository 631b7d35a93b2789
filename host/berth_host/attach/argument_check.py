"""Tries the arguments of a new configuration at served plugins before the configuration is used.

    dial -> Handshake -> Configure(trial)         an endpoint: the instance keeps its current arguments
    launch -> Handshake -> Configure -> stop      a command: a process only for the trial

Only arguments that differ from those in use are tried. An instance that is absent, or does not support
trials, gets its arguments when it is attached; a refusal then concerns this instance only. Called by
`Attachments`. Source: the contract's identity.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import grpc
from berth_sdk import chance
from berth_sdk.wire.requests import TRIAL

from berth_host.attach.child import Child, ChildError
from berth_host.attach.configure import accept
from berth_host.attach.configured_places import Place, WantedPlugin
from berth_host.attach.dialing import dial, peer_at, socket_path
from berth_host.attach.folder import sockets_in
from berth_host.attach.handshake import Introduction, RefusedError, read_handshake
from berth_host.attach.identity_calls import Greeting, IdentityCalls, credential_for
from berth_host.attach.interfaces import AttachSeams
from berth_host.attach.peer import DialError
from berth_host.attach.state import Refusal
from berth_host.config.source.node import Json
from berth_host.errors.plugins import PluginError
from berth_host.log import get_logger

_LOG = get_logger()


def changed_places(places: Iterable[Place], running: Iterable[Place]) -> Iterator[Place]:
    """Yield the places whose plugins' arguments differ from those of `running`, with only those plugins."""
    in_use = {(place.title, plugin.name): _args(plugin) for place in running for plugin in place.plugins}
    for place in places:
        changed = [
            plugin for plugin in place.plugins if _args(plugin) != in_use.get((place.title, plugin.name))
        ]
        if changed:
            yield replace(place, plugins=tuple(changed))


async def try_place(place: Place, seams: AttachSeams) -> Refusal | None:
    """Return why the plugins at this place refuse their arguments; None if they accept or cannot be asked."""
    if not place.is_open:
        return await _try(place, seams)
    found, _ = sockets_in(socket_path(place.endpoint))
    for path, _, _ in found:
        refusal = await _try(replace(place, endpoint=f"unix://{path}"), seams)
        if refusal is not None:
            return refusal
    return None


async def _try(place: Place, seams: AttachSeams) -> Refusal | None:
    names = ", ".join(plugin.name for plugin in place.plugins)
    child: Child | None = None
    channel: grpc.aio.Channel | None = None
    attachment_id = chance.token_hex(8)
    try:
        if place.command:
            child = await Child.launch(place.command, place.title, plugins=names)
        endpoint = place.endpoint if child is None else child.address
        await peer_at(endpoint, place)
        channel = dial(endpoint, place)
        calls = IdentityCalls(channel, place, attachment_id, names)
        introduction = await _introduced(calls, place, child, seams)
        if introduction is None:
            return None
        try:
            await calls.configure(accept(attachment_id, place, introduction, trial=child is None))
        except (RefusedError, DialError) as err:
            served = ", ".join(descriptor.name for descriptor in introduction.plugins)
            return Refusal(plugins=served, place=place.title, reason=str(err))
    except (ChildError, DialError, PluginError, RefusedError) as err:
        _tell_untried(place, names, str(err))
    finally:
        if channel is not None:
            await channel.close()
        if child is not None:
            await child.stop()
    return None


async def _introduced(
    calls: IdentityCalls, place: Place, child: Child | None, seams: AttachSeams
) -> Introduction | None:
    """Return the instance's introduction; None for an instance that cannot try arguments.

    Raises DialError, PluginError and RefusedError.
    """
    offered = frozenset({TRIAL})
    greeting = Greeting(
        host_version=seams.host_version,
        epoch=seams.state.version.epoch,
        features=offered,
        credential=credential_for(place, child),
    )
    introduction = read_handshake(await calls.shake_hands(greeting), place, offered)
    if child is None and TRIAL not in introduction.features:
        names = ", ".join(descriptor.name for descriptor in introduction.plugins)
        _tell_untried(place, names, f"its server does not know the feature {TRIAL!r}")
        return None
    return introduction


def _tell_untried(place: Place, names: str, reason: str) -> None:
    _LOG.warning("plugin.untried", plugin=names, place=place.title, reason=reason)


def _args(plugin: WantedPlugin) -> Mapping[str, Json]:
    return {profile.scheduler_name: profile.args for profile in plugin.profiles}
