"""A configuration and manifests -> the host, run on the embedded cluster until nothing changes any more.

`simulate`, `why` and the demo call it. `bench` uses its host and its warnings. The host is the same as in
every other way to run berth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from berth_host.app import Host, HostOptions
from berth_host.cli import configuration, standard_input
from berth_host.cluster.port import WatchEvent
from berth_host.cluster.watching import group_gates
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError, Finding
from berth_host.cycle.chooser import SeededChooser
from berth_host.extenders.client import ExtenderName
from berth_host.metrics.series import instant_s
from berth_host.model.clock import ManualClock
from berth_host.model.resources import RESOURCE_OF_GATE
from berth_sdk.kube_object import KubeObject

from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.admitting import server_of_a_question
from berth_sim.cluster.claim_controller import GROUP_CLAIMS_GATE, ClaimController
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.volume_controller import VolumeController
from berth_sim.commands.lapses import failed_plugins_of, lapses_of, remarks_of
from berth_sim.commands.outcome import Run, Witness, report_of
from berth_sim.commands.report import PluginCost, Report
from berth_sim.commands.waits import tell_waits
from berth_sim.manifests.loading import Loaded, load
from berth_sim.run.settle import NEVER_FLUSHED_S, Settling

Asks = Callable[[Host], Awaitable[None]]
"""A question to the host of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of a command. `config` None: the default configuration.

    `-` in `paths` or as `config`: the text that `read_stdin` returns. `plugins`: classes of the program, by
    name. `convert_older` True: convert a configuration of an older version to v1; False: refuse it.
    `started_s`: the time of the run's clock at its start, in Unix seconds; None: now. `live`: returns the
    objects of a cluster, which belong to this run alone. `move_pods`, `needs_pods`: see `load`.
    """

    paths: Sequence[str]
    config: str | None
    seed: int
    read_stdin: Callable[[], str]
    plugins: Mapping[str, type] = field(default_factory=dict)
    convert_older: bool = True
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    emulated_version: str = ""
    started_s: float | None = None
    live: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    move_pods: bool = False
    needs_pods: bool = True


@dataclass(frozen=True, slots=True)
class Prepared:
    """All input, read and valid, before anything is scheduled."""

    request: Request
    configuration: LoadedConfiguration
    clock: ManualClock
    server: ApiServer
    loaded: Loaded

    @property
    def pods_to_place(self) -> int:
        """The number of pods without a node, for this configuration's profiles."""
        names = {profile.scheduler_name for profile in self.configuration.profiles}
        return sum(
            not pod.get("spec.nodeName") and pod.get("spec.schedulerName") in names
            for pod in self.server.list("pods")
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run: the report, the host with its diagnoses, and the cluster after the run.

    `lapses`: see `lapses_of`. `remarks`: see `remarks_of`. `failed_plugins`: see `failed_plugins_of`.
    """

    report: Report
    host: Host
    server: ApiServer
    costs: Sequence[PluginCost]
    lapses: Sequence[str]
    remarks: Sequence[str]
    failed_plugins: Sequence[str] = ()


def prepare(request: Request) -> Prepared:
    """Read all input. Raises ConfigurationError, PluginLoadError and ManifestError, with all problems."""
    asking = list(request.paths).count(standard_input.SIGN)
    problem = "- is given twice, but standard input can be read once" if asking > 1 else ""
    if request.config == standard_input.SIGN and asking:
        problem = "both the manifests and --config read it: name a file for one of them"
    if problem:
        raise ConfigurationError("decode", [Finding(problem)], source=standard_input.NAME)
    loaded_configuration = configuration.for_simulation(
        request.config,
        request.plugins,
        convert_older=request.convert_older,
        feature_gates=request.feature_gates,
        emulated_version=request.emulated_version,
        read_stdin=request.read_stdin,
    )
    clock = ManualClock(float(int(time.time() if request.started_s is None else request.started_s)))
    gatekeeping = Gatekeeping()
    server = ApiServer(clock, gatekeeping)
    loaded = load(
        request.paths,
        server,
        request.read_stdin,
        request.live(),
        move_pods=request.move_pods,
        needs_pods=request.needs_pods,
    )
    unread = _groups_without_gate(loaded_configuration, server)
    loaded = replace(loaded, warnings=(*loaded.warnings, *gatekeeping.quotas.uncounted(), *unread))
    return Prepared(request, loaded_configuration, clock, server, loaded)


def _groups_without_gate(loaded: LoadedConfiguration, server: ApiServer) -> list[str]:
    """Return a warning for each kind of pod group that the manifests have and the feature gates leave out."""
    gates, warnings = group_gates(loaded), []
    for gate, resource in RESOURCE_OF_GATE.items():
        found = server.list(resource)
        if gate in gates or not found:
            continue
        known = loaded.emulation.gates.get(gate)
        needed = ",".join(f"{one}=true" for one in (*(() if known is None else known.requires), gate))
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        warnings.append(
            f"{found[0].kind} {found[0].ref.key}{more}: without effect, so its pods are placed one"
            f" by one; turn groups on with --feature-gates {needed}"
        )
    return warnings


async def run(
    prepared: Prepared,
    on_bound: Callable[[int], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    before_stop: Asks | None = None,
) -> Finished:
    """Schedule until nothing changes any more.

    `on_bound`: called at each binding, with the number of pods bound so far. `say`: called with a text about
    plugins that the run waits for. `before_stop`: asks the host something, after nothing changed any more and
    before the host stops; not called for an interrupted run. If the task is cancelled while pods are
    scheduled, as at Ctrl-C, the run ends with the results so far.
    """
    bound = _BoundCount(on_bound)
    bound_before = sum(bool(pod.get("spec.nodeName")) for pod in prepared.server.list("pods"))
    unsubscribe = prepared.server.store.subscribe(bound.see)
    try:
        async with hosted(prepared, say) as (host, settling):
            started_s = instant_s()
            is_interrupted = not await _has_settled(settling)
            seconds = instant_s() - started_s
            # Before the host stops: stopping undoes waiting attempts.
            run_figures = Run(
                seconds=seconds,
                seed=prepared.request.seed,
                bound_before=bound_before,
                is_interrupted=is_interrupted,
                lapses=tuple(lapses_of(host)),
            )
            report = report_of(prepared.server, prepared.loaded, _witness(prepared, host), run_figures)
            costs = costs_of(host)
            lapses, remarks = list(run_figures.lapses), remarks_of(host)
            failed_plugins = failed_plugins_of(host)
            if before_stop is not None and not is_interrupted:
                await before_stop(host)
    finally:
        unsubscribe()
    return Finished(report, host, prepared.server, costs, lapses, remarks, failed_plugins)


@asynccontextmanager
async def hosted(
    prepared: Prepared, say: Callable[[str], None] = lambda _: None
) -> AsyncIterator[tuple[Host, Settling]]:
    """Yield the started host, and what runs it until nothing changes any more. `say`: as for `run`."""
    host = _host(prepared)
    of_groups = prepared.configuration.gates.is_enabled(GROUP_CLAIMS_GATE)
    claims = ClaimController(prepared.server, of_groups=of_groups)
    controllers = (VolumeController(prepared.server), claims)
    telling = asyncio.create_task(tell_waits(host.attachments.attached_places.awaited, say))
    try:
        for controller in controllers:
            controller.start()
        settling = Settling(
            host,
            prepared.clock,
            others_move=lambda: not all(controller.is_idle for controller in controllers),
        )
        await host.start()
        yield host, settling
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        for controller in controllers:
            controller.stop()
        await host.stop()


async def _has_settled(settling: Settling) -> bool:
    """Run until nothing changes any more, and return True; return False if the task was cancelled before.

    The cancellation is taken back, so that the caller can finish.
    """
    try:
        await settling.run()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return False
    return True


def costs_of(host: Host) -> list[PluginCost]:
    """Return the time that every plugin took, by kind of call."""
    served = {
        name
        for clients in host.clients.by_profile.values()
        for name, client in clients.items()
        if client.is_served
    }
    return [
        PluginCost(
            plugin=name,
            call=call,
            served=name in served or isinstance(name, ExtenderName),
            calls=figures.calls,
            total_ms=figures.times.total * 1000,
            p99_ms=figures.times.quantile(0.99) * 1000,
            failures=figures.failed,
            alike=figures.alike,
        )
        for name, stats in host.plugin_stats().items()
        for call, figures in stats.items()
    ]


def embedded_host(config: LoadedConfiguration, server: ApiServer, options: HostOptions) -> Host:
    """Return a host on the embedded cluster, as `simulate`, `why` and `bench` run it."""
    # No extender can reach the embedded cluster, so the host posts the Bindings that they answer for.
    options = replace(options, binds_for_extenders=True, admission=server_of_a_question)
    return Host(config, MemoryCluster(options.clock, server), options)


def _host(prepared: Prepared) -> Host:
    options = HostOptions(
        clock=prepared.clock,
        chooser=SeededChooser(prepared.request.seed),
        plugins=prepared.request.plugins,
        max_in_pool_s=NEVER_FLUSHED_S,
        diagnoses_kept=max(1, len(prepared.loaded.pod_keys)),
    )
    host = embedded_host(prepared.configuration, prepared.server, options)
    for stats in host.plugin_stats().values():
        stats.counts_alike = True
    return host


def _witness(prepared: Prepared, host: Host) -> Witness:
    uids = {
        event.regarding.key: event.regarding.uid
        for event in prepared.server.events.recent
        if event.reason == "Preempted"
    }
    gated = {
        info.key: entity for entity in host.queue.places.pool for info in entity.pods() if entity.is_gated
    }

    def preempted_by(key: str) -> str | None:
        return host.evictions.preempted_by.get(uids.get(key, ""))

    def gate(key: str) -> tuple[str, str] | None:
        info = gated.get(key)
        return None if info is None else (info.gating_plugin, info.gating_message)

    def last_attempt(key: str) -> str | None:
        diagnosis = host.diagnoses.find(key)
        if diagnosis is not None:
            return diagnosis.message
        pod = host.objects.pod(key)
        missing = host.queue.groups.forest.missing_above(pod.group_key) if pod and pod.group_key else ""
        return f"waits for {missing}: there is no such object in the input" if missing else None

    names = frozenset(profile.scheduler_name for profile in prepared.configuration.profiles)
    return Witness(scheduler_names=names, preempted_by=preempted_by, gate=gate, last_attempt=last_attempt)


class _BoundCount:
    """The count of bindings so far, for the progress bar."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._count = 0

    def see(self, event: WatchEvent) -> None:
        if event.kind == "Pod" and _node_of(event.new) and event.old is not None and not _node_of(event.old):
            self._count += 1
            self._tell(self._count)


def _node_of(pod: KubeObject | None) -> str:
    return str(pod.get("spec.nodeName") or "") if pod is not None else ""
