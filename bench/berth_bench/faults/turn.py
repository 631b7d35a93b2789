"""One turn: a host on the embedded cluster, a plugin that fails, and how fast pods are placed.

The command runs a turn in a process of its own. The plugin is another process. It works until it is attached
and was called. Then it is killed, stopped (SIGSTOP), or made to answer later than its deadline.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from berth_host.app import Host, HostOptions
from berth_host.attach.state import State
from berth_host.cli import configuration
from berth_host.cluster.port import WatchEvent
from berth_host.cycle.chooser import SeededChooser
from berth_host.explain.diagnosis import Diagnosis
from berth_host.metrics.plugin_stats import CallStats
from berth_host.model.clock import RealClock
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation

from berth_bench.measuring import Meter
from berth_bench.running import WorkloadError
from berth_bench.soak.plugin_process import PluginProcess
from berth_bench.soak.plugins import SLOW_S, Mood, SoakFit
from berth_bench.versus.objects import node, pod

PLUGIN: Final = SoakFit.__name__
DEADLINE_MS: Final = round(1000 * SLOW_S / 2.5)
"""Deadline of the plugin's Filter: a slow answer takes two and a half times as long."""
PODS_PER_NODE: Final = 110
HONEST_PODS: Final = 20
"""Number of pods before the fault, so that the plugin was called at least once."""
_TRICKLE_S: Final = 0.05
_ATTACHES_WITHIN_S: Final = 60.0
_BATCH_WITHIN_S: Final = 600.0


class Case(StrEnum):
    """The fault of the plugin. `NONE`: no plugin."""

    NONE = "none"
    DEAD = "dead"
    HUNG = "hung"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a turn. `pods`: pods of each of the two measured batches. `warm_up_s`: seconds from the
    fault to the second batch.
    """

    nodes: int
    pods: int
    warm_up_s: float

    @property
    def pods_in_all(self) -> int:
        """The number of pods that a turn creates."""
        return HONEST_PODS + 2 * self.pods + math.ceil(self.warm_up_s / _TRICKLE_S)

    @property
    def has_room(self) -> bool:
        """True if the nodes have room for all pods."""
        return self.pods_in_all <= PODS_PER_NODE * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The figures of a batch of pods. `p99_ms`: of scheduling cycles, from the pop to the start of the
    binding. `asked_per_pod`: requests that went to the plugin's process, per pod.
    """

    pods_per_second: float
    p99_ms: float
    asked_per_pod: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The figures of one turn. `whole`: both batches; `settled`: only the batch after the warm-up."""

    whole: Phase
    settled: Phase


async def turn(case: Case, size: Size) -> Turn:
    """Measure one case once. Raises WorkloadError."""
    with TemporaryDirectory(prefix="berth-faults-") as made:
        folder = Path(made)
        async with _plugin(case, folder) as plugin:
            path = folder / "scheduler.yaml"
            path.write_text(_configuration(plugin))
            server = ApiServer(RealClock())
            for number in range(size.nodes):
                server.create(node(f"node-{number}", pods=str(PODS_PER_NODE)))
            bench = _Bench(case, size, server, path)
            try:
                return await bench.run(plugin)
            finally:
                if plugin is not None:
                    await plugin.kill()  # a host that detaches a live plugin waits for its answer to Drain
                await bench.host.stop()


@asynccontextmanager
async def _plugin(case: Case, folder: Path) -> AsyncIterator[PluginProcess | None]:
    if case is Case.NONE:
        yield None
        return
    plugin = PluginProcess(PLUGIN, folder)
    await plugin.start()
    try:
        yield plugin
    finally:
        await plugin.kill()


def _configuration(plugin: PluginProcess | None) -> str:
    """Return the default profile, with the plugin at Filter if there is one."""
    profile: dict[str, Any] = {"schedulerName": "default-scheduler"}
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    if plugin is None:
        return yaml.safe_dump(scheduler)
    profile["plugins"] = {"filter": {"enabled": [{"name": PLUGIN}]}}
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [
            {
                "name": PLUGIN,
                "endpoint": plugin.endpoint,
                "points": {"filter": {"deadline": f"{DEADLINE_MS}ms", "policy": "Ignore"}},
            }
        ],
    }
    return yaml.safe_dump_all([scheduler, own])


class _Bench:
    """The host of a turn, its pods, and its measurements."""

    def __init__(self, case: Case, size: Size, server: ApiServer, path: Path) -> None:
        self._case, self._size, self._server = case, size, server
        self._whole, self._settled = Meter(), Meter()
        self._created = 0
        self._pending: set[str] = set()
        self._all_bound = asyncio.Event()
        options = HostOptions(clock=RealClock(), chooser=SeededChooser(0), on_attempt=self._attempt_ended)
        self.host: Host = simulation.embedded_host(configuration.for_simulation(str(path)), server, options)

    async def run(self, plugin: PluginProcess | None) -> Turn:
        """Run the turn from the start of the host and return its figures. Raises WorkloadError."""
        unsubscribe = self._server.store.subscribe(self._changed)
        try:
            await self.host.start()
            await self._attached()
            await self._batch(HONEST_PODS)
            await _break(self._case, plugin)
            broken_s = time.monotonic()
            first = await self._measured(self._whole)
            await self._trickle(broken_s + self._size.warm_up_s)
            second = await self._measured(self._whole, self._settled)
        finally:
            unsubscribe()
        return Turn(
            whole=self._phase(self._whole, first + second, 2 * self._size.pods),
            settled=self._phase(self._settled, second, self._size.pods),
        )

    # --- what happens ------------------------------------------------------------------------------

    def _attempt_ended(self, diagnosis: Diagnosis) -> None:
        self._whole.attempt_ended(diagnosis)
        self._settled.attempt_ended(diagnosis)

    def _changed(self, event: WatchEvent) -> None:
        new = event.new
        if event.kind != "Pod" or new is None or not new.get("spec.nodeName"):
            return
        if new.ref.uid in self._pending:
            self._pending.discard(new.ref.uid)
            self._whole.pod_bound(new.ref.uid)
            self._settled.pod_bound(new.ref.uid)
            if not self._pending:
                self._all_bound.set()

    # --- steps -------------------------------------------------------------------------------------

    async def _attached(self) -> None:
        """Wait until the plugin is attached: a plugin that was never called costs nothing."""
        ends_s = time.monotonic() + _ATTACHES_WITHIN_S
        while True:
            conditions = self.host.attachments.attached_places.conditions()
            if all(condition.state is State.ACTIVE for condition in conditions):
                return
            if time.monotonic() > ends_s:
                raise WorkloadError(f"{self._case}: the plugin is not attached: {conditions[0].reason}")
            await asyncio.sleep(_TRICKLE_S)

    async def _measured(self, *meters: Meter) -> int:
        """Place one batch in a window of these meters; return how many requests went to the plugin."""
        gc.collect()
        before = self._asked()
        for meter in meters:
            meter.open(lambda _: True)
        await self._batch(self._size.pods)
        for meter in meters:
            meter.close()
        return self._asked() - before

    async def _batch(self, count: int) -> None:
        """Create `count` pods at once; wait until all have a node."""
        for _ in range(count):
            self._create()
        try:
            async with asyncio.timeout(_BATCH_WITHIN_S):
                await self._all_bound.wait()
        except TimeoutError:
            text = f"{self._case}: {len(self._pending)} pods have no node after {_BATCH_WITHIN_S:.0f} s"
            raise WorkloadError(text) from None
        self.host.check()

    async def _trickle(self, until_s: float) -> None:
        """Create a pod now and then, so that the host detects the plugin's failures."""
        while time.monotonic() < until_s:
            self._create()
            await asyncio.sleep(_TRICKLE_S)
        if self._pending:
            await self._batch(0)

    def _create(self) -> None:
        self._created += 1
        made = self._server.create(pod(f"pod-{self._created}"))
        self._pending.add(made.ref.uid)
        self._all_bound.clear()
        self._whole.pod_seen(made)
        self._settled.pod_seen(made)

    # --- figures -----------------------------------------------------------------------------------

    def _asked(self) -> int:
        stats = self.host.plugin_stats().get(PLUGIN)
        calls = dict(stats.items()) if stats is not None else {}
        return calls.get("Filter", CallStats()).messages

    def _phase(self, meter: Meter, asked: int, pods: int) -> Phase:
        figures = meter.figures(self._size.nodes)
        return Phase(
            pods_per_second=figures.rate.avg, p99_ms=figures.cycle_p99_ms, asked_per_pod=asked / pods
        )


async def _break(case: Case, plugin: PluginProcess | None) -> None:
    if plugin is None:
        return
    if case is Case.DEAD:
        await plugin.kill()
    elif case is Case.HUNG:
        plugin.hold()
    else:
        plugin.behave(Mood.SLOW)
