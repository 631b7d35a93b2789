"""A whole host whose plugin asks it back with spoilt requests, each over the real socket.

Every call is answered or refused in words of the contract; no task of the host ends in an error, and when
the plugin lets its pods go every one of them gets its node. The number of requests: `support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from berth_host.handle import rates
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2, scheduling_pb2
from google.protobuf.duration_pb2 import Duration
from support.accidents import no_accidents
from support.fuzzing import share
from support.hosts import World, node, pod
from support.mutations import spoilt
from support.scripted_plugin import ScriptedPlugin, decided, descriptor
from support.waiting import PATIENCE_S

NAME: Final = "Demo"
NODES: Final = tuple(f"n{i}" for i in range(4))
AT_ONCE: Final = 4
SERVICE: Final = handle_pb2.DESCRIPTOR.services_by_name["HandleService"]
REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.OUT_OF_RANGE,
    }
)


def configuration(path: Path) -> str:
    """Demo holds pods at Permit, and may be asked for room."""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{permit: {{enabled: [{{name: {NAME}}}]}}}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- {{name: {NAME}, endpoint: 'unix://{path}', required: true}}\n"
    )


class AskingPlugin(ScriptedPlugin):
    """Every pod waits. `held`: the cycle of each that does, by uid."""

    def __init__(self) -> None:
        needs = [identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY)]
        super().__init__(descriptor(NAME, "PERMIT", handle_client=True, needs=needs))
        self.cycles: dict[str, str] = {}
        self.on("Permit", self._wait)

    def _wait(self, request: Any) -> Any:
        about = request.ctx.pod
        self.cycles[about.summary.ref.uid] = request.ctx.cycle_id
        return scheduling_pb2.PermitResponse(
            ctx=decided(pb.PluginStatus.CODE_WAIT), wait_timeout=Duration(seconds=3600)
        )

    @property
    def granted(self) -> identity_pb2.HandleEndpoint:
        """Target and token of the way back."""
        found: identity_pb2.HandleEndpoint = self.requests("Configure")[-1].handle
        return found


class HonestRequests:
    """A request for each call, about the pods that are held."""

    def __init__(self, rng: random.Random, plugin: AskingPlugin) -> None:
        self._rng = rng
        self._plugin = plugin

    def to(self, rpc: str) -> Any:
        """Return a request that a good plugin would send."""
        message = getattr(handle_pb2, f"{rpc}Request")(plugin=NAME)
        uid, cycle = self._rng.choice(list(self._plugin.cycles.items()) or [("u", "c")])
        fill = getattr(self, f"_{rpc}", None)
        if fill is not None:
            fill(message, uid, cycle)
        return message

    def _DecideWaitingPods(self, message: Any, uid: str, cycle: str) -> None:  # noqa: N802
        message.decisions.add(pod_uid=uid, cycle_id=cycle, verdict=self._rng.randint(1, 2), message="so")

    def _CancelBinding(self, message: Any, uid: str, cycle: str) -> None:  # noqa: N802
        message.items.add(pod_uid=uid, cycle_id=cycle, message="so")

    def _ReadState(self, message: Any, _uid: str, _cycle: str) -> None:  # noqa: N802
        message.nodes.names.append("n1")
        message.needs.add(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY)

    def _RunFilters(self, message: Any, _uid: str, cycle: str) -> None:  # noqa: N802
        message.cycle_id = cycle
        message.scenarios.add()

    def _EvaluatePreemption(self, message: Any, _uid: str, cycle: str) -> None:  # noqa: N802
        message.cycle_id = cycle

    def _RunScores(self, message: Any, _uid: str, cycle: str) -> None:  # noqa: N802
        message.cycle_id = cycle
        message.node_names.extend(NODES)

    def _ListNominatedPods(self, message: Any, _uid: str, _cycle: str) -> None:  # noqa: N802
        message.all_nodes = True

    def _Nominate(self, message: Any, uid: str, _cycle: str) -> None:  # noqa: N802
        message.items.add(pod_uid=uid, mode=self._rng.randint(1, 3), node_name=self._rng.choice(NODES))

    def _Requeue(self, message: Any, uid: str, _cycle: str) -> None:  # noqa: N802
        message.pod_uids.append(uid)

    def _InvalidateSortKeys(self, message: Any, uid: str, _cycle: str) -> None:  # noqa: N802
        message.pod_uids.append(uid)

    def _RecordEvents(self, message: Any, uid: str, _cycle: str) -> None:  # noqa: N802
        event = message.events.add(type="Normal", reason="Held", action="Holding", note="it is held")
        event.regarding.name, event.regarding.namespace, event.regarding.uid = "p1", "default", uid


class Storm:
    """Pods that are held, and requests about them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.plugin = AskingPlugin()
        self.requests = HonestRequests(self.rng, self.plugin)
        self.outcomes: Counter[str] = Counter()
        self.created = 0
        self.world = World(
            [node(name, cpu="4000", pods="100000") for name in NODES], configuration=configuration(path)
        )

    def pending(self) -> list[str]:
        return [item.ref.name for item in self.world.server.list("pods") if not item.get("spec.nodeName")]

    async def step(self) -> None:
        """Pods that were bound go, others come; the host goes on."""
        self.world.host.check()
        self.world.clock.advance(2.0)
        await asyncio.sleep(0)

    def refill(self) -> None:
        for item in self.world.server.list("pods"):
            if item.get("spec.nodeName"):
                self.world.server.delete("pods", item.ref)
        for _ in range(AT_ONCE - len(self.pending())):
            self.created += 1
            self.world.server.create(pod(f"p{self.created}"))

    async def blow(self, count: int) -> None:
        """So many spoilt requests, all calls in turn."""
        granted = self.plugin.granted
        metadata = (("authorization", f"Bearer {granted.token}"),)
        async with grpc.aio.insecure_channel(granted.target) as channel:
            for number in range(count):
                self.refill()
                method = SERVICE.methods[number % len(SERVICE.methods)]
                raw = spoilt(self.requests.to(method.name), self.rng)
                outcome = await self._call(channel, method, raw, metadata)
                assert outcome, (method.name, raw)
                self.outcomes[f"{method.name} {outcome}"] += 1
                await self.step()

    async def _call(self, channel: Any, method: Any, raw: bytes, metadata: Any) -> str:
        """OK, or the code of a refusal; empty for what is neither."""
        path = f"/{SERVICE.full_name}/{method.name}"
        try:
            if method.server_streaming:
                async for _ in channel.unary_stream(path)(raw, metadata=metadata, timeout=PATIENCE_S):
                    pass
            else:
                await channel.unary_unary(path)(raw, metadata=metadata, timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as err:
            return err.code().name if err.code() in REFUSALS else ""
        return "OK"

    async def calm(self) -> None:
        """Every pod is let through, and gets its node."""
        self.plugin.on("Permit", lambda _: scheduling_pb2.PermitResponse(ctx=decided()))
        async with asyncio.timeout(PATIENCE_S):
            while self.pending() or len(self.world.host.binding):
                for uid, cycle_id in self.plugin.cycles.items():
                    self.world.host.waiting_pods.allow(NAME, uid, cycle_id)
                await self.step()


@pytest.mark.slow
async def test_host_survives_any_request_of_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "CALLS_PER_S", 1e9)
    path = tmp_path / "p.sock"
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    storm = Storm(path, seed)
    with no_accidents():
        async with storm.plugin.serving(path), storm.world:
            await storm.blow(share(0.125))
            await storm.calm()
            assert storm.world.everything_is_accounted_for()
    answered = {key.split()[0] for key in storm.outcomes if key.endswith(" OK")}
    assert {"ListWaitingPods", "DecideWaitingPods", "Requeue"} <= answered, storm.outcomes
    assert any(not key.endswith(" OK") for key in storm.outcomes), storm.outcomes
