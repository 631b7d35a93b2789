"""A plugin with `Reservations` and a `Refresher` is killed often: nothing is given twice or kept."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.kube_object import KubeObject, ObjectRef
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess
from support.seats import SEAT
from support.waiting import until

KILLS = 100
SEATS = 4
PODS = 6
"""The number of pods at a time: some wait for a seat."""
SEED = 20261129


class _Counts(BaseHTTPRequestHandler):
    """Tells the number of seats."""

    def do_GET(self) -> None:
        body = json.dumps(SEATS).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the plugin was killed while it asked
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Counts) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


def configuration(process: PluginProcess, address: str) -> str:
    points = ", ".join(
        f"{point}: {{deadline: 10s}}" for point in ("reserve", "preBind", "postBind", "unreserve")
    )
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    multiPoint: {enabled: [{name: SeatsOfServer}]}\n"
        f"  pluginConfig: [{{name: SeatsOfServer, args: {{server: '{address}'}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- name: SeatsOfServer\n  endpoint: {process.endpoint}\n  points: {{{points}}}\n"
    )


def bound(world: World) -> list[KubeObject]:
    return [item for item in world.server.list("pods") if item.get("spec.nodeName")]


def seats(world: World) -> list[str]:
    """Return the seats of the bound pods. Fails if a pod has none, or two have the same one."""
    found = [item.get("metadata.annotations", {})[SEAT] for item in bound(world)]
    assert len(found) == len(set(found)), found
    return found


async def until_some_are_bound(world: World) -> None:
    """Wait until a pod is bound, for at most ten seconds: on a slow machine a kill would come before it."""
    for _ in range(1000):
        if bound(world):
            return
        await asyncio.sleep(0.01)
        world.clock.advance(0.25)


async def delete(world: World, item: KubeObject) -> None:
    await world.cluster.delete("pods", ObjectRef(namespace="default", name=item.ref.name))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_nothing_is_given_twice_or_kept_over_a_hundred_kills(tmp_path: Path, address: str) -> None:
    rng, number = random.Random(SEED), 0
    process = PluginProcess(tmp_path / "p.sock", "support.seats:SeatsOfServer")
    await process.start()
    try:
        async with World([node("n0"), node("n1")], configuration=configuration(process, address)) as world:
            for _ in range(KILLS):
                while len(world.server.list("pods")) < PODS:
                    world.server.create(pod(f"p{number}"))
                    number += 1
                for item in rng.sample(bound(world), min(len(bound(world)), rng.randint(0, SEATS))):
                    await delete(world, item)
                for _ in range(rng.randint(0, 40)):  # the host works: the kill comes at any step
                    await asyncio.sleep(0.0005)
                    world.clock.advance(0.25)
                if rng.random() < 0.5:
                    await until_some_are_bound(world)
                await process.kill()
                seats(world)
                await process.start()
                seats(world)
            assert number > KILLS // 4, "pods were placed between the kills"
            await until(lambda: world.host.attachments.attached_places.plugins["SeatsOfServer"].is_attached)
            # Every seat can be given again, twice in a row: none is kept.
            for _ in range(2):
                await world.settle()
                for item in world.server.list("pods"):
                    await delete(world, item)
                await world.settle()
                assert not world.host.reservations().get("SeatsOfServer")
                for _ in range(PODS):
                    world.server.create(pod(f"p{number}"))
                    number += 1
                await world.settle()
                assert sorted(seats(world)) == [str(seat) for seat in range(SEATS)]
    finally:
        await process.kill()
