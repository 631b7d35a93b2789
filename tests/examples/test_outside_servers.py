"""OutsideLoad and LicencePool with a real HTTP server, under the whole host, in process and served."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench.life.faulty_cluster import Faults
from berth_host.cycle.bound_ends import READ_BACK_S
from berth_sdk import CycleState, LiveReservation, PluginArgsError
from berth_sdk.kube_object import ObjectRef
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.examples import EXAMPLES, example
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess
from support.waiting import PATIENCE_S, until

load: Any = example("outside_load/outside_load.py")
pool: Any = example("licence_pool/licence_pool.py")
WAYS = pytest.mark.parametrize("way", ["in process", "served"])
MAX_LINES = 45


class Outside(ThreadingHTTPServer):
    """Tells `loads` to GET; answers PUT of a path with 202 first, and then with 200. `is_away`: 503 for all.

    `gets`: the number of GETs. `puts`: the number of PUTs by path.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.loads: dict[str, float] = {}
        self.is_away = False
        self.gets = 0
        self.puts: dict[str, int] = {}
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Outside

    def do_GET(self) -> None:
        self._answer(200, json.dumps(self.server.loads).encode())
        self.server.gets += 1

    def do_PUT(self) -> None:
        puts = self.server.puts
        puts[self.path] = puts.get(self.path, 0) + 1
        self._answer(202 if puts[self.path] == 1 else 200, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(503 if self.server.is_away else code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def outside() -> Iterator[Outside]:
    with Outside() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@asynccontextmanager
async def hosted(
    folder: Path, module: str, name: str, way: str, faults: Faults | None = None, **args: Any
) -> AsyncIterator[World]:
    """Yield a host whose profile has this example. `args`: of the plugin."""
    process = PluginProcess(
        folder / "p.sock", f"{module}:{name}", environment={"PYTHONPATH": str(EXAMPLES / module)}
    )
    served = {"endpoint": process.endpoint}
    place = {"inProcess": f"example_{module}:{name}"} if way == "in process" else served
    points = {point: {"deadline": "10s"} for point in ("preScore", "score", "reserve", "unreserve")}
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"multiPoint": {"enabled": [{"name": name, "weight": 100}]}},
                "pluginConfig": [{"name": name, "args": args}],
            }
        ],
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "cycleBudget": "30s",
        "plugins": [{"name": name, **place, "points": points}],
    }
    try:
        if way == "served":
            await process.start()
        text = str(yaml.safe_dump_all([scheduler, own]))
        async with World([node("n0"), node("n1")], configuration=text, faults=faults) as world:
            yield world
    finally:
        await process.kill()


@WAYS
async def test_pods_go_to_the_node_with_the_least_load(tmp_path: Path, outside: Outside, way: str) -> None:
    outside.loads = {"n0": 90, "n1": 10}
    args: dict[str, Any] = {"server": outside.address, "everySeconds": 0.02}
    async with hosted(tmp_path, "outside_load", "OutsideLoad", way, **args) as world:
        await until(lambda: outside.gets >= 2)
        for name in ("a", "b"):
            world.server.create(pod(name))
            await world.settle()
        assert {world.node_of("a"), world.node_of("b")} == {"n1"}
        outside.loads = {"n1": 95}  # n0 has no load that the server knows: as if it were full
        before = outside.gets
        await until(lambda: outside.gets >= before + 2)
        world.server.create(pod("c"))
        await world.settle()
        assert world.node_of("c") == "n1"


def test_load_that_is_not_known_adds_nothing(outside: Outside) -> None:
    outside.is_away = True
    host = PluginHost(load.OutsideLoad, {"server": outside.address}, nodes=[make_node("n1")])
    read = host.runtime.plugin.load  # type: ignore[attr-defined]  # the example's own attribute
    read.refresh()
    attempt = host.attempt(make_pod("web"))
    assert attempt.pre_score().code.name == "SKIP"
    assert "503" in str(read.error)
    outside.is_away, outside.loads = False, {"n1": 130}
    read.refresh()
    assert host.attempt(make_pod("web")).score() == {"n1": 0}
    host.close()
    assert read.is_closed


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(PluginArgsError, match="server: must be the http or https address"):
        PluginHost(load.OutsideLoad, {"server": "load.example.com"})


@WAYS
async def test_each_licence_is_activated_for_one_pod_at_a_time(
    tmp_path: Path, outside: Outside, way: str
) -> None:
    args: dict[str, Any] = {"server": outside.address, "licences": 2}
    async with hosted(tmp_path, "licence_pool", "LicencePool", way, **args) as world:
        for name in ("a", "b", "c"):
            world.server.create(pod(name, labels={"licence": "yes"}))
            await world.settle()
        world.server.create(pod("plain"))
        await world.settle()
        found = {name: world.pod(name) for name in ("a", "b", "c", "plain")}
        held = {name: item and item.get("metadata.annotations", {}) for name, item in found.items()}
        assert held == {
            "a": {pool.LicencePool.KEY: "0"},
            "b": {pool.LicencePool.KEY: "1"},
            "c": {},
            "plain": {},
        }
        assert outside.puts == {"/0": 2, "/1": 2}
        assert "no licence is free" in world.message_of("c")
        assert world.node_of("plain")
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="a"))
        await world.settle()
        assert world.node_of("c")
        assert outside.puts == {"/0": 3, "/1": 2}


@WAYS
async def test_licence_of_a_pod_that_is_deleted_before_its_post_bind_goes_to_the_next_pod(
    tmp_path: Path, outside: Outside, way: str
) -> None:
    """The watch stands still, so that no event of the deleted pod requeues the next one."""
    outside.puts = {"/0": 1}  # active at once
    args: dict[str, Any] = {"server": outside.address, "licences": 1}
    at_once = Faults(turns=0, reorder=False)
    async with hosted(tmp_path, "licence_pool", "LicencePool", way, at_once, **args) as world:
        assert world.faulty is not None
        gate = world.faulty.gate("bind")
        for name in ("first", "next"):
            world.server.create(pod(name, labels={"licence": "yes"}))
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        world.faulty.stand_still()
        gate.open.set()
        await until(lambda: "no licence is free" in world.message_of("next") and bool(world.node_of("first")))
        world.server.delete("pods", ObjectRef(namespace="default", name="first"), grace_period_s=0)
        world.clock.advance(READ_BACK_S)
        await until(lambda: is_bound_after_backoff(world, "next"))
        world.faulty.revive()
        await world.settle()
        held = world.pod("next")
        assert held is not None
        assert held.get("metadata.annotations") == {pool.LicencePool.KEY: "0"}


def test_licence_of_a_cycle_survives_a_restart(outside: Outside) -> None:
    args: dict[str, Any] = {"server": outside.address, "licences": 1}
    before = PluginHost(pool.LicencePool, args, nodes=[make_node("n1")])
    first = before.attempt(make_pod("a", labels={"licence": "yes"}))
    assert first.reserve("n1").is_success
    after = PluginHost(pool.LicencePool, args, nodes=[make_node("n1")])
    state = CycleState(first.state.cycle_id, plugin="LicencePool")
    state.token = first.state.token
    after.runtime.reconcile([LiveReservation(state=state, pod=make_pod("a"), node_name="n1")])
    second = after.attempt(make_pod("b", labels={"licence": "yes"}))
    assert second.reserve("n1").message == "no licence is free"


def is_bound_after_backoff(world: Any, name: str) -> bool:
    """Let the backoff of an attempt that failed meanwhile pass; return True if the pod is bound."""
    world.clock.advance(0.05)
    return bool(world.node_of(name))


@pytest.mark.parametrize("path", ["outside_load/outside_load.py", "licence_pool/licence_pool.py"])
def test_example_has_at_most_45_lines(path: str) -> None:
    assert len((EXAMPLES / path).read_text().splitlines()) <= MAX_LINES
