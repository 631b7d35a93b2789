"""A plugin that dies, hangs or answers wrongly at every call of the contract in turn, under the whole host.

Afterwards every pod is accounted for, every Reserve that did not end in a bound pod has its Unreserve,
and the plugin's copy of the nodes is the host's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import attachment, identity_calls, probing, reconciling, retrying
from berth_host.attach.state import State
from berth_host.rpc import failure_record
from berth_host.rpc.calls import CALLS
from berth_host.rpc.served.outbox import IDLE_END_S
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from support.faulty_plugin import INVALID
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess

EFFECTS = ("Reserve", "Unreserve", "Permit", "PreBind", "Bind", "PostBind")
POINTS = ("preEnqueue", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit")
BINDING = ("preBind", "postBind")
OF_GROUPS = (
    "PlacementGenerate",
    "PlacementScore",
    "NormalizePlacementScore",
    "PlacementFeasible",
    "PodGroupPostFilter",
)
"""The calls about groups, which no pod of these tests belongs to: see tests/host/faults/test_groups.py."""
FAULTS = [
    (rpc, kind)
    for rpc in INVALID
    for kind in ("die", *(("die-after",) if rpc in EFFECTS else ()), "hang", "invalid")
    if rpc != "Drain"  # asked once, when the host stops: see the last test
    and rpc not in OF_GROUPS
]
EVERY = 4
"""`make test` runs the first fault of so many; `make test-all` runs all."""
NODES = 4
PATIENCE_S = 180.0


def configuration(endpoint: str, transport: str) -> str:
    """Faulty at every point, required, with short deadlines."""
    enabled = "".join(f"    {point}: {{enabled: [{{name: Faulty}}]}}\n" for point in (*POINTS, *BINDING))
    deadlines = "".join(f"    {point}: {{deadline: 1s}}\n" for point in (*POINTS, *BINDING, "bind"))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "podMaxBackoffSeconds: 2\n"
        f"profiles:\n- plugins:\n{enabled}"
        "    queueSort: {enabled: [{name: Faulty}], disabled: [{name: PrioritySort}]}\n"
        "    bind: {enabled: [{name: Faulty}, {name: DefaultBinder}], disabled: [{name: '*'}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- name: Faulty\n  endpoint: {endpoint}\n  required: true\n  transport: {transport}\n"
        f"  points:\n{deadlines}"
    )


class FaultyProcess(PluginProcess):
    """The process, which is started again whenever it is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "p.sock", environment={"BERTH_FAULTS": str(folder)})
        self.folder = folder
        self.starts = 0
        self._keeper: asyncio.Task[None] | None = None

    def command(self) -> list[str]:
        return [sys.executable, "-m", "support.faulty_plugin", "--listen", self.endpoint]

    async def launch(self) -> None:
        await super().launch()
        self.starts += 1

    async def start(self) -> None:
        await super().start()
        self._keeper = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        while True:
            await self.ended()
            await self.launch()

    async def stop(self) -> None:
        """For good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.kill()

    def arm(self, rpc: str, kind: str) -> None:
        """Make the next `rpc` fail."""
        part = self.folder / "armed.part"
        part.write_text(f"{rpc} {kind}")
        part.rename(self.folder / "armed")

    @property
    def fired(self) -> list[str]:
        """What went wrong so far."""
        path = self.folder / "fired"
        return path.read_text().splitlines() if path.exists() else []

    def journal(self) -> list[list[str]]:
        """Return the actions of the plugin: (action, cycle, pod)."""
        path = self.folder / "journal"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class Trial:
    """One world with one faulty plugin."""

    def __init__(self, world: World, process: FaultyProcess, pod_count: int) -> None:
        self.world = world
        self.host = world.host
        self.process = process
        self.pod_count = pod_count
        self._stimuli = 0
        self._refused_s = 0.0

    async def run(self, rpc: str, kind: str) -> None:
        """Let one fault happen, and wait until the host has got over it."""
        fired = len(self.process.fired)
        self.process.arm(rpc, kind)
        # Ends of cycles go in a call of their own only when no other call comes by meanwhile.
        pause_s = 3 * IDLE_END_S if rpc == "EndCycles" else 1.0
        await self.until(lambda: len(self.process.fired) > fired, lambda: self.stimulate(rpc), pause_s)
        assert self.process.fired[-1] == f"{rpc} {kind}"
        await self.until(self.is_attached, self.revive)

    async def stimulate(self, rpc: str) -> None:
        """Give the host a reason for the call."""
        self._stimuli += 1
        name = f"s{self._stimuli:04}"
        if rpc in ("Handshake", "Configure", "SyncState", "Reconcile"):
            # One that is not attached is on its way to the call: ended again, it would never get there.
            if self.is_attached():
                await self.process.kill()
        elif rpc == "Unreserve":
            self.world.server.create(pod(name, labels={"faulty": "refused-once"}))
        elif rpc == "PostFilter":
            self.world.server.create(pod(name, labels={"faulty": "unfit"}))
        elif rpc == "SimulateFilter":
            self.world.server.create(pod(f"{name}a", labels={"faulty": "nominated"}, priority=10))
            self.world.server.create(pod(f"{name}b"))
        elif rpc == "QueueingHints":
            self.world.server.create(pod(name, labels={"faulty": "unfit"}))
            change = {"metadata": {"labels": {"turn": str(self._stimuli)}}}
            await self.world.cluster.patch("nodes", ObjectRef(name="n1"), change)
        elif rpc != "Probe":
            self.world.server.create(pod(name))

    async def revive(self) -> None:
        """Replace a refused instance by one that is not refused yet."""
        if self.place.state is State.REJECTED and self.place.since_s != self._refused_s:
            self._refused_s = self.place.since_s
            await self.process.kill()

    @property
    def place(self) -> Any:
        (place,) = self.host.attachments.attached_places.places
        return place

    def is_attached(self) -> bool:
        return self.place.state is State.ACTIVE and not self.place.reason

    async def until(self, condition: Any, stimulus: Any = None, pause_s: float = 1.0) -> None:
        """Wait in real time, a second of the host's clock every now and then, with stimuli in between."""
        ends_s = time.monotonic() + PATIENCE_S
        next_stimulus_s = 0.0
        while not condition():
            assert time.monotonic() < ends_s, (
                f"{self.place.state} {self.place.reason} {self.process.fired[-3:]}"
            )
            self.host.check()
            if stimulus is not None and time.monotonic() > next_stimulus_s:
                await stimulus()
                next_stimulus_s = time.monotonic() + pause_s
            self.world.clock.advance(0.5)
            await asyncio.sleep(0.02)

    async def finish(self) -> None:
        """Let everything through, and wait until nothing is left to do."""
        (self.process.folder / "armed").unlink(missing_ok=True)
        (self.process.folder / "release").touch()
        await self.until(self.is_attached, self.revive)
        for item in self.world.server.list("pods"):
            if item.get("metadata.labels.faulty") in ("unfit", "nominated"):
                change = {"metadata": {"labels": {"open": "yes"}}}
                await self.world.cluster.patch("pods", item.ref, change)
        change = {"metadata": {"labels": {"turn": "last"}}}
        await self.world.cluster.patch("nodes", ObjectRef(name="n1"), change)
        await self.until(self.all_bound, self.let_go)

    async def let_go(self) -> None:
        for waiting in self.host.waiting_pods.list():
            self.host.waiting_pods.allow("Faulty", waiting.pod.uid, waiting.cycle_id)

    def all_bound(self) -> bool:
        busy = len(self.host.binding) or self.host.scheduler.in_cycle is not None
        pods = self.world.server.list("pods")
        return not busy and all(item.get("spec.nodeName") for item in pods)

    # --- what must hold afterwards -------------------------------------------------------------------

    def check_reservations(self) -> None:
        """Check the plugin's history: a bound pod has one reservation left, any other pod none."""
        reserved: set[str] = set()
        given_back: set[str] = set()
        pod_of: dict[str, str] = {}
        for what, cycle_id, uid in self.process.journal():
            (reserved if what == "reserve" else given_back).add(cycle_id)
            pod_of[cycle_id] = uid
        left = Counter(pod_of[cycle_id] for cycle_id in reserved - given_back)
        bound = Counter(item.ref.uid for item in self.world.server.list("pods") if item.get("spec.nodeName"))
        assert left - bound == Counter()
        assert bound - left == Counter()

    async def check_copy(self) -> None:
        """Compare the plugin's table with the host's, at the version of one cycle."""
        table = self.process.folder / "table.json"
        self.world.server.create(pod("look"))
        await self.until(table.exists)
        await self.until(lambda: self.host.scheduler.in_cycle is None)
        nodes = self.host.snapshot.nodes
        mine = {
            view.name: [
                view.pod_count,
                {key: value for key, value in sorted(view.requested.items()) if value},
                sorted(item.uid for item in view.pods),
            ]
            for view in nodes
        }
        theirs = json.loads(table.read_text())
        for row in theirs.values():
            row[1] = {key: value for key, value in row[1].items() if value}
        assert theirs == mine


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments that try again at once, and look every few hundredths of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.2)
    monkeypatch.setattr(probing, "PROBE_S", 1.0)
    monkeypatch.setattr(probing, "TICK_S", 0.05)
    monkeypatch.setattr(retrying, "REJECTED_LOOK_S", 0.05)
    monkeypatch.setattr(identity_calls, "HANDSHAKE_S", 2.0)
    monkeypatch.setattr(identity_calls, "CONFIGURE_S", 2.0)
    monkeypatch.setattr(attachment, "SYNC_BUDGET_S", 3.0)
    monkeypatch.setattr(reconciling, "RECONCILE_S", 1.0)
    monkeypatch.setattr(attachment, "DRAIN_GRACE_S", 2.0)
    # Each fault in turn, at one instance if it lives: quarantine would hide those that follow.
    for limit in ("VIOLATIONS", "DRIFTS"):
        monkeypatch.setattr(failure_record, limit, 10**6)


@contextlib.asynccontextmanager
async def trial(folder: Path, pod_count: int, transport: str = "framed") -> AsyncIterator[Trial]:
    process = FaultyProcess(folder)
    await process.start()
    held = [pod(f"h{i:03}", labels={"faulty": "held"}, cpu="1m") for i in range(pod_count)]
    objects = [*(node(f"n{i}", cpu="400", pods="2000") for i in range(NODES)), *held]
    try:
        async with World(objects, configuration=configuration(process.endpoint, transport)) as world:
            made = Trial(world, process, pod_count)
            await made.until(lambda: len(world.host.waiting_pods) == pod_count)
            yield made
    finally:
        await process.stop()


def test_faults_cover_every_call_of_the_contract() -> None:
    services = (
        identity_pb2.DESCRIPTOR.services_by_name["IdentityService"],
        queue_pb2.DESCRIPTOR.services_by_name["QueueService"],
        scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"],
        state_pb2.DESCRIPTOR.services_by_name["StateService"],
    )
    calls = {method.name for service in services for method in service.methods}
    assert set(INVALID) == calls
    assert {call.rpc for call in CALLS} <= set(INVALID)
    assert {rpc for rpc, _ in FAULTS} == set(INVALID) - {"Drain", *OF_GROUPS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pod_count", "transport", "every"),
    [
        (1, "framed", EVERY),
        pytest.param(1, "unary", 1, marks=pytest.mark.long),
        pytest.param(200, "framed", 1, marks=pytest.mark.long),
    ],
)
async def test_host_survives_every_fault_at_every_call(
    tmp_path: Path, impatient: None, pod_count: int, transport: str, every: int
) -> None:
    faults = FAULTS[::every]
    async with trial(tmp_path, pod_count, transport) as run:
        for rpc, kind in faults:
            await run.run(rpc, kind)
        assert run.process.fired == [f"{rpc} {kind}" for rpc, kind in faults]
        await run.finish()
        assert run.world.everything_is_accounted_for()
        run.check_reservations()
        await run.check_copy()
        assert run.world.host.plugin_stats()["Faulty"].violations > len(faults) // 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["die", "hang", "invalid"])
async def test_host_stops_whatever_the_plugin_does_with_drain(
    tmp_path: Path, impatient: None, kind: str
) -> None:
    async with trial(tmp_path, 1) as run:
        (tmp_path / "release").touch()
        await run.until(run.all_bound, run.let_go)
        run.process.arm("Drain", kind)
    assert run.process.fired == [f"Drain {kind}"]
