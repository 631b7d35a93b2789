"""A whole host on an embedded cluster, with a clock that only moves when the host has settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from berth_bench.life.faulty_cluster import Faults, FaultyCluster
from berth_host.app import Host, HostOptions
from berth_host.cluster.port import ClusterPort
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.cycle.observer import AttemptObserver
from berth_host.explain.diagnosis import Diagnosis
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.admitting import server_of_a_question
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.run.settle import NEVER_FLUSHED_S, settle
from support.patience import with_patience
from support.waiting import PATIENCE_S

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **more: Any) -> dict[str, Any]:
    """Return a Node manifest. `more`: labels, taints."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": {"taints": more.get("taints", [])},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}},
    }


def pod(name: str, *, cpu: str = "100m", namespace: str = "default", **more: Any) -> dict[str, Any]:
    """Return a Pod manifest. `more`: fields of its spec; `labels` go into the metadata."""
    labels = more.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
            **more,
        },
    }


def enabling(plugins: Iterable[str], more: str = "") -> str:
    """Return a configuration that adds plugins at multiPoint. `more`: further YAML documents."""
    listed = "".join(f"      - name: {name}\n" for name in plugins)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n    multiPoint:\n      enabled:\n{listed}{more}"
    )


class World:
    """A cluster with a host on it. Use as an async context manager; the host starts on entry.

    `cluster`: the embedded one, for whoever else acts on it; `port`: what the host is given, which
    misbehaves as `faults` say. `everywhere`: what they are where a test says nothing, with its seed.
    `is_patient` False: deadlines of served plugins that `configuration` does not name are those by default,
    not those of `support.patience`.
    """

    everywhere: ClassVar[tuple[int, Faults] | None] = None

    def __init__(
        self,
        objects: Iterable[Mapping[str, Any]] = (),
        plugins: Iterable[type] = (),
        *,
        configuration: str = "",
        emulated_version: str = "",
        gates: Mapping[str, bool] | None = None,
        faults: Faults | None = None,
        seed: int = 0,
        on_attempt: Callable[[Diagnosis], None] | None = None,
        own_pod: ObjectRef | None = None,
        observers: Sequence[AttemptObserver] = (),
        keep_answers: bool = True,
        is_patient: bool = True,
    ) -> None:
        self.clock = ManualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        if faults is None and self.everywhere is not None:
            seed, faults = self.everywhere
        self.faulty = None if faults is None else FaultyCluster(self.cluster, self.clock, seed, faults)
        self.port: ClusterPort = self.faulty or self.cluster
        self.server = self.cluster.server
        for item in objects:
            self.server.create(item)
        classes = {cls.__name__: cls for cls in plugins}
        registered = ClassRegistry(classes).points()
        text = configuration or (enabling(classes) if classes else "")
        loaded = (
            load_configuration(
                text,
                source="test.yaml",
                registered=registered,
                emulated_version=emulated_version,
                feature_gates=gates or {},
            )
            if text
            else default_configuration(
                registered=registered, emulated_version=emulated_version, feature_gates=gates or {}
            )
        )
        self.host = Host(
            with_patience(loaded) if is_patient else loaded,
            self.port,
            HostOptions(
                clock=self.clock,
                chooser=SmallestName(),
                plugins=classes,
                max_in_pool_s=NEVER_FLUSHED_S,
                on_attempt=on_attempt,
                own_pod=own_pod,
                observers=observers,
                keep_answers=keep_answers,
                admission=server_of_a_question,
            ),
        )

    async def __aenter__(self) -> World:
        await self.host.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.faulty is not None:
            self.faulty.behave()
        await self.host.stop()

    async def settle(self) -> World:
        """Run until nothing moves."""
        await settle(self.host)
        return self

    async def until_waiting(self, count: int) -> None:
        """Run until so many pods wait at Permit; fails after a minute."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.host.waiting_pods) < count:
                await asyncio.sleep(0)

    def pod(self, name: str, namespace: str = "default") -> KubeObject | None:
        """Return the pod as the API server has it."""
        return self.server.get("pods", ObjectRef(namespace=namespace, name=name))

    def node_of(self, name: str) -> str:
        """Return the node that the pod is bound to, or an empty string."""
        found = self.pod(name)
        return str(found.get("spec.nodeName", "")) if found is not None else ""

    def message_of(self, name: str) -> str:
        """Return the message of the pod's PodScheduled condition."""
        found = self.pod(name)
        conditions = found.get("status.conditions", []) if found is not None else []
        return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled"), "")

    def everything_is_accounted_for(self) -> bool:
        """Every pod that is neither bound nor gone is in the queue, and none is in flight."""
        queue = self.host.queue
        pending = {item.ref.key for item in self.server.list("pods") if not item.get("spec.nodeName")}
        known = [pod for key in pending if (pod := self.host.objects.pod(key)) is not None]
        queued = {pod.key for pod in known if queue.find(pod) is not None}
        return pending == queued and not len(queue.in_flight) and not len(self.host.binding)
