"""A whole host beside an extender that spoils the answers of one verb: its JSON, bytes, head or connection.

Pods come all the time. The host lives, and when the extender is honest again every pod gets a node, exactly
once; no reservation, task or connection is left. The number of answers in `make soak`: `support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from typing import Any, Final

import pytest
from berth_host.errors.cluster import ClusterError
from berth_sdk.kube_object import ObjectRef
from support.accidents import no_accidents
from support.fuzzing import share
from support.hosts import World, node, pod
from support.raw_http import RawServer, Request, answer, raw_server
from support.spoilt_answers import spoilt

Json = dict[str, Any]
VERBS: Final = ("filter", "prioritize", "preempt", "bind")
NODES: Final = ("n0", "n1", "n2", "n3")
TIMEOUT: Final = "500ms"
LATE: Final = 2
"""The number of answers in a storm that come after TIMEOUT."""
SHARE: Final = 0.7
AT_ONCE: Final = 6
PATIENCE_S: Final = 120.0
TICK_S: Final = 0.002


class BadExtender:
    """An extender that spoils most answers of one verb. `count`: the spoilt answers so far."""

    def __init__(self, verb: str, seed: int) -> None:
        self.server: RawServer
        self.world: World
        self.verb = verb
        self.spoils = True
        self.count = 0
        self.last = b""
        self._rng = random.Random(seed)

    def configuration(self) -> str:
        verbs = "".join(f"{verb}Verb: {verb}, " for verb in VERBS)
        return (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "podMaxBackoffSeconds: 2\n"
            f"extenders: [{{urlPrefix: '{self.server.url}', {verbs}nodeCacheCapable: true, weight: 1,"
            f" httpTimeout: {TIMEOUT}}}]\n"
        )

    async def answering(self, request: Request) -> bytes | None:
        verb = request.line.rpartition("/")[2]
        if verb not in VERBS:  # a redirect of a spoilt answer
            return answer(status=404)
        if verb != self.verb or not self.spoils or self._rng.random() > SHARE:
            return answer(json.dumps(self._honest(verb, request.json)))
        self.count += 1
        if verb == "bind" and self._rng.random() < 0.5:
            # It does something else than it says.
            self._bind(request.json, self._rng.choice((None, request.json["Node"], *NODES)))
        if self.count % 40 == 1 and self.count < 40 * LATE:
            await asyncio.sleep(0.6)
        made = spoilt(self._example(verb, request.json), self._rng)
        self.last = made or b""
        return made

    def _honest(self, verb: str, body: Json) -> Any:
        if verb == "bind":
            return {"Error": self._bind(body, body["Node"])}
        return self._example(verb, body)

    def _example(self, verb: str, body: Json) -> Any:
        if verb == "filter":
            names = body["NodeNames"]
            return {"NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
        if verb == "prioritize":
            return [{"Host": name, "Score": 5} for name in body["NodeNames"]]
        if verb == "preempt":
            return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}
        return {"Error": ""}

    def _bind(self, body: Json, node_name: str | None) -> str:
        """Bind the pod; return the error. None: do not."""
        if node_name is not None:
            ref = ObjectRef(namespace=body["PodNamespace"], name=body["PodName"])
            try:
                self.world.server.bind(ref, node_name)
            except ClusterError as err:
                return str(err)
        return ""


class Storm:
    """Pods that come to a host beside such an extender."""

    def __init__(self, extender: BadExtender) -> None:
        self.extender = extender
        self.preempts = extender.verb == "preempt"
        self.created = self._steps = 0
        self.bindings: Counter[str] = Counter()
        self.world = extender.world = World(
            [node(name, cpu="1" if self.preempts else "4000", pods="100000") for name in NODES],
            configuration=extender.configuration(),
        )
        self._count_bindings()

    def _count_bindings(self) -> None:
        bind = self.world.server.bind

        def counted(ref: ObjectRef, node_name: str) -> Any:
            stored = bind(ref, node_name)
            self.bindings[ref.name] += 1
            return stored

        self.world.server.bind = counted  # type: ignore[method-assign]

    def pending(self) -> list[str]:
        return [item.ref.name for item in self.world.server.list("pods") if not item.get("spec.nodeName")]

    async def step(self) -> None:
        """Change a node, so that rejected pods are tried again, and let time pass.

        The time: TICK_S of real time, and two seconds of the host's clock.
        """
        self._steps += 1
        first, cpu = ObjectRef(name=NODES[0]), ("1", "1010m")[self._steps % 2]
        if self.preempts:
            self.world.server.patch(
                "nodes", first, {"status": {"allocatable": {"cpu": cpu}}}, subresource="status"
            )
        else:
            self.world.server.patch("nodes", first, {"metadata": {"labels": {"step": str(self._steps)}}})
        self.world.host.check()
        self.world.clock.advance(2.0)
        await asyncio.sleep(TICK_S)

    def make_room(self) -> None:
        """Delete the pods that were placed, each of which was bound once."""
        for item in self.world.server.list("pods"):
            if item.get("spec.nodeName") and item.ref.name.startswith("p"):
                assert self.bindings[item.ref.name] == 1, item.ref.name
                self.world.server.delete("pods", item.ref)

    def fill(self) -> None:
        """Put a pod of low priority on every empty node."""
        taken = {item.get("spec.nodeName") for item in self.world.server.list("pods")}
        for name in NODES:
            if name not in taken:
                self.created += 1
                self.world.server.create(pod(f"low{self.created}", cpu="900m", nodeName=name, priority=1))

    async def blow(self, answers: int) -> None:
        """Create pods until `answers` answers were spoilt."""
        ends_s = time.monotonic() + PATIENCE_S + answers / 5
        while self.extender.count < answers:
            assert time.monotonic() < ends_s, (self.extender.count, self.pending(), self.extender.last[:200])
            self.make_room()
            if self.preempts:
                self.fill()
            most = len(NODES) if self.preempts else AT_ONCE
            for _ in range(most - len(self.pending())):
                self.created += 1
                cpu, priority = ("900m", 9) if self.preempts else ("100m", 0)
                self.world.server.create(pod(f"p{self.created}", cpu=cpu, priority=priority))
            await self.step()

    async def calm(self) -> None:
        """Make the extender honest, and check that every pod gets a node."""
        self.extender.spoils = False
        ends_s = time.monotonic() + PATIENCE_S
        while self.pending() or len(self.world.host.binding):
            waiting = [(name, self.world.message_of(name)) for name in self.pending()]
            assert time.monotonic() < ends_s, waiting
            if self.preempts:
                self.make_room()
            await self.step()


async def survives(verb: str, answers: int) -> None:
    """Run a storm of so many bad answers to a verb, and check what is left."""
    before = asyncio.all_tasks(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    extender = BadExtender(verb, seed=29)
    async with raw_server(extender.answering) as extender.server:
        storm = Storm(extender)
        with no_accidents():
            async with storm.world as world:
                await storm.blow(answers)
                await storm.calm()
                await world.settle()
                assert world.everything_is_accounted_for()
                assert world.host.cache.assumed_count == 0
                assert len(world.host.waiting_pods) == 0
                storm.make_room()
        assert set(storm.bindings.values()) == {1}
    figures = dict(world.host.plugin_stats()[f"extender {extender.server.address}"].items())[verb]
    assert figures.failed >= answers / 3
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before[0]
    assert len(os.listdir("/proc/self/fd")) <= before[1]  # noqa: PTH208


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
async def test_host_survives_bad_answers_of_an_extender(verb: str) -> None:
    await survives(verb, 50)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS)
async def test_host_survives_a_thousand_bad_answers_of_an_extender(verb: str) -> None:
    await survives(verb, max(1000, share(0.02)))


@pytest.mark.parametrize("seed", range(20))
def test_spoilt_answers_are_bytes_and_repeat_with_their_seed(seed: int) -> None:
    honest = {"NodeNames": ["n0", "n1"], "Error": ""}
    first, second = ([spoilt(honest, random.Random(seed)) for _ in range(3)] for _ in range(2))
    assert first == second
    assert honest == {"NodeNames": ["n0", "n1"], "Error": ""}
