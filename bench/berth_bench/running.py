"""Run one workload on the host that `berth simulate` runs, in real time, and return its `Result`.

Called by `children`, in a process that does nothing else; tests call it in their own process.
"""

from __future__ import annotations

import asyncio
import cProfile
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from berth_host.app import Host, HostOptions
from berth_host.attach.state import State
from berth_host.cli import configuration
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.profiles.registry import UNTIL_ATTACHED
from berth_host.cycle.chooser import SeededChooser
from berth_host.errors.cluster import ClusterError
from berth_host.model.clock import RealClock
from berth_sdk.kube_object import KubeObject
from berth_sdk.quantity import nano_value
from berth_sim.cluster.admission.service_accounts import ServiceAccounts
from berth_sim.cluster.claim_controller import GROUP_CLAIMS_GATE, ClaimController
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation
from berth_sim.commands.lapses import failed_plugins_of, lapses_of, remarks_of

from berth_bench import feature_mocks
from berth_bench.actions import Actions, OpError
from berth_bench.measuring import Meter
from berth_bench.remote import with_remote
from berth_bench.result import Result
from berth_bench.templates import TemplateError
from berth_bench.workload import CreateNodes, Workload


class WorkloadError(Exception):
    """A workload could not be run to its end; the text names the workload and the reason."""


class NotAttachedError(WorkloadError):
    """A required plugin is not attached. `plugin`: which, and why, as a sentence."""

    def __init__(self, text: str, plugin: str) -> None:
        self.plugin = plugin
        super().__init__(text, plugin)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the command, for every workload. Paths are "" if not given.

    `standard_input`: the text of standard input, if `config` is -. `convert_older`: convert configurations of
    older versions instead of refusing them. `remote`: plugins to run in processes of their own; `plugins`:
    the program's own classes. `keep_answers` False: call every plugin about every pod and node. `limit_s`:
    above 0, end a workload's ops after this time; its figures are those until then.
    `emulated_version`: the version of kube-scheduler whose gates a workload may set; "": 1.36
    where a gate needs it.
    """

    config: str = ""
    standard_input: str = ""
    convert_older: bool = True
    remote: tuple[str, ...] = ()
    seed: int = 0
    profile: str = ""
    placements: str = ""
    verbose: bool = False
    keep_answers: bool = True
    limit_s: float = 0.0
    emulated_version: str = ""
    plugins: Mapping[str, type] = field(default_factory=dict)


def loaded(workload: Workload, settings: Settings) -> LoadedConfiguration:
    """Load the configuration of a workload. Raises ConfigurationError and PluginLoadError."""
    path = settings.config or workload.config or None
    given = configuration.for_simulation(
        path,
        settings.plugins,
        convert_older=settings.convert_older,
        read_stdin=lambda: settings.standard_input,
        feature_gates=workload.feature_gates,
        emulated_version=settings.emulated_version or _emulated(workload.feature_gates),
    )
    return with_remote(given, (*workload.remote, *settings.remote), settings.plugins)


def _emulated(gates: Mapping[str, bool]) -> str:
    """Return the version whose gates can be set so: as in scheduler_perf, 1.36 to turn NodeDeclaredFeatures
    off, which 1.37 locks; "" for the default.
    """
    return "1.36" if gates.get("NodeDeclaredFeatures") is False else ""


def resized(workload: Workload, nodes: int) -> Workload:
    """Return the workload with `nodes` nodes. Of the ops whose count is a parameter, each is scaled in
    proportion.
    """
    ops = [step.op for step in workload.steps if isinstance(step.op, CreateNodes) and step.op.is_resizable]
    total = sum(op.count for op in ops)
    if not total:
        note = "--nodes has no effect: its nodes are no parameter"
        return replace(workload, notes=(*workload.notes, note))
    given, seen = 0, 0
    counts: dict[int, int] = {}
    for op in ops:
        seen += op.count
        counts[id(op)] = nodes * seen // total - given
        given += counts[id(op)]
    steps = tuple(
        replace(step, op=replace(step.op, count=counts[id(step.op)]))
        if isinstance(step.op, CreateNodes) and id(step.op) in counts
        else step
        for step in workload.steps
    )
    return replace(workload, steps=steps)


async def run(workload: Workload, settings: Settings) -> Result:
    """Run all ops and return the figures. Raises WorkloadError, and what `loaded` raises."""
    config = loaded(workload, settings)
    clock = RealClock()
    server = ApiServer(clock, service_accounts=ServiceAccounts(settings.seed) if workload.as_kept else None)
    meter = Meter()
    options = HostOptions(
        clock=clock,
        chooser=SeededChooser(settings.seed),
        plugins=settings.plugins,
        on_attempt=meter.attempt_ended,
        keep_answers=settings.keep_answers,
    )
    host = simulation.embedded_host(config, server, options)
    meter.stats = host.plugin_stats
    profile = cProfile.Profile() if settings.profile else None
    features = workload.declared_features
    actions = Actions(
        host, server, meter, _Switch(profile), declared_features=features, as_kept=workload.as_kept
    )
    claims = ClaimController(server, of_groups=config.gates.is_enabled(GROUP_CLAIMS_GATE))
    try:
        claims.start()
        with feature_mocks.known(features):
            await host.start()
            _check_attached(host, workload)
            await _carry_out(workload, actions, host, settings.limit_s)
        result = Result(
            workload=workload.name,
            figures=meter.figures(len(server.list("nodes"))),
            threshold=workload.threshold,
            notes=(*workload.notes, *actions.notes, *_warnings(host)),
            lapses=tuple(lapses_of(host)),
            failed_plugins=tuple(failed_plugins_of(host)),
            levels=tuple(actions.levels),
            gpu_share=_share_in_use(server, workload.gpu_resource) if workload.gpu_resource else None,
        )
        if settings.placements:
            _write_placements(Path(settings.placements), server.list("pods"))
    finally:
        claims.stop()
        await host.stop()
    if profile is not None:
        profile.dump_stats(settings.profile)
    return result


async def _carry_out(workload: Workload, actions: Actions, host: Host, limit_s: float) -> None:
    title = ""
    try:
        async with asyncio.timeout(limit_s or None):
            for step in workload.steps:
                title = step.title
                try:
                    await actions.run(step.op)
                except (ClusterError, TemplateError, OpError) as err:
                    raise WorkloadError(f"{workload.name}, {title}: {err}") from err
                host.check()
    except TimeoutError:
        await actions.finish(early=True)
        actions.notes.append(f"ended after {limit_s:g} s, in {title}: the figures cover the time until then")
    else:
        await actions.finish()


class _Switch:
    """Turns a profiler on for the measured windows."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self._profile = profile

    def __call__(self, is_on: bool) -> None:
        if self._profile is None:
            return
        if is_on:
            self._profile.enable()
        else:
            self._profile.disable()


def _check_attached(host: Host, workload: Workload) -> None:
    """Raise WorkloadError if a plugin is not attached: the figures would not include it.

    NotAttachedError for a required one.
    """
    absent = failed_plugins_of(host)
    if absent:
        raise NotAttachedError(f"{workload.name}: {absent[0]}", absent[0])
    for condition in host.attachments.attached_places.conditions():
        if condition.state is not State.ACTIVE:
            names = ", ".join(condition.plugins)
            reason = condition.reason or condition.state.value
            raise WorkloadError(
                f"{workload.name}: plugin {names} ({condition.place}) is not attached: {reason}"
            )


def _warnings(host: Host) -> list[str]:
    warnings = [text for text in host.configuration.warnings if not text.endswith(UNTIL_ATTACHED)]
    warnings += lapses_of(host) + remarks_of(host)
    if host.clients.missing:
        names = ", ".join(host.clients.missing)
        warnings.append(f"runs without these default plugins, which this build does not have: {names}")
    return warnings


def _share_in_use(server: ApiServer, resource: str) -> float:
    """Return the share of one resource of all nodes that bound pods request (0..1)."""

    def amount(held: Mapping[str, str] | None) -> int:
        return nano_value((held or {}).get(resource, "0"))

    total = sum(amount(node.get("status.allocatable")) for node in server.list("nodes"))
    used = sum(
        amount((container.get("resources") or {}).get("requests"))
        for pod in server.list("pods")
        if pod.get("spec.nodeName")
        for container in pod.get("spec.containers", [])
    )
    return used / total if total else 0.0


def _write_placements(path: Path, pods: Sequence[KubeObject]) -> None:
    """Write one line per pod: `namespace/name,node`, then the pod's annotations, which plugins may have
    written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for pod in pods:
            annotations: Mapping[str, str] = pod.get("metadata.annotations", {})
            own = [f"{key}={value}" for key, value in sorted(annotations.items())]
            writer.writerow([pod.ref.key, pod.get("spec.nodeName") or "", *own])
