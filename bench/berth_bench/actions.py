"""Carry out ops on the cluster. One class has a method per op; `running` calls `run` for each step.

Objects are created on the host's own loop, a few per turn, so pods are created while others are scheduled.
The host knows all nodes before the next op begins. No kubelet is simulated.
"""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from berth_host.app.host import Host
from berth_host.errors.cluster import ClusterError
from berth_sdk.kube_object import KubeObject
from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.server import ApiServer

from berth_bench import devices
from berth_bench import workload as ops
from berth_bench.measuring import Meter
from berth_bench.pods import PodWatch, matches
from berth_bench.pods_as_kept import as_kept
from berth_bench.result import Level
from berth_bench.short_lived import SETTLED, ShortLivedPods, growth
from berth_bench.templates import Template

AT_ONCE: Final = 20
"""The number of objects that are created in one turn of the loop."""
HOSTNAME: Final = "kubernetes.io/hostname"
Object = dict[str, Any]


class Actions:
    """Carries out ops. `notes`: deviations from the intent of the workload, a sentence each. `levels`: the
    samples of `RunPods`.
    """

    def __init__(
        self,
        host: Host,
        server: ApiServer,
        meter: Meter,
        profiled: Callable[[bool], None] = lambda _: None,
        *,
        declared_features: Sequence[str] = (),
        as_kept: bool = False,
    ) -> None:
        """`profiled` is called with True when a measured window begins, and with False when it ends.
        `declared_features`: the features that every node declares. `as_kept`: complete the pods of templates
        to what an API server keeps.
        """
        self._host = host
        self._server = server
        self._meter = meter
        self._profiled = profiled
        self._as_kept = as_kept
        self._declared = {"declaredFeatures": [*declared_features]} if declared_features else {}
        self._background: set[asyncio.Task[None]] = set()
        self._not_waited_for: set[str] = set()
        self._made_count = 0
        self._refused_count = 0
        self.pods = PodWatch(host, server, meter)
        self.notes: list[str] = []
        self.levels: list[Level] = []

    async def run(self, op: ops.Op) -> None:
        """Carry out one op; return when the next may begin. Raises ClusterError, TemplateError."""
        self._raise_failures()
        match op:
            case ops.CreateNodes():
                await self._create_nodes(op)
            case ops.CreateNamespaces():
                await self._create_namespaces(op)
            case ops.CreatePods():
                await self._create_pods(op)
            case ops.RunPods():
                await self._run_pods(op)
            case ops.CreateAny():
                await self._create_any(op)
            case ops.UpdateAny():
                await self._update_any(op)
            case ops.CreateResourceDriver():
                await self._create_driver(op)
            case ops.AllocateClaims():
                await self._allocate_claims(op)
            case ops.DeletePods():
                await self._delete_pods(op)
            case ops.Churn():
                self._begin(self._recreate(op) if op.recreates else self._create_again(op))
            case ops.Barrier():
                await self._barrier(op)
            case ops.Sleep():
                await asyncio.sleep(op.duration_s)
            case ops.StartCollecting():
                self._start_collecting(op)
            case ops.StopCollecting():
                self._stop_collecting()
            case ops.CreateObjects():
                await self._create_objects(op)

    async def finish(self, *, early: bool = False) -> None:
        """End the work in the background. Raises its error. `early`: some ops were not run."""
        self._raise_failures()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._meter.is_open:
            self._stop_collecting()
            if not early:
                self.notes.append(
                    "metrics were collected until the end, because there is no stopCollectingMetrics"
                )
        if self._refused_count:
            self.notes.append(f"{self._refused_count} objects of churn were refused by the cluster")
        self.pods.close()

    # --- nodes and other objects -----------------------------------------------------------------

    async def _create_nodes(self, op: ops.CreateNodes) -> None:
        strategy = op.strategy
        for index, template in enumerate(op.template.objects(op.count)):
            name = template["metadata"].get("name") or self._fresh_name(template)
            labels = {**(template["metadata"].get("labels") or {}), HOSTNAME: name}
            if strategy.label_key:
                values = strategy.label_values
                labels[strategy.label_key] = values[index % len(values)] if values else str(uuid.uuid4())
            node = template | {"metadata": template["metadata"] | {"name": name, "labels": labels}}
            if strategy.allocatable:
                node["status"] = _with_allocatable(node.get("status") or {}, strategy.allocatable)
            if self._declared:
                node["status"] = {**(node.get("status") or {}), **self._declared}
            self._server.create(node)
            if strategy.csi_allocatable or strategy.migrated_plugins:
                self._server.create(_csi_node(name, strategy))
            if index % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        await self._settled()

    def _fresh_name(self, template: Mapping[str, Any]) -> str:
        # Short and in order, so that the same seed gives the same placements in every run.
        self._made_count += 1
        return f"{template['metadata'].get('generateName') or 'node-'}{self._made_count:05}"

    async def _create_namespaces(self, op: ops.CreateNamespaces) -> None:
        for index in range(op.count):
            own: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
            if op.template is not None:
                own = op.template.object_at(index, op.count)
            metadata = (own.get("metadata") or {}) | {"name": f"{op.prefix}-{index}"}
            metadata.pop("generateName", None)
            self._server.create(own | {"metadata": metadata})
        await self._delivered()

    async def _create_any(self, op: ops.CreateAny) -> None:
        for obj in op.template.objects(op.count):
            self._server.create(_in_namespace(obj, op.namespace))
        await self._delivered()

    async def _update_any(self, op: ops.UpdateAny) -> None:
        ticks = _ticks(1 / op.per_second) if op.per_second else None
        for obj in op.template.objects(op.count):
            if ticks is not None:
                await anext(ticks)
            wanted = _in_namespace(obj, op.namespace)
            self._server.update(wanted, subresource=op.subresource)
            if op.subresource != "status" and wanted.get("status") is not None:
                self._server.update(wanted, subresource="status")

    async def _create_driver(self, op: ops.CreateResourceDriver) -> None:
        started_s = time.perf_counter()
        made = await self._create_all(devices.slices_of(op, self._server))
        await self._settled()
        if self._meter.is_open:
            took_s = time.perf_counter() - started_s
            self.notes.append(f"{len(made)} ResourceSlices were known to the scheduler after {took_s:.2f} s")

    async def _allocate_claims(self, op: ops.AllocateClaims) -> None:
        users = await self._create_all(devices.users_of_claims(self._server, op.namespace))
        left = await self.pods.until(ops.SCHEDULED, users, lambda: self._goes_on)
        if left:
            raise OpError(f"{len(left)} of {len(users)} claims cannot be allocated{self._why(left)}")
        for pod in self._server.list("pods"):
            if pod.ref.uid in users:
                devices.release(self._server, pod)
        await self._settled()

    async def _create_objects(self, op: ops.CreateObjects) -> None:
        pods = [obj for obj in op.manifests if obj["kind"] == "Pod"]
        await self._create_all(obj for obj in op.manifests if obj["kind"] != "Pod")
        await self._settled()
        if not pods:
            return
        namespaces = {str(pod["metadata"].get("namespace") or "default") for pod in pods}
        self._open(namespaces, {})
        made = await self._create_all(pods)
        await self._until(ops.SCHEDULED, made)
        self._stop_collecting()

    # --- pods ------------------------------------------------------------------------------------

    async def _create_pods(self, op: ops.CreatePods) -> None:
        static = op.template.is_static and op.volume_template is None and not op.signature_batch
        pods = self._pods_of(op)
        # Evaluating Go templates is not part of the measured time.
        ready = pods if static else list(pods)
        if op.collects_metrics:
            self._open({op.namespace}, {})
        if op.steady_s:
            await self._create_steadily(op, list(ready))
        else:
            made = await self._create_all(ready)
            if op.bound:
                await self._settled()
            elif op.waits:
                await self._until(ops.SCHEDULED, made)
            else:
                self._not_waited_for |= made
        if op.collects_metrics:
            self._stop_collecting()

    def _pods_of(self, op: ops.CreatePods) -> Iterable[Object]:
        volumes = iter(()) if op.volume_template is None else op.volume_template.objects(op.count)
        claims = iter(()) if op.claim_template is None else op.claim_template.objects(op.count)
        nodes = [node.ref.name for node in self._server.list("nodes")] if op.bound else []
        if op.bound and not nodes:
            raise OpError("pods with `bound` need nodes: create some before this op")
        for index, pod in enumerate(self._completed(op.template, op.count)):
            made = _in_namespace(pod, op.namespace)
            if op.bound:
                made["spec"] = {**made["spec"], "nodeName": nodes[index % len(nodes)]}
            if op.signature_batch:
                made = _labelled(made, "signature", f"signature-label-{index // op.signature_batch}")
            volume = next(volumes, None)
            yield made if volume is None else self._with_volume(made, index, volume, next(claims))

    def _completed(self, template: Template, count: int) -> Iterator[Object]:
        """Yield a template's pods, completed if the workload's pods are. Equal ones are completed once."""
        if not self._as_kept:
            yield from template.objects(count)
        elif template.is_static:
            made = as_kept(template.object_at(0, count))
            yield from (made for _ in range(count))
        else:
            yield from (as_kept(pod) for pod in template.objects(count))

    def _with_volume(self, pod: Object, index: int, volume: Object, claim: Object) -> Object:
        """Return the pod with one volume, already bound to a claim of its own; other pods may use claim and
        volume too.
        """
        namespace = pod["metadata"]["namespace"]
        pv_name, pvc_name = f"{namespace}-pv-{index}", f"pvc-{index}"
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": pvc_name,
        }
        spec = (volume.get("spec") or {}) | {"claimRef": reference}
        if "csi" in spec:
            # A handle of its own, because nodes count handles.
            spec["csi"] = spec["csi"] | {"volumeHandle": pv_name}
        volume = _named(volume, pv_name) | {
            "spec": spec,
            "status": {"phase": "Bound"},
        }
        claim = _in_namespace(_named(claim, pvc_name), namespace)
        annotations = claim["metadata"].get("annotations") or {}
        # The controller adds this annotation when it is done; without it the claim counts as not yet bound.
        done = claim["metadata"] | {"annotations": annotations | {"pv.kubernetes.io/bind-completed": "yes"}}
        claim |= {
            "metadata": done,
            "spec": (claim.get("spec") or {}) | {"volumeName": pv_name},
            "status": {"phase": "Bound"},
        }
        self._server.create(volume, restore=True)
        self._server.create(claim, restore=True)
        own = {"name": "vol", "persistentVolumeClaim": {"claimName": pvc_name}}
        return pod | {"spec": pod["spec"] | {"volumes": [own]}}

    async def _create_all(self, objects: Iterable[Mapping[str, Any]]) -> set[str]:
        """Create the objects; return their uids. The objects themselves belong to the cluster, and change."""
        made: set[str] = set()
        for index, obj in enumerate(objects, start=1):
            made.add(self._server.create(obj).ref.uid)
            if index % AT_ONCE == 0:
                await asyncio.sleep(0)
        return made

    async def _create_steadily(self, op: ops.CreatePods, pods: list[Object]) -> None:
        """Delete every pod that gets its node and create another one, until the time is over."""
        bound: deque[KubeObject] = deque()

        def see(pod: KubeObject) -> None:
            if pod.ref.namespace == op.namespace:
                bound.append(pod)

        loop = asyncio.get_running_loop()
        ends_s = loop.time() + op.steady_s
        with self.pods.listening(see):
            await self._create_all(pods)
            count = 0
            while loop.time() < ends_s:
                while bound:
                    self._server.delete("pods", bound.popleft().ref, grace_period_s=0)
                    self._server.create(pods[count % len(pods)])
                    count += 1
                await asyncio.sleep(0.001)

    async def _run_pods(self, op: ops.RunPods) -> None:
        self._open({op.namespace}, {})
        running = ShortLivedPods(op, self._host, self._server, self._meter, self.pods)
        left = await running.run(
            _in_namespace(pod, op.namespace) for pod in self._completed(op.template, op.count)
        )
        self._stop_collecting()
        self.levels += running.levels
        if left:
            count = len(left) + op.count - running.made_count
            self.notes.append(f"{count} of {op.count} pods stay pending{self._why(left)}")
        self.notes.append(
            f"{running.made_per_s:.0f} pods were created per second; the workload asks for {op.per_second}"
        )
        if (risen := growth(running.levels)) is not None:
            self.notes.append(f"memory rose by {100 * risen:.1f} % after sample {SETTLED}")

    async def _delete_pods(self, op: ops.DeletePods) -> None:
        pods = [pod for pod in self._server.list("pods", op.namespace) if matches(pod, (), op.labels)]
        deleting = self._delete(pods, op.per_second)
        if op.waits:
            await deleting
        else:
            self._begin(deleting)

    async def _delete(self, pods: Iterable[KubeObject], per_second: int) -> None:
        ticks = _ticks(1 / per_second) if per_second else None
        for pod in pods:
            if ticks is not None:
                await anext(ticks)
            if self._server.get("pods", pod.ref) is not None:  # the pod may have been evicted
                self._server.delete("pods", pod.ref)

    # --- beside the other ops --------------------------------------------------------------------

    def _begin(self, coroutine: Any) -> None:
        self._background.add(asyncio.ensure_future(coroutine))

    @property
    def _goes_on(self) -> bool:
        return any(not task.done() for task in self._background)

    def _raise_failures(self) -> None:
        for task in self._background:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _create_again(self, op: ops.Churn) -> None:
        ticks = _ticks(op.interval_s)
        count = 0
        while not op.number or count < op.number:
            await anext(ticks)
            for template in op.templates:
                self._churned(template.object_at(count, op.number), op.namespace)
            count += 1

    async def _recreate(self, op: ops.Churn) -> None:
        slots: list[list[KubeObject | None]] = [[None] * op.number for _ in op.templates]
        count = 0
        async for _ in _ticks(op.interval_s):
            for template, own in zip(op.templates, slots, strict=True):
                index = count % op.number
                there = own[index]
                if there is None:
                    own[index] = self._churned(template.object_at(index, op.number), op.namespace)
                else:
                    own[index] = None
                    resource = BY_KIND[there.kind].resource
                    if self._server.get(resource, there.ref) is not None:
                        self._server.delete(resource, there.ref)
            count += 1

    def _churned(self, obj: Object, namespace: str) -> KubeObject | None:
        own = _in_namespace(obj, namespace) if BY_KIND[obj["kind"]].namespaced else obj
        if self._as_kept and own["kind"] == "Pod":
            own = as_kept(own)
        try:
            return self._server.create(own)
        except ClusterError:
            self._refused_count += 1
            return None

    # --- waiting and measuring -------------------------------------------------------------------

    async def _barrier(self, op: ops.Barrier) -> None:
        waited = {
            pod.ref.uid
            for pod in self._server.list("pods")
            if pod.ref.uid in self._not_waited_for and matches(pod, op.namespaces, op.labels)
        }
        await self._until(op.stage, waited)
        if op.stage == ops.SCHEDULED:
            self._not_waited_for -= waited
        await self._delivered()

    async def _until(self, stage: str, uids: Collection[str]) -> None:
        left = await self.pods.until(stage, uids, lambda: self._goes_on)
        if left:
            what = "were never attempted" if stage == ops.ATTEMPTED else "stay pending"
            self.notes.append(f"{len(left)} of {len(uids)} pods {what}{self._why(left)}")

    def _why(self, uids: Iterable[str]) -> str:
        for uid in uids:
            diagnosis = self._host.diagnoses.get(uid)
            if diagnosis is not None and diagnosis.message:
                return f"; one of them: {diagnosis.message}"
        return ""

    async def _delivered(self) -> None:
        """Wait until the host has received the created objects."""
        while True:
            if not self._host.cluster.undelivered_count:
                return
            await asyncio.sleep(0)

    async def _settled(self) -> None:
        """Wait until the copies of served plugins have the objects as well."""
        await self._delivered()
        # Real clusters do not grow by thousands of nodes at once, so this time is not measured.
        await self._host.synchronise()

    def _start_collecting(self, op: ops.StartCollecting) -> None:
        self._open(set(op.namespaces), op.labels)
        for pod in self._server.list("pods"):
            if not pod.get("spec.nodeName"):
                self._meter.pod_seen(pod)

    def _open(self, namespaces: set[str], labels: ops.Labels) -> None:
        if self._meter.is_open:
            raise OpError("metrics are already collected: stop the first collection before this op")
        gc.collect()
        self._profiled(True)
        self._meter.open(lambda pod: matches(pod, namespaces, labels))

    def _stop_collecting(self) -> None:
        if not self._meter.is_open:
            raise OpError("no metrics are collected: add startCollectingMetrics before this op")
        self._meter.close()
        self._profiled(False)


class OpError(Exception):
    """An op cannot be carried out at its place in the workload; the text says why."""


async def _ticks(interval_s: float) -> AsyncIterator[None]:
    """Yield once per interval. Intervals that end while the caller works are dropped, as Go's Ticker does."""
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    while True:
        next_s = max(next_s + interval_s, loop.time())
        await asyncio.sleep(next_s - loop.time())
        yield


def _in_namespace(obj: Mapping[str, Any], namespace: str) -> Object:
    own = dict(obj.get("metadata") or {})
    if not own.get("name") and not own.get("generateName"):
        own["generateName"] = f"{str(obj['kind']).lower()}-"
    return dict(obj) | {"metadata": own | ({"namespace": namespace} if namespace else {})}


def _labelled(obj: Object, key: str, value: str) -> Object:
    metadata = obj["metadata"]
    return obj | {"metadata": metadata | {"labels": {**(metadata.get("labels") or {}), key: value}}}


def _named(obj: Mapping[str, Any], name: str) -> Object:
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "generateName"}
    return dict(obj) | {"metadata": metadata | {"name": name}}


def _with_allocatable(status: Mapping[str, Any], allocatable: ops.Labels) -> Object:
    there = status.get("allocatable") or status.get("capacity") or {}
    return dict(status) | {"allocatable": {**there, **allocatable}}


def _csi_node(name: str, strategy: ops.NodeStrategy) -> Object:
    metadata: Object = {"name": name}
    if strategy.migrated_plugins:
        key = "storage.alpha.kubernetes.io/migrated-plugins"
        metadata["annotations"] = {key: ",".join(strategy.migrated_plugins)}
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": {"count": count}}
        for driver, count in strategy.csi_allocatable.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": metadata,
        "spec": {"drivers": drivers},
    }
