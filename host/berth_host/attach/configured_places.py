"""Derives from the configuration the places to attach, the plugins expected there, and their rules.

Several plugins may name one endpoint: then one process serves them over one attachment. Every command is a
separate process. Called by `host_attachments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from berth_sdk.wire.message_limit import DEFAULT_BYTES

from berth_host.config.berth.configuration import BerthPlugin, TlsFiles, Transport
from berth_host.config.berth.managed_resources import why_without_filter
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.source.node import Json
from berth_host.log.secrets import masked_arguments
from berth_host.rpc.call_rules import PointPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedProfile:
    """A plugin in one profile.

    `points`: the extension points at which the profile enables the plugin, spelled as there (`preBind`).
    `named`: those of them whose own list has the plugin, not only multiPoint.
    """

    scheduler_name: str
    points: frozenset[str]
    named: frozenset[str] = frozenset()
    args: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlugin:
    """A served plugin. `points`: the operator's deadlines and policies. `why_it_must_filter`: the error if
    the plugin has no Filter, as the end of a sentence; empty: it need not have one.
    """

    name: str
    required: bool = True
    points: Mapping[str, PointPolicy] = field(default_factory=dict)
    max_concurrency: int = 0
    why_it_must_filter: str = ""
    profiles: tuple[WantedProfile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of an instance: a fixed `endpoint`, or a `command` that starts one.

    `credential_file`: the file with the secret for the endpoint, empty for none. `allowed_uids`: users,
    besides root and the host's own, that may own a Unix socket and the process behind it. `is_open`: the
    endpoint is in a folder of sockets and may serve any of `plugins`. `max_message_bytes`: the limit that
    the operator set.
    """

    endpoint: str = ""
    command: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    credential_file: str = ""
    allowed_uids: tuple[int, ...] = ()
    transport: Transport = Transport.FRAMED
    max_message_bytes: int = DEFAULT_BYTES
    is_open: bool = False
    plugins: tuple[WantedPlugin, ...]

    @property
    def title(self) -> str:
        """The place's name in messages."""
        return self.endpoint or " ".join(masked_arguments(self.command))

    def plugin(self, name: str) -> WantedPlugin | None:
        """Return the plugin called `name` if it is expected here, else None."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)


def wanted_places(configuration: LoadedConfiguration) -> list[Place]:
    """Return every place with a plugin that a profile enables, in the order of the file.

    The folder of sockets is one of the places, with the plugins that have no place of their own.
    """
    folder = f"unix://{configuration.berth.socket_folder}"
    by_endpoint: dict[str, list[WantedPlugin]] = {}
    places: list[tuple[BerthPlugin, list[WantedPlugin]]] = []
    for plugin in configuration.berth.plugins:
        if plugin.in_process is not None:
            continue
        wanted = wanted_plugin(plugin, configuration)
        if not wanted.profiles:
            continue
        endpoint = folder if plugin.in_folder else plugin.endpoint
        if endpoint is not None and endpoint in by_endpoint:
            by_endpoint[endpoint].append(wanted)
            continue
        members = [wanted]
        if endpoint is not None:
            by_endpoint[endpoint] = members
        places.append((plugin, members))
    return [
        Place(
            endpoint=folder if plugin.in_folder else plugin.endpoint or "",
            command=plugin.command or (),
            tls=plugin.tls,
            credential_file=plugin.credential_file,
            allowed_uids=plugin.allowed_uids,
            transport=plugin.transport,
            max_message_bytes=configuration.berth.message_limit(plugin),
            is_open=plugin.in_folder,
            plugins=tuple(members),
        )
        for plugin, members in places
    ]


def wanted_plugin(plugin: BerthPlugin, configuration: LoadedConfiguration) -> WantedPlugin:
    """Return one plugin with its settings in each profile."""
    profiles = tuple(
        WantedProfile(
            scheduler_name=profile.scheduler_name,
            points=frozenset(
                point
                for point, enabled in profile.plugins.items()
                if any(entry.name == plugin.name for entry in enabled)
            ),
            named=_named(plugin.name, profile),
            args=profile.plugin_args.get(plugin.name),
        )
        for profile in configuration.profiles
        if plugin.name in profile.plugin_names
    )
    return WantedPlugin(
        name=plugin.name,
        required=plugin.required,
        points=plugin.points,
        max_concurrency=plugin.max_concurrency,
        why_it_must_filter=why_without_filter(plugin) if plugin.managed_resources else "",
        profiles=profiles,
    )


def _named(plugin: str, profile: ResolvedProfile) -> frozenset[str]:
    """Return the extension points whose own list in the profile has the plugin."""
    listed = ((point, plugin_set) for point, plugin_set in profile.merged_plugins.items())
    return frozenset(
        point
        for point, plugin_set in listed
        if point in profile.plugins
        and isinstance(plugin_set, Mapping)
        and any(entry.get("name") == plugin for entry in _entries(plugin_set.get("enabled")))
    )


def _entries(value: Json) -> list[Mapping[str, Json]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []
