"""The plugin names of the profiles -> one `PluginClient` per plugin and profile.

A name resolves to BerthConfiguration first, then to the registry of classes. Default plugins that this build
does not have are left out of the profiles; `Clients.missing` names each once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from berth_sdk.errors import PluginArgsError, PluginDefinitionError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation
from berth_sdk.runtime.closing import close_unused
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.runtime.raised import place_of_class, raised_text
from berth_sdk.selectors import LabelSelector

from berth_host.attach.interfaces import LiveCycles
from berth_host.cache.objects import ObjectStores
from berth_host.config.berth.configuration import BerthConfiguration, BerthPlugin, PluginScope
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.decoding.go_types import encode_struct
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.errors.plugins import PluginExceptionError, PluginLoadError
from berth_host.framework.score_table import WeightedPlugin
from berth_host.log import get_logger
from berth_host.log.hidden import without_hidden
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.wanted_resources import wants_one_of
from berth_host.plugins.registry import ClassRegistry, load_class, not_loaded
from berth_host.rpc.client import PluginClient
from berth_host.rpc.in_process import InProcessTransport, report_trouble
from berth_host.rpc.route import ClientSettings, LocalRoute, Route
from berth_host.rpc.validate import ClusterFacts

if TYPE_CHECKING:  # brings gRPC
    from berth_host.attach.routes import AttachedPlugin

PointPlugins = dict[ExtensionPoint, list[WeightedPlugin]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSeams:
    """The parts that clients are made from. `handle`: makes the handle of an in-process plugin. `route`:
    returns the attachment of a served plugin for one profile.
    """

    registry: ClassRegistry
    objects: ObjectStores
    facts: ClusterFacts
    handle: Callable[[str], Handle]
    route: Callable[[BerthPlugin, ResolvedProfile], Route]


log = get_logger()


@dataclass(slots=True)
class Clients:
    """All clients, by profile and plugin. `stats`: by plugin. `missing`: default plugins that this build does
    not have.
    """

    by_profile: dict[str, dict[str, PluginClient]] = field(default_factory=dict)
    stats: dict[str, PluginStats] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    _listing: set[asyncio.Future[None]] = field(default_factory=set)

    async def reconcile(self, cycles: LiveCycles | None = None) -> None:
        """Call Reconcile of every in-process plugin, before the first cycle. Raises PluginError.

        `cycles`: those that are alive; None: there is none.
        """
        for profile, transport in self._in_process():
            await self._reconcile_one(profile, transport, cycles)

    def list_again(self, plugin: str, cycles: LiveCycles) -> None:
        """Call Reconcile of an in-process plugin again, in the background; the log has what went wrong."""
        for profile, transport in self._in_process():
            if transport.runtime.descriptor.name == plugin:
                task = asyncio.ensure_future(self._reconcile_one(profile, transport, cycles))
                self._listing.add(task)
                task.add_done_callback(self._was_listed)

    def _was_listed(self, task: asyncio.Future[None]) -> None:
        self._listing.discard(task)
        if not task.cancelled() and (err := task.exception()) is not None:
            log.warning("plugin.warned", warning=str(err))

    async def _reconcile_one(
        self, profile: str, transport: InProcessTransport, cycles: LiveCycles | None
    ) -> None:
        name = transport.runtime.descriptor.name
        try:
            answer = transport.runtime.reconcile(() if cycles is None else _live(name, profile, cycles))
            if inspect.isawaitable(answer):
                await answer
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as err:  # a plugin's own code may raise anything
            raise PluginExceptionError(name, "Reconcile", raised_text(err)) from err

    def forget(self, plugin: str, asking: str = "") -> None:
        """Drop the kept answers of the plugin, in every profile and process. `asking`: see `Route`."""
        for clients in self.by_profile.values():
            client = clients.get(plugin)
            if client is not None:
                client.route.forget(asking)

    def served_descriptor(self, plugin: str) -> Descriptor | None:
        """Return the descriptor of a served plugin that is attached; None for others."""
        for clients in self.by_profile.values():
            client = clients.get(plugin)
            if client is not None and client.is_served and client.available:
                return client.descriptor
        return None

    def absent(self, served: Mapping[str, AttachedPlugin]) -> list[str]:
        """Return the names of the required plugins that cannot be called, sorted.

        `served`: by plugin. A served plugin on standby counts as present.
        """
        return sorted(
            {
                client.name
                for of_profile in self.by_profile.values()
                for client in of_profile.values()
                if client.settings.required
                and not client.available
                and not (client.name in served and served[client.name].stands_by)
            }
        )

    async def close(self) -> None:
        """End the threads of in-process plugins, and close the plugins at the same time, each for a limited
        time.
        """
        await asyncio.gather(*(transport.close() for _, transport in self._in_process()))

    def close_unused(self) -> None:
        """Close in-process plugins that were never called, because the host cannot be made."""
        runtimes = [transport.runtime for _, transport in self._in_process()]
        for runtime, closing in close_unused(runtimes).items():
            report_trouble(runtime.descriptor.name, closing)

    def _in_process(self) -> Iterator[tuple[str, InProcessTransport]]:
        for profile, clients in self.by_profile.items():
            for client in clients.values():
                if isinstance(client.route, LocalRoute):
                    yield profile, client.route.transport


def _live(plugin: str, profile: str, cycles: LiveCycles) -> list[LiveReservation]:
    """Return the live reservations and waits of an in-process plugin of one profile."""
    found = {one.cycle.cycle_id: one for one in (*cycles.bound(plugin), *cycles.live(plugin))}
    return [
        LiveReservation(
            state=one.cycle.state(plugin),
            pod=one.cycle.pod,
            node_name=one.cycle.node_name or one.cycle.part(plugin).reserved_node or "",
            waiting_on_permit=one.permit_deadline_s is not None,
            deadline_s=one.permit_deadline_s,
        )
        for one in found.values()
        if one.cycle.profile == profile
    ]


def make_clients(configuration: LoadedConfiguration, seams: ClientSeams) -> Clients:
    """Make one client per plugin and profile. Raises PluginLoadError, after it has closed those that it had
    made.
    """
    made = Clients()
    try:
        for profile in configuration.profiles:
            clients = made.by_profile.setdefault(profile.scheduler_name, {})
            for name in sorted(profile.plugin_names):
                client = _client(name, profile, configuration.berth, seams, made.stats)
                if client is not None:
                    clients[name] = client
                elif name not in made.missing:
                    made.missing.append(name)
    except BaseException:
        made.close_unused()
        raise
    return made


def plugins_by_point(profile: ResolvedProfile, clients: Mapping[str, PluginClient]) -> PointPlugins:
    """Return the plugins of the profile that this build has, by point, in configured order."""
    by_point: PointPlugins = {}
    for point in ExtensionPoint:
        by_point[point] = [
            WeightedPlugin(clients[enabled.name], enabled.weight or 1)
            for enabled in profile.plugins_at(point.config_name)
            if enabled.name in clients
        ]
    return by_point


def plugins_by_profile(configuration: LoadedConfiguration, clients: Clients) -> dict[str, PointPlugins]:
    """Return `plugins_by_point` of every profile, by schedulerName."""
    return {
        profile.scheduler_name: plugins_by_point(profile, clients.by_profile[profile.scheduler_name])
        for profile in configuration.profiles
    }


def _client(
    name: str,
    profile: ResolvedProfile,
    berth: BerthConfiguration,
    seams: ClientSeams,
    stats: dict[str, PluginStats],
) -> PluginClient | None:
    settings = berth.plugin(name)
    if settings is not None and settings.in_process is None:
        route: Route = seams.route(settings, profile)
    else:
        cls = (
            seams.registry.find(name)
            if settings is None or settings.in_process is None
            else load_class(name, settings.in_process)
        )
        if cls is None:
            if name in DEFAULT_PLUGINS_BY_NAME:
                return None
            raise PluginLoadError(name, "no entry point", "nothing is registered under this name")
        route = LocalRoute(InProcessTransport(_make(name, cls, profile, seams)))
    return PluginClient(
        name,
        profile.scheduler_name,
        route,
        seams.facts,
        settings=_client_settings(settings, seams.objects),
        stats=stats.setdefault(name, PluginStats(name)),
    )


def _make(name: str, cls: type, profile: ResolvedProfile, seams: ClientSeams) -> PluginRuntime:
    args: Any = profile.plugin_args.get(name)
    try:
        handle = seams.handle(name)
        plugin = make_plugin(cls, args or {}, handle, name)
        # The framework shares the rows of equal pods across plugins, so this plugin need not.
        return PluginRuntime(plugin, name=name, handle=handle, keeps_rows=False)
    except PluginArgsError as err:
        problem = f"it refuses its arguments in profile {profile.scheduler_name}: {without_hidden(str(err))}"
        raise PluginLoadError(name, place_of_class(cls), problem) from err
    except PluginDefinitionError as err:
        raise PluginLoadError(name, place_of_class(cls), without_hidden(str(err))) from err
    except KeyboardInterrupt:
        raise
    except BaseException as err:  # a plugin's own __init__ may raise anything
        raise not_loaded(name, place_of_class(cls), err) from err


def _client_settings(plugin: BerthPlugin | None, objects: ObjectStores) -> ClientSettings:
    if plugin is None:
        return ClientSettings(find=objects.get)
    return ClientSettings(
        find=objects.get,
        points=plugin.points,
        required=plugin.required,
        scope=scope_of(plugin.scope, objects, plugin.managed_names),
        scope_reads_namespaces=plugin.scope.namespace_selector is not None,
        left_to_it=wants_one_of(plugin.left_to_it) if plugin.left_to_it else None,
    )


def scope_of(
    scope: PluginScope, objects: ObjectStores, managed: Sequence[str] = ()
) -> Callable[[Pod], bool] | None:
    """Return the test of BerthConfiguration's `scope` and `managedResources`; None if every pod is in scope.

    A pod is in scope if it passes everything that the scope gives, and wants one of the `managed` resources,
    if there are any.
    """
    tests: list[Callable[[Pod], bool]] = []
    if scope.namespace_selector is not None:
        namespaces = LabelSelector.of(encode_struct(scope.namespace_selector))
        tests.append(lambda pod: namespaces.matches(_namespace_labels(objects, pod.namespace)))
    if scope.pod_selector is not None:
        pods = LabelSelector.of(encode_struct(scope.pod_selector))
        tests.append(lambda pod: pods.matches(pod.labels))
    tests.extend(wants_one_of(names) for names in (scope.resources, managed) if names)
    if not tests:
        return None
    return lambda pod: all(test(pod) for test in tests)


def _namespace_labels(objects: ObjectStores, name: str) -> Mapping[str, str]:
    namespace: KubeObject | None = objects.get("Namespace", name)
    # A namespace that no object describes still has the label that the API server gives every namespace.
    default = {"kubernetes.io/metadata.name": name}
    return default if namespace is None else default | dict(namespace.get("metadata.labels", {}))
