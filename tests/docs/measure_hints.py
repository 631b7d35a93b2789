"""Measure what the hints of an event cost while pods wait for devices, each with a claim of its own.

    python tests/docs/measure_hints.py [PODS]

Prints, for each kind of event, the host's CPU time per event and the number of pods that stay in the queue.
None of the events helps a pod.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.log import configure
from berth_sdk.kube_object import ObjectRef
from support.device_objects import claim, device_class, exactly
from support.hosts import World, node, pod

Json = dict[str, Any]
TIMES = 10


def _waiting(number: int) -> Json:
    return pod(f"p{number}", resourceClaims=[{"name": "r", "resourceClaimName": f"c{number}"}])


async def _measure(pods: int) -> None:
    claims = [claim(f"c{number}", exactly()) for number in range(pods)]
    async with World([node("n1", cpu="32"), device_class(), *claims]) as world:
        await world.settle()
        for number in range(pods):
            world.server.create(_waiting(number))
        await world.settle()

        def claim_created(number: int) -> None:
            world.server.create(claim(f"other{number}", exactly()))

        def claim_deleted(number: int) -> None:
            name = f"other{number}"
            world.server.delete("resource.k8s.io/resourceclaims", ObjectRef(namespace="default", name=name))

        def pod_deleted(number: int) -> None:
            world.server.delete("pods", ObjectRef(namespace="default", name=f"bound{number}"))

        for number in range(TIMES):
            world.server.create(pod(f"bound{number}", cpu="1m", nodeName="n1"))
        await world.settle()
        steps: list[Callable[[int], None]] = [claim_created, claim_deleted, pod_deleted]
        for step in steps:
            started_s = time.process_time()
            for number in range(TIMES):
                step(number)
                await world.settle()
            per_event_ms = (time.process_time() - started_s) / TIMES * 1000
            waiting = len(world.host.queue.places.pool)
            print(f"{step.__name__}: {per_event_ms:.1f} ms per event, {waiting} pods wait")


if __name__ == "__main__":
    configure("ERROR")
    asyncio.run(_measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
