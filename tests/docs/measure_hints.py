"""Measure what the hints of an event cost while many pods wait, no two of which are alike.

    python tests/docs/measure_hints.py [PODS] [claims|domains|room]

The pods wait for a device, each with a claim of its own; for a domain of a spread constraint, each with a
selector of its own; or for room, each with a request of its own. Prints, for each kind of event, the CPU time
of the host per event and the number of pods that stay in the queue. None of the events helps a pod.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.log import configure
from berth_sdk.kube_object import ObjectRef
from support.device_objects import claim, device_class, exactly
from support.hosts import World, node, pod

Json = dict[str, Any]
Step = Callable[[World, int], None]
TIMES: Final = 10


def _for_claim(number: int) -> Json:
    return pod(f"p{number}", resourceClaims=[{"name": "r", "resourceClaimName": f"c{number}"}])


def _for_domain(number: int) -> Json:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",  # no node has it
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": f"a{number}"}},
    }
    return pod(f"p{number}", topologySpreadConstraints=[constraint], nodeSelector={"disk": "ssd"})


def _for_room(number: int) -> Json:
    return pod(f"p{number}", cpu=f"{64_000 + number}m")


def claim_created(world: World, number: int) -> None:
    """Create a claim of no pod."""
    world.server.create(claim(f"other{number}", exactly()))


def claim_deleted(world: World, number: int) -> None:
    """Delete the claim again."""
    name = f"other{number}"
    world.server.delete("resource.k8s.io/resourceclaims", ObjectRef(namespace="default", name=name))


def pod_deleted(world: World, number: int) -> None:
    """Delete a small pod."""
    world.server.delete("pods", ObjectRef(namespace="default", name=f"bound{number}"))


def node_labelled(world: World, number: int) -> None:
    """Give the node another value of a label that no pod reads."""
    world.server.patch("nodes", ObjectRef(name="n1"), {"metadata": {"labels": {"x": str(number)}}})


def node_grown(world: World, number: int) -> None:
    """Give the node more memory."""
    amounts = {"memory": f"{100 + number}Gi"}
    status = {"status": {"allocatable": amounts, "capacity": amounts}}
    world.server.patch("nodes", ObjectRef(name="n1"), status, subresource="status")


KINDS: Final[dict[str, tuple[Callable[[int], Json], list[Step]]]] = {
    "claims": (_for_claim, [claim_created, claim_deleted, pod_deleted]),
    "domains": (_for_domain, [pod_deleted, node_labelled]),
    "room": (_for_room, [node_labelled, node_grown]),
}
"""By what the pods wait for: the pod of a number, and the events."""


async def _measure(pods: int, kind: str) -> None:
    waiting, steps = KINDS[kind]
    claims = [claim(f"c{number}", exactly()) for number in range(pods)] if kind == "claims" else []
    machine = node("n1", cpu="32", labels={"disk": "ssd"})
    async with World([machine, device_class(), *claims]) as world:
        await world.settle()
        for number in range(pods):
            world.server.create(waiting(number))
        await world.settle()
        for number in range(TIMES):
            world.server.create(pod(f"bound{number}", cpu="1m", nodeName="n1"))
        await world.settle()
        for step in steps:
            started_s = time.process_time()
            for number in range(TIMES):
                step(world, number)
                await world.settle()
            per_event_ms = (time.process_time() - started_s) / TIMES * 1000
            count = len(world.host.queue.places.pool)
            print(f"{step.__name__}: {per_event_ms:.1f} ms per event, {count} pods wait")


if __name__ == "__main__":
    configure("ERROR")
    asyncio.run(
        _measure(
            int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, sys.argv[2] if len(sys.argv) > 2 else "claims"
        )
    )
