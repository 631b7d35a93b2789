"""A whole host beside a plugin at every point that spoils a third of its answers, whatever they are about.

Pods come all the time. No task of the host may end in an error, no cycle take more than its budget, and when
the plugin is honest again every pod gets its node. The number of answers: `support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.attach import keeper, retrying
from berth_host.explain.diagnosis import Diagnosis
from berth_host.rpc import conduct
from berth_host.rpc.served import outbox
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import identity_pb2
from support.accidents import no_accidents
from support.fuzzing import share
from support.honest_answers import NAME, HonestAnswers
from support.hosts import World, node, pod
from support.lying_channel import REPLIES
from support.mutations import spoilt
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
)
NODES: Final = tuple(f"n{i}" for i in range(4))
SPOILT: Final = frozenset(REPLIES) - {"Handshake", "Configure", "Drain"}
"""Not those of attachments: a refused instance would not come back."""
SHARE: Final = 1 / 3
MOST: Final = 3 / len(SPOILT)
"""The greatest part that one call has in all that were spoilt: some are made much more often than others."""
BUDGET_S: Final = 2.0
AT_ONCE: Final = 6
PATIENCE_S: Final = 120.0
TICK_S: Final = 0.002


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
    """`spoils`: whether it does so now. `counts`: the spoilt answers by call."""

    def __init__(self, seed: int) -> None:
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
        ]
        asks = identity_pb2.EventInterest(
            resource="Node", actions=["update.labels"], hint=identity_pb2.EventInterest.HINT_ASK_PLUGIN
        )
        how = identity_pb2.SCORE_NORMALIZATION_RPC
        super().__init__(descriptor(NAME, *points, normalization=how, events=[asks]))
        self.spoils = True
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
        """Whether to spoil it: each call soon once, and none too often."""
        if not self.counts[rpc]:
            return True
        return self._rng.random() < SHARE and self.counts[rpc] <= MOST * self.counts.total()


class Storm:
    """Pods that come to a host beside such a plugin."""

    def __init__(self, path: Path, seed: int) -> None:
        self.plugin = SpoilingPlugin(seed)
        self.longest_ms = 0.0
        self.created = self._steps = 0
        self.world = World(
            [node(name, cpu="4000", pods="100000") for name in NODES],
            configuration=configuration(path),
            on_attempt=self._ended,
        )

    def _ended(self, diagnosis: Diagnosis) -> None:
        self.longest_ms = max(self.longest_ms, diagnosis.cycle_ms)

    def pending(self) -> list[str]:
        return [item.ref.name for item in self.world.server.list("pods") if not item.get("spec.nodeName")]

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

    async def blow(self, answers: int) -> None:
        """Create pods until `answers` answers were spoilt, some to each call. Deletes bound pods."""
        ends_s = time.monotonic() + PATIENCE_S + answers / 10
        counts = self.plugin.counts
        while (done := counts.total()) < answers or SPOILT - counts.keys():
            assert time.monotonic() < ends_s, (done, self.pending(), dict(counts))
            for item in self.world.server.list("pods"):
                if item.get("spec.nodeName"):
                    self.world.server.delete("pods", item.ref)
            for _ in range(AT_ONCE - len(self.pending())):
                self.created += 1
                self.world.server.create(pod(f"p{self.created}"))
            await self.step()

    async def calm(self) -> None:
        """Make the plugin honest, and check that every pod gets a node."""
        self.plugin.spoils = False
        ends_s = time.monotonic() + PATIENCE_S
        while self.pending() or len(self.world.host.binding):
            assert time.monotonic() < ends_s, [(name, self.world.message_of(name)) for name in self.pending()]
            await self.step()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_host_survives_any_answer_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(ScriptedPlugin, "features", WAYS[way])
    # A storm is over long before an operator would have started another instance.
    for limit in ("VIOLATIONS", "DRIFTS"):
        monkeypatch.setattr(conduct, limit, 10**6)
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    monkeypatch.setattr(keeper, "PROBE_PERIOD_S", 0.5)
    monkeypatch.setattr(outbox, "IDLE_END_S", 0.001)
    path = tmp_path / "p.sock"
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    storm = Storm(path, seed)
    with no_accidents():
        async with storm.plugin.serving(path), storm.world:
            await storm.blow(share(0.125, len(WAYS)))
            await storm.calm()
            assert storm.world.everything_is_accounted_for()
    assert set(storm.plugin.counts) == SPOILT
    assert storm.longest_ms <= 1000 * BUDGET_S
