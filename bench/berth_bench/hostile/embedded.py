"""Measure cases on the embedded cluster, with berth alone: where there is no real API server.

Each case runs in a process of its own, on a fresh cluster. The judge is the embedded cluster's validation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from berth_host.app import HostOptions
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.errors.cluster import ClusterError
from berth_host.model.clock import RealClock
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation

from berth_bench.children import in_child
from berth_bench.hostile.cases import Case, Json, Made, chosen, encoded, in_full
from berth_bench.hostile.cluster import answer_of, following_pod, objects
from berth_bench.hostile.figures import Answer, Attempt, Row, Side, Size
from berth_bench.hostile.judging import longest
from berth_bench.hostile.loop_holds import LoopHolds

_CONFIGURATION: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_PATIENCE_S: Final = 90.0
_CASE_WITHIN_S: Final = 120.0
_LOOK_S: Final = 0.1
_IDLE_SHARE: Final = 0.1


def row(case: Case, run: Size) -> Row:
    """Measure one case in a process of its own. Raises WorkloadError."""
    nodes = run.nodes
    size, reason = asyncio.run(longest(case, nodes, run.most_bytes, _refusal))
    if not size:
        return Row(case=case.name, nodes=nodes, size=0, size_bytes=0, limited_by=reason)
    judged = Row(
        case=case.name,
        nodes=nodes,
        size=size,
        size_bytes=len(encoded(case.make(size, nodes).judged)),
        limited_by=reason,
    )
    work = partial(_measured, judged)
    try:
        return in_child(case.name, work, on_uvloop=False, within_s=_CASE_WITHIN_S)
    except TimeoutError:
        # A loop that is held cannot say so.
        lost = Attempt(cpu_s=_CASE_WITHIN_S, answer=Answer.NONE)
        return replace(judged, berth=Side(attempt=lost, following=lost), hold_s=_CASE_WITHIN_S)


async def _measured(judged: Row) -> Row:
    """Add what the case costs. Must run on asyncio's own loop, whose steps can be measured."""
    (case,) = chosen([judged.case])
    nodes = judged.nodes
    made = case.make(judged.size, nodes)
    with TemporaryDirectory(prefix="berth-hostile-") as folder:
        holds = LoopHolds(Path(folder) / "holds")
        with holds.measured():
            berth = await _side(made, nodes, case.pod_groups, holds)
        hold_s, held_by = holds.longest()
        holds.close()
    return replace(judged, berth=berth, hold_s=hold_s, held_by=held_by)


async def _refusal(content: Json) -> str:
    try:
        server = ApiServer(RealClock())
        for known in objects(1):
            server.create(known)
        server.create(in_full(content))
    except (ClusterError, ValueError, RecursionError) as err:
        return str(err)[-200:] or type(err).__name__
    return ""


async def _side(made: Made, nodes: int, pod_groups: bool, holds: LoopHolds) -> Side:
    server = ApiServer(RealClock())
    for content in objects(nodes):
        server.create(content)
    host = simulation.embedded_host(_configuration(pod_groups), server, HostOptions(clock=RealClock()))
    try:
        await host.start()
        await _idle()
        holds.reset()
        for content in made.before:
            holds.leave_out_step()
            _create(server, content)
            await asyncio.sleep(0)
        await _idle()
        return Side(
            attempt=await _attempt(server, made.pod, holds, made.with_pod),
            following=await _attempt(server, following_pod(), holds),
        )
    finally:
        await host.stop()


def _create(server: ApiServer, content: Json) -> None:
    """Create an object with its status."""
    whole = in_full(content)
    made = server.create(whole)
    if whole["kind"] != "Pod" and "status" in whole and made.get("status") != whole["status"]:
        server.update({**whole, "metadata": made.parsed["metadata"]}, subresource="status")


def _configuration(pod_groups: bool) -> LoadedConfiguration:
    return load_configuration(
        _CONFIGURATION, source="berth bench hostile", feature_gates={"GenericWorkload": pod_groups}
    )


async def _idle() -> None:
    """Wait until the process uses hardly any CPU, or _PATIENCE_S have passed."""
    ends_s = time.monotonic() + _PATIENCE_S
    looks = 0
    while looks < 2 and time.monotonic() < ends_s:
        cpu_s = time.process_time()
        await asyncio.sleep(_LOOK_S)
        looks = looks + 1 if time.process_time() - cpu_s <= _IDLE_SHARE * _LOOK_S else 0


async def _attempt(
    server: ApiServer, content: Json, holds: LoopHolds, others: Sequence[Json] = ()
) -> Attempt:
    """Measure a pod; `others`: pods that are created just before it."""
    ends_s = time.monotonic() + _PATIENCE_S
    holds.leave_out_step()
    for other in others:
        server.create(in_full(other))
    made = server.create(in_full(content))
    began_s = time.process_time()
    while True:
        await _idle()
        cpu_s = time.process_time() - began_s
        found = server.get("pods", made.ref)
        answer = answer_of({} if found is None else dict(found.parsed))
        if not answer.is_missing or time.monotonic() > ends_s:
            return Attempt(cpu_s=cpu_s, answer=answer)
