"""Hosts whose attempts are traced, and the plugins that they call, for tests of traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tracing import CallTraces
from berth_sdk.wire.traces import SpanExport
from support.collector import Collector, Span
from support.hosts import World, node, pod
from support.traced_plugin import ByName, Doors, Islands, Racks

ALL = 1_000_000
"""The rate at which every attempt is traced."""
HOST, PLUGIN = "berth-scheduler", "berth-plugin"
PARENT = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{PARENT}-b7ad6b7169203331-01"
UNSAMPLED = f"00-{PARENT}-b7ad6b7169203331-00"
NODES = [node("a", labels={"rack": "r1"}), node("b", labels={"rack": "r2"})]
CLASSES = {"Racks": Racks, "Doors": Doors, "ByName": ByName, "Islands": Islands}


def configuration(
    address: str,
    place: str = "",
    *,
    rate: int | None = ALL,
    plugins: Iterable[str] = ("Racks",),
    sort: str = "PrioritySort",
    points: str = "",
    more: str = "",
) -> str:
    """Return a configuration with `plugins`, `sort` at QueueSort and DefaultBinder alone.

    `place`: fields that say where the plugins are served; empty: they run in process. `rate`: per million;
    None: unset. `points`: further points of the profile. `more`: fields of the scheduler's configuration.
    """
    sampling = "" if rate is None else f", samplingRatePerMillion: {rate}"
    enabled = ", ".join(f"{{name: {name}}}" for name in (*plugins, "DefaultBinder"))
    places = "".join(
        f"- {{name: {name}, {place or f'inProcess: support.traced_plugin:{name}'}}}\n"
        for name in (*plugins, sort)
        if name in CLASSES
    )
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n"
        f"      enabled: [{enabled}]\n    queueSort:\n      enabled: [{{name: {sort}}}]\n{points}{more}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"tracing: {{endpoint: '{address}'{sampling}}}\n"
        f"plugins:\n{places}"
    )


def racked(name: str = "web", rack: str = "r1", traceparent: str = "", **labels: str) -> dict[str, Any]:
    """Return a pod for a rack. `traceparent`: its annotation; empty: none."""
    return annotated(pod(name, labels={"rack": rack, **labels}), traceparent)


def annotated(made: dict[str, Any], traceparent: str) -> dict[str, Any]:
    """Give an object the annotation `traceparent`, unless that is empty."""
    if traceparent:
        made["metadata"]["annotations"] = {"traceparent": traceparent}
    return made


async def scheduled(text: str, *objects: Mapping[str, Any], **more: Any) -> World:
    """Run a host until it has tried all pods, then stop it, which sends its spans. `more`: as for `World`."""
    async with World(NODES, configuration=text, **more) as world:
        for made in objects:
            world.server.create(made)
        await world.settle()
    return world


def traced_server(collector: Collector) -> PluginServer:
    """Return a server of the plugins, which sends its spans to the collector."""
    export = SpanExport(PLUGIN, collector.address)
    return PluginServer(CLASSES, traces=CallTraces(export.provider, export.close))


def place_of(folder: Path, transport: str = "unary") -> str:
    """Return the fields that say where the plugins are served."""
    return f"endpoint: 'unix://{folder / 'plugins.sock'}', transport: {transport}"


async def served_trace(
    collector: Collector, folder: Path, transport: str, *objects: Mapping[str, Any], **more: Any
) -> list[Span]:
    """Return the spans of host and plugins after the host has tried all pods with served plugins.

    `more`: as for `configuration`.
    """
    with traced_server(collector) as server:
        server.listen(f"unix:{folder / 'plugins.sock'}")
        await scheduled(configuration(collector.address, place_of(folder, transport), **more), *objects)
    return collector.spans
