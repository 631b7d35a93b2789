"""A whole host beside a plugin at every point that spoils a third of its answers, whatever they are about.

Pods and pod groups come all the time. No task of the host may end in an error, the calls of a cycle take no
more than its budget, and when the plugin is honest again, every pod gets its node. The number of answers:
`support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.attach import probing, retrying
from berth_host.attempt.call_record import CycleRecord
from berth_host.groups.group_status import POD_GROUPS
from berth_host.rpc import failure_record
from berth_host.rpc.served import outbox
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.plugin.v1 import identity_pb2
from support.accidents import no_accidents
from support.fuzzing import share
from support.groups import GROUPS, members, pod_group
from support.honest_answers import NAME, HonestAnswers
from support.hosts import World, node, pod
from support.mutations import spoilt
from support.raw_channel import REPLIES
from support.scripted_plugin import WAYS, ScriptedPlugin, descriptor

POINTS: Final = (
    "preEnqueue",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "postBind",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
    "multiPoint",  # for PlacementFeasible, which has no list
)
NODES: Final = tuple(f"n{i}" for i in range(4))
SPOILT: Final = frozenset(REPLIES) - {"Handshake", "Configure", "Drain"}
"""Not those of attachments: a refused instance would not come back."""
SHARE: Final = 1 / 3
LATER_SHARE: Final = 1 / 12
"""The share once enough answers are spoilt, but not of each call: the calls behind the others come up, and
attachments still break, which some calls follow.
"""
MOST: Final = 3 / len(SPOILT)
"""The greatest part that one call has in all that were spoilt: some are made much more often than others."""
BUDGET_S: Final = 2.0
LATE_S: Final = 1.0
"""How late a busy machine may notice that the last call has had its time."""
AT_ONCE: Final = 6
"""The number of pods without a group that are pending, and of groups `GROUPS_AT_ONCE`."""
GROUPS_AT_ONCE: Final = 2
GROUP_SIZE: Final = 2
LEAST: Final = 2
"""How often each call is spoilt at least."""
PATIENCE_S: Final = 120.0
TICK_S: Final = 0.01
"""Long enough for the host to finish what a step begins: questions that pile up are answered too late, and
open the breakers.
"""


def configuration(path: Path) -> str:
    """Demo everywhere, optional, with the policies that are the defaults."""
    enabled = "".join(f"    {point}: {{enabled: [{{name: {NAME}}}]}}\n" for point in POINTS)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "podMaxBackoffSeconds: 2\n"
        f"profiles:\n- plugins:\n{enabled}"
        f"    queueSort: {{enabled: [{{name: {NAME}}}], disabled: [{{name: PrioritySort}}]}}\n"
        f"    bind: {{enabled: [{{name: {NAME}}}, {{name: DefaultBinder}}], disabled: [{{name: '*'}}]}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"cycleBudget: {BUDGET_S:g}s\nplugins:\n- name: {NAME}\n  endpoint: unix://{path}\n"
    )


class SpoilingPlugin(ScriptedPlugin):
    """`spoils`: whether it does so now. `counts`: the spoilt answers by call. `enough`: how many to spoil."""

    def __init__(self, seed: int, enough: int) -> None:
        points = [
            "PRE_ENQUEUE",
            "QUEUE_SORT",
            "PRE_FILTER",
            "FILTER",
            "POST_FILTER",
            "PRE_SCORE",
            "SCORE",
            "NORMALIZE_SCORE",
            "RESERVE",
            "PERMIT",
            "PRE_BIND",
            "BIND",
            "POST_BIND",
            "PLACEMENT_GENERATE",
            "PLACEMENT_SCORE",
            "NORMALIZE_PLACEMENT_SCORE",
            "PLACEMENT_FEASIBLE",
            "POD_GROUP_POST_FILTER",
        ]
        asks = identity_pb2.EventInterest(
            resource="Node", actions=["update.labels"], hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN
        )
        how = identity_pb2.SCORE_NORMALIZATION_RPC
        super().__init__(descriptor(NAME, *points, normalization=how, events=[asks]))
        self.spoils = True
        self.enough = enough
        self.counts: Counter[str] = Counter()
        self.last: tuple[str, bytes] = ("", b"")
        self._rng = random.Random(seed)
        pods: dict[str, list[Any]] = {name: [] for name in NODES}
        self._bold, self._mild = (
            HonestAnswers(self._rng, pods, normalization=ScoreNormalization.RPC, keeps_out=share)
            for share in (0.2, 0.0)
        )
        for rpc in SPOILT:
            self.on(rpc, self._answering(rpc))

    def _answering(self, rpc: str) -> Any:
        def answer(request: Any) -> Any:
            asked = [request] if rpc == "Reconcile" else request  # its pages come as one
            honest = (self._bold if self.spoils else self._mild).to(rpc, asked)
            if rpc == "Probe":
                honest.instance_id = self.instance_id
            if not self.spoils or not self._has_its_turn(rpc):
                return honest
            self.counts[rpc] += 1
            raw = spoilt(honest, self._rng)
            self.last = (rpc, raw)
            return raw

        return answer

    def _has_its_turn(self, rpc: str) -> bool:
        """Return True if this answer is to be spoilt: each call soon LEAST times, and none too often."""
        total = self.counts.total()
        if self.counts[rpc] < LEAST:
            return True
        part = SHARE if total < self.enough else LATER_SHARE
        return self._rng.random() < part and self.counts[rpc] <= MOST * total

    @property
    def has_enough(self) -> bool:
        """True if enough answers were spoilt, and enough to each call."""
        return self.counts.total() >= self.enough and all(self.counts[rpc] >= LEAST for rpc in SPOILT)


class Storm:
    """Pods that come to a host beside such a plugin."""

    def __init__(self, path: Path, seed: int, answers: int) -> None:
        """Prepare it. `answers`: how many to spoil."""
        self.plugin = SpoilingPlugin(seed, answers)
        self.created = self._steps = 0
        self.world = World(
            [node(name, cpu="4000", pods="100000") for name in NODES],
            configuration=configuration(path),
            gates=GROUPS,
        )

    def _pods(self) -> list[KubeObject]:
        return list(self.world.server.list("pods"))

    def pending(self) -> list[str]:
        return [item.ref.name for item in self._pods() if not item.get("spec.nodeName")]

    async def step(self) -> None:
        """Change a label of a node, so that the host calls the plugin's hint, and let time pass.

        The time: TICK_S of real time, and two seconds of the host's clock.
        """
        self._steps += 1
        label = {"metadata": {"labels": {"step": str(self._steps)}}}
        self.world.server.patch("nodes", ObjectRef(name=NODES[0]), label)
        self.world.host.check()
        self.world.clock.advance(2.0)
        await asyncio.sleep(TICK_S)

    def create(self) -> None:
        """Create what is missing of the pods and gangs that are pending at once."""
        pending = [group_of(item) for item in self._pods() if not item.get("spec.nodeName")]
        for _ in range(AT_ONCE - pending.count("")):
            self.created += 1
            self.world.server.create(pod(f"p{self.created}"))
        for _ in range(GROUPS_AT_ONCE - len(set(pending) - {""})):
            self.created += 1
            name = f"g{self.created}"
            for item in (pod_group(name, least=GROUP_SIZE), *members(name, GROUP_SIZE, cpu="100m")):
                self.world.server.create(item)

    def delete_placed(self) -> None:
        """Delete the bound pods; those of a gang, and the gang, when all of them are bound."""
        pods = self._pods()
        incomplete = {group_of(item) for item in pods if not item.get("spec.nodeName")} - {""}
        for item in pods:
            if item.get("spec.nodeName") and group_of(item) not in incomplete:
                self.world.server.delete("pods", item.ref)
        for group in {group_of(item) for item in pods} - incomplete - {""}:
            self.world.server.delete(POD_GROUPS, ObjectRef(namespace="default", name=group))

    async def blow(self) -> None:
        """Create pods until enough answers were spoilt, some to each call. Deletes placed pods."""
        plugin = self.plugin
        ends_s = time.monotonic() + PATIENCE_S + plugin.enough / 10
        while not plugin.has_enough:
            missing = sorted(rpc for rpc in SPOILT if plugin.counts[rpc] < LEAST)
            assert time.monotonic() < ends_s, (missing, self.pending(), dict(plugin.counts))
            self.delete_placed()
            self.create()
            await self.step()

    async def calm(self) -> None:
        """Make the plugin honest, and check that every pod gets a node."""
        self.plugin.spoils = False
        ends_s = time.monotonic() + PATIENCE_S
        while self.pending() or len(self.world.host.binding):
            assert time.monotonic() < ends_s, [(name, self.world.message_of(name)) for name in self.pending()]
            await self.step()


def spent_by_cycles(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets, at the end of each call, the seconds that its cycle's calls took."""
    spent_s: list[float] = []
    call_ends = CycleRecord.served_call_ends

    def call_ends_and_is_noted(record: CycleRecord) -> None:
        call_ends(record)
        if getattr(record, "assumed", False):
            return  # The calls of the binding cycle have deadlines alone.
        while record.payer is not None:
            record = record.payer
        spent_s.append(record.budget_s - record.budget_left_s)

    monkeypatch.setattr(CycleRecord, "served_call_ends", call_ends_and_is_noted)
    return spent_s


def group_of(item: KubeObject) -> str:
    """Return the name of a pod's group; empty for a pod without one."""
    return str(item.get("spec.schedulingGroup.podGroupName") or "")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_host_survives_any_answer_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[way])
    # A storm is over long before an operator would have started another instance.
    for limit in ("VIOLATIONS", "DRIFTS"):
        monkeypatch.setattr(failure_record, limit, 10**6)
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setattr(probing, "PROBE_PERIOD_S", 0.5)
    monkeypatch.setattr(outbox, "IDLE_END_S", 0.001)
    path = tmp_path / "p.sock"
    spent_s = spent_by_cycles(monkeypatch)
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    storm = Storm(path, seed, answers=share(0.125, len(WAYS)))
    with no_accidents():
        async with storm.plugin.serving(path), storm.world:
            await storm.blow()
            await storm.calm()
            assert storm.world.everything_is_accounted_for()
    assert set(storm.plugin.counts) == SPOILT
    assert max(spent_s) <= BUDGET_S + LATE_S
