"""Hosts and plugins whose faults are real: what the tests of `tests/host/faults` share.

`FailingProcess`: a plugin of the SDK that dies, hangs and answers wrongly when it is told to. `RawPlugin`:
one that says what the SDK never would. `HostProcess`: a scheduler that can be killed, over the embedded
cluster on a loopback port.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from berth_host.metrics.exposition import Exposition
from berth_host.model.clock import RealClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.plugin.v1 import identity_pb2
from berth_sim.cluster.http.serving import ServedCluster
from berth_sim.cluster.server import ApiServer
from google.protobuf.message import Message
from prometheus_client.parser import text_string_to_metric_families
from support.hosts import World
from support.plugin_processes import PluginProcess
from support.raw_plugin import REQUESTS
from support.waiting import PATIENCE_S, until

DISABLES = {"queueSort": ", disabled: [{name: PrioritySort}]", "bind": ", disabled: [{name: '*'}]"}


class ObeyingPlugin(PluginProcess):
    """A plugin process with a folder, through which it is told what to do and tells what it did."""

    name: str

    def __init__(self, folder: Path, socket_path: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(socket_path or folder / "p.sock", environment={"BERTH_FAULTS": str(folder)})
        self.folder = folder

    def put(self, name: str, content: str | bytes) -> None:
        """A file of the folder, there at once and whole."""
        part = self.folder / f".{name}.part"
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
        part.rename(self.folder / name)

    def lines(self, name: str) -> list[list[str]]:
        """Return the words of each line of a file of the folder."""
        path = self.folder / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    async def restart(self) -> None:
        """Another process in the place of the one that is gone."""
        await self.kill()
        await self.start()

    def stop(self) -> None:
        """SIGSTOP: it hangs, and its connections live."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)


class FailingProcess(ObeyingPlugin):
    """`support.failing_plugin`: the SDK's server, with faults at the calls that a test names."""

    name = "Failing"

    def command(self) -> list[str]:
        """Return the command that is started."""
        return [sys.executable, "-m", "support.failing_plugin", "--listen", self.endpoint]

    def arm(self, rpc: str, kind: str) -> None:
        """The next `rpc` goes wrong."""
        self.put("armed", f"{rpc} {kind}")

    @property
    def has_fired(self) -> bool:
        """Whether what was armed has happened."""
        return bool(self.lines("fired")) and not (self.folder / "armed").exists()

    def did(self, what: str) -> list[list[str]]:
        """Return the lines of its journal that begin so, without that word."""
        return [words[1:] for words in self.lines("journal") if words[0] == what]

    def asked(self, *rpcs: str) -> list[list[str]]:
        """Call, in order: the call, its cycle, and the pods that it brought."""
        return [words for words in self.lines("asked") if words[0] in rpcs]

    async def order(self, *words: object) -> Any:
        """Have it do something; what came of it."""
        outcome = self.folder / "outcome"
        outcome.unlink(missing_ok=True)
        self.put("order", json.dumps(words))
        await until(outcome.exists)
        return json.loads(outcome.read_text())


class RawPlugin(ObeyingPlugin):
    """`support.raw_plugin`: `on` and `once` say what it answers, `requests` what it was asked."""

    def __init__(
        self, folder: Path, descriptor: identity_pb2.PluginDescriptor, socket_path: Path | None = None
    ) -> None:
        super().__init__(folder, socket_path)
        self.name = descriptor.name
        self._descriptor = base64.b64encode(descriptor.SerializeToString()).decode()
        self._orders = 0

    def command(self) -> list[str]:
        """Return the command that is started."""
        return [
            *(sys.executable, "-m", "support.raw_plugin"),
            *(str(self.folder), self._descriptor, str(self.socket_path)),
        ]

    def on(self, rpc: str, answer: Message | bytes | None) -> None:
        """Answer every `rpc` so; HOLD: not at all; None: as a good plugin would."""
        if answer is None:
            (self.folder / f"{rpc}.always").unlink(missing_ok=True)
        else:
            self.put(f"{rpc}.always", _order(answer))

    def once(self, rpc: str, answer: Message) -> None:
        """Answer the next `rpc` so."""
        self._orders += 1
        self.put(f"{rpc}.once-{self._orders:04}", _order(answer))

    def requests(self, rpc: str) -> list[Any]:
        """Every request of one call so far; of a stream, the last message of each."""
        request_type = REQUESTS[rpc.removeprefix("cancelled-")]
        return [
            request_type.FromString(base64.b64decode(words[-1]))
            for words in self.lines("journal")
            if words[0] == rpc and len(words) > 1
        ]


def _order(answer: Message | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else b"=" + answer.SerializeToString()


def configuration(
    *plugins: ObeyingPlugin,
    more: str = "required: true",
    deadline: str = "10s",
    budget: str = "10s",
    **points: str,
) -> str:
    """`points`: for each plugin's name the points that it takes part in, with blanks between. `more`: further
    fields of the first plugin, without which the others are required as well.
    """
    enabled: dict[str, list[str]] = {}
    for plugin in plugins:
        for point in points[plugin.name].split():
            enabled.setdefault(point, []).append(plugin.name)
    if "bind" in enabled:
        enabled["bind"].append("DefaultBinder")
    listed = ""
    for point, names in enabled.items():
        items = ", ".join(f"{{name: {name}}}" for name in names)
        listed += f"    {point}: {{enabled: [{items}]{DISABLES.get(point, '')}}}\n"
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{listed}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"cycleBudget: {budget}\nplugins:\n"
    )
    for plugin in plugins:
        deadlines = "".join(
            f"    {point}: {{deadline: {deadline}}}\n" for point in points[plugin.name].split()
        )
        fields = more if plugin is plugins[0] else "required: true"
        text += f"- name: {plugin.name}\n  endpoint: {plugin.endpoint}\n  {fields}\n  points:\n{deadlines}"
    return text


@asynccontextmanager
async def running(*plugins: PluginProcess) -> AsyncIterator[None]:
    """These processes, and an end of all that run at the end."""
    try:
        await asyncio.gather(*(plugin.start() for plugin in plugins))
        yield
    finally:
        for plugin in plugins:
            await plugin.kill()


async def in_time(condition: Any) -> None:
    """Wait for something on this loop or of another process."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # it sets no event of ours
            await asyncio.sleep(0.002)


def attached(world: World, name: str = "Failing") -> bool:
    """Whether the host can ask the plugin."""
    return bool(world.host.attachments.attached_places.plugins[name].is_attached)


async def metric(world: World, name: str, plugin: str) -> float:
    """Return the value of a metric for the plugin, as `/metrics` shows it; summed over its other labels."""
    text = (await Exposition(lambda: world.host.metrics.sources).text()).decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return sum(one.value for one in samples if one.name == name and one.labels["plugin"] == plugin)


async def held(world: World, count: int = 1) -> None:
    """Wait until so many pods wait on Permit, and no call about them is open."""
    binding = world.host.binding
    await in_time(lambda: len(world.host.waiting_pods) == len(binding) == count and not binding.active_count)


async def as_time_passes(world: World, condition: Callable[[], bool]) -> None:
    """Wait, a second of the host's clock every now and then: for what goes wrong again and again."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            world.host.check()
            world.clock.advance(1.0)
            await asyncio.sleep(0.02)


class HostProcess(SchedulerProcess):
    """`berth scheduler` over a served cluster. `text`: as `configuration` makes it."""

    def __init__(
        self,
        folder: Path,
        cluster: ServedCluster,
        text: str,
        *,
        name: str = "host",
        election: str = "",
        gates: str = "",
    ) -> None:
        folder.mkdir(exist_ok=True)
        kubeconfig = folder / "kubeconfig.json"
        kubeconfig.write_text(json.dumps(kubeconfig_of(cluster.url)))
        first, second = text.split("---\n")
        elects = election or "{leaderElect: false}"
        super().__init__(
            SchedulerSetup(
                program="berth",
                kubeconfig=kubeconfig,
                folder=folder,
                configuration=f"{first}leaderElection: {elects}\n",
                more_documents=second,
                # The served cluster knows no users, so there is nobody to ask who may read.
                flags=(
                    "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
                    *((f"--feature-gates={gates}",) if gates else ()),
                ),
            ),
            name,
        )

    async def begin(self) -> None:
        """Start it, and wait until it is ready."""
        await self.start()
        await self.ready()


def kubeconfig_of(url: str) -> dict[str, Any]:
    """For a cluster that asks nobody who they are."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


class Cluster:
    """The embedded cluster, served; it outlives its hosts. `hosts`: killed at the end. `cuts`: for these pods
    the connection breaks once under their binding, `before` or `after` it is done.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.served = ServedCluster(server)
        self.hosts: list[HostProcess] = []
        self.cuts: dict[str, str] = {}
        self._honest = self.served.handlers.handle
        self.served.handlers.handle = self._handle  # type: ignore[method-assign]  # before it listens

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        *_, name, what = request.path.split("/")
        moment = self.cuts.pop(name, "") if what == "binding" else ""
        if moment != "before":
            answer = await self._honest(request)
        if moment and request.transport is not None:
            request.transport.abort()
        return web.Response() if moment else answer

    def host(self, folder: Path, text: str, **more: str) -> HostProcess:
        """One that was not started yet."""
        self.hosts.append(HostProcess(folder, self.served, text, **more))
        return self.hosts[-1]

    def pod(self, name: str) -> KubeObject:
        """Return the pod as the cluster has it."""
        found = self.server.get("pods", ObjectRef(namespace="default", name=name))
        assert found is not None
        return found

    def node_of(self, name: str) -> str:
        """Return the node that the pod is bound to, or an empty string."""
        return str(self.pod(name).get("spec.nodeName", ""))

    def message_of(self, name: str) -> str:
        """Return the message of the pod's PodScheduled condition."""
        conditions = self.pod(name).get("status.conditions", [])
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")

    async def bound(self, *names: str) -> None:
        """Wait until these pods have nodes."""
        await until(lambda: all(self.node_of(name) for name in names))


@asynccontextmanager
async def served_cluster(*objects: Mapping[str, Any]) -> AsyncIterator[Cluster]:
    """Yield a cluster with these objects on a loopback port."""
    server = ApiServer(RealClock())
    for item in objects:
        server.create(item)
    cluster = Cluster(server)
    await cluster.served.listen()
    try:
        yield cluster
    finally:
        for host in cluster.hosts:
            await host.kill()
        await cluster.served.fall_silent()
        cluster.served.handlers.history.close()
