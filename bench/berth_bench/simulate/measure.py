"""Measure one question about many pods on many templates, beside as many what-ifs one by one.

Both ask the default plugins and one served plugin, which answers from a process of its own. The question
travels over gRPC on loopback; the client is in the host's process, and its CPU time counts. The what-ifs are
those of `Handle.run_filters`, asked in the host's process, without the call that a plugin would make.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
import yaml
from berth_host.app import FrameworkAlone, Host, HostOptions, WhatIf
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.endpoints.query_server import QueryServer
from berth_host.endpoints.query_service import OpenGate, QueryService
from berth_host.model.clock import RealClock
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.query.v1 import query_pb2 as pb
from berth_sdk.query.v1.query_pb2_grpc import QueryServiceStub
from berth_sdk.scenarios import Scenario
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation

from berth_bench.running import WorkloadError
from berth_bench.simulate import plugins
from berth_bench.versus.objects import Json, node, pod

TEAMS: Final = 5
SIZES: Final = 4
"""The number of different CPU requests of the pods, and of different sizes of the templates."""
EXISTING: Final = 100
"""The number of nodes of the cluster, beside the template nodes that do not exist."""
NODES_EACH: Final = 20
"""The nodes of each template where the pods take room."""
_PLUGIN: Final = plugins.OwnTeam.__name__
_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one way of asking.

    `verdicts`: answers about a pod on the nodes of a template. `cpu_s`: of the host's process.
    `plugin_calls`: calls to the served plugin, all points together.
    """

    verdicts: int
    wall_s: float
    cpu_s: float
    plugin_calls: int

    @property
    def verdict_ms(self) -> float:
        """Milliseconds for one verdict."""
        return 1000 * self.wall_s / self.verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The results. `together`: one question, each pod by itself; `one_by_one`: a what-if for each verdict;
    `placed`: one question in which pods take room, with `placed_count` of them placed on `used_count` nodes.
    `held_s`: how long scheduling was held up by `together`, in `slices` parts.
    """

    pods: int
    templates: int
    together: Cost
    one_by_one: Cost
    placed: Cost
    placed_count: int
    used_count: int
    slices: int
    held_s: float

    @property
    def ratio(self) -> float:
        """The time of one verdict in one question, divided by that of a what-if; less is better."""
        return round(self.together.verdict_ms / self.one_by_one.verdict_ms, 4)


async def measure(pods: int, templates: int, calls: int) -> Figures:
    """Ask about `pods` on `templates`; at most `calls` what-ifs one by one. Raises WorkloadError."""
    configuration = load_configuration(_configuration(), source="berth bench simulate")
    asked = [_pod(number) for number in range(pods)]
    shapes = [_template(number) for number in range(templates)]
    async with _asking(configuration) as (host, stub):
        await _warm(stub)
        together, answers, alone_summary = await _ask(host, stub, asked, shapes, 1, each_alone=True)
        placed, _, summary = await _ask(host, stub, asked, shapes, NODES_EACH, fills_used_nodes=True)
    fits = {(answer.index, verdict.template) for answer in answers for verdict in answer.verdicts}
    if len(fits) != pods * templates:
        raise WorkloadError(f"simulate: {len(fits)} of {pods * templates} verdicts were answered")
    fitting = {
        (answer.index, verdict.template): verdict.fitting_count == 1
        for answer in answers
        for verdict in answer.verdicts
    }
    one_by_one = await _what_ifs(configuration, asked, shapes, calls, fitting)
    return Figures(
        pods=pods,
        templates=templates,
        together=together,
        one_by_one=one_by_one,
        placed=placed,
        placed_count=summary.placed_count,
        used_count=sum(use.used_count for use in summary.templates),
        slices=alone_summary.slice_count,
        held_s=alone_summary.held.ToMicroseconds() / 1e6,
    )


def _configuration() -> str:
    """Return the default plugins and the served one, with deadlines that a busy machine keeps."""
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": _PLUGIN}]}}}],
    }
    served = [sys.executable, "-m", "berth_sdk", "serve", f"{plugins.__name__}:{_PLUGIN}"]
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "cycleBudget": "60s",
        "plugins": [
            {
                "name": _PLUGIN,
                "command": served,
                "required": True,
                "points": {"filter": {"deadline": "10s", "policy": "Fail"}},
            }
        ],
    }
    return yaml.safe_dump_all([scheduler, own])


@asynccontextmanager
async def _asking(configuration: LoadedConfiguration) -> AsyncIterator[tuple[Host, Any]]:
    """Yield a host on an embedded cluster, and a stub of its query service."""
    server = ApiServer(RealClock())
    for number in range(EXISTING):
        server.create(node(f"node-{number}", zone=f"z{number % 3}"))
    host = simulation.embedded_host(configuration, server, HostOptions(clock=RealClock()))
    process = _Process(host)
    query = QueryServer(lambda: QueryService(process, OpenGate(), answer_s=3600.0))
    try:
        async with asyncio.timeout(_WITHIN_S):
            await host.start()
        await query.start("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{query.port}") as channel:
            yield host, QueryServiceStub(channel)
    finally:
        await query.stop()
        await host.stop()


@dataclass(frozen=True, slots=True)
class _Process:
    host: Host
    is_connected: bool = True
    is_leading: bool = True


async def _warm(stub: Any) -> None:
    """Ask once, so that the first call's imports and the plugin's copy of the nodes are not measured."""
    request = pb.SimulateRequest(pods=[_bytes(_pod(0))], templates=[_wire(0, _template(0), 1)])
    async for _ in stub.Simulate(request):
        pass


async def _ask(
    host: Host, stub: Any, pods: Sequence[Json], shapes: Sequence[Json], count: int, **more: Any
) -> tuple[Cost, list[pb.PodAnswer], pb.Summary]:
    request = pb.SimulateRequest(
        pods=[_bytes(one) for one in pods],
        templates=[_wire(number, one, count) for number, one in enumerate(shapes)],
        only_templates=True,
        all_verdicts=True,
        **more,
    )
    calls = _calls(host)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    messages = [message async for message in stub.Simulate(request)]
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    cost = Cost(
        verdicts=len(pods) * len(shapes),
        wall_s=wall_s,
        cpu_s=cpu_s,
        plugin_calls=_calls(host) - calls,
    )
    return cost, [answer for message in messages for answer in message.pods], messages[-1].summary


def _calls(host: Host) -> int:
    return sum(figures.calls for _, figures in host.plugin_stats()[_PLUGIN].items())


async def _what_ifs(
    configuration: LoadedConfiguration,
    pods: Sequence[Json],
    shapes: Sequence[Json],
    most: int,
    fitting: dict[tuple[int, str], bool],
) -> Cost:
    """Ask one by one, and compare each answer with the one of the question. Raises WorkloadError."""
    alone = FrameworkAlone(configuration)
    for number in range(EXISTING):
        alone.add_node(Node.from_object(node(f"node-{number}", zone=f"z{number % 3}")))
    records = [Pod.from_object(one) for one in pods]
    nodes = [Node.from_object(one) for one in shapes]
    pairs = [(at, number) for at in range(len(pods)) for number in range(len(shapes))][:most]
    async with alone:
        await alone.ask(WhatIf(records[0], [Scenario(node=nodes[0])]))
        stats = next(client for client in alone.framework.clients if client.name == _PLUGIN).stats
        calls = sum(figures.calls for _, figures in stats.items())
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for at, number in pairs:
            (verdict,) = await alone.ask(WhatIf(records[at], [Scenario(node=nodes[number])]))
            if verdict.is_success != fitting[at, str(number)]:
                raise WorkloadError(
                    f"simulate: {records[at].key} on template {number}: the what-if says"
                    f" {verdict.message or 'fits'!r}, the question the opposite"
                )
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        calls = sum(figures.calls for _, figures in stats.items()) - calls
    return Cost(verdicts=len(pairs), wall_s=wall_s, cpu_s=cpu_s, plugin_calls=calls)


def _pod(number: int) -> Json:
    made = pod(f"pod-{number}", cpu=f"{250 + 500 * (number % SIZES)}m")
    made["metadata"]["labels"] = {plugins.LABEL: f"t{number % TEAMS}"}
    made["metadata"]["uid"] = f"uid-{number}"
    return made


def _template(number: int) -> Json:
    labels = {plugins.LABEL: f"t{number % TEAMS}"} if number % 2 else {}
    return node(f"template-{number}", cpu=str(1 + number % SIZES), zone=f"z{number % 3}", **labels)


def _wire(number: int, shape: Json, count: int) -> pb.NodeTemplate:
    return pb.NodeTemplate(name=str(number), node=_bytes(shape), count=count)


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
