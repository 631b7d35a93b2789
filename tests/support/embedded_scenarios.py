"""A recorded scenario (golden `events.jsonl`) on the embedded cluster: what the host writes and says there.

Plays the operations, with the part of kubelets and controllers that a scenario needs, moves the clock by as
much as one observation took, and shows what was seen in the form of the recordings. Used by
`tests/host/app/test_observed_writes.py`; the same scenarios run against a real API server in `tests/cluster`.
"""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_host.app import Host, HostOptions
from berth_host.config.loading import load_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.errors.cluster import ClusterError, ConflictError, InvalidError, NotFoundError
from berth_host.model.clock import ManualClock
from berth_host.model.patch_type import PatchType
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.kinds import BY_KIND, BY_RESOURCE
from berth_sim.cluster.server import ApiServer
from support.hosts import START_S
from support.observed.masking import masked
from support.places import TESTS
from support.probe_plugin import Probe
from support.waiting import PATIENCE_S

Json = dict[str, Any]
_RECORDINGS: Final = TESTS / "cluster" / "golden_observability"
RECORDED: Final = _RECORDINGS / "events.jsonl.gz"
RECORDED_HERE: Final = _RECORDINGS / "events-more.jsonl"
KUBELET: Final = "example.com/kubelet"
"""Holds a pod that takes time to end, in place of the kubelet that a real cluster would ask."""
POLICY: Final = "ValidatingAdmissionPolicy"
_OBSERVED_S: Final = 2.5
_STEP_S: Final = 0.1
_TURNS: Final = 400
_STATUS: Final = {ConflictError: 409, NotFoundError: 404, InvalidError: 422}
_OWN_FINALIZERS: Final = ("kubernetes.io/pv-protection", "kubernetes.io/pvc-protection", KUBELET)


def recorded() -> Iterator[Json]:
    """All scenarios, in the order of the recordings."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
    yield from map(json.loads, RECORDED_HERE.read_text(encoding="utf-8").splitlines())


class RecordingCluster(MemoryCluster):
    """Keeps every write in the form of the recordings. `refused`: pods whose Binding admission refuses."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.writes: list[Json] = []
        self.patch_types: set[PatchType] = set()
        self.refused: dict[str, str] = {}

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Post a Binding."""
        metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        target = {"kind": "Node", "name": node_name}
        body = {"kind": "Binding", "apiVersion": "v1", "metadata": metadata, "target": target}
        with _Write(self, "create", "pods", pod, body, "binding", 201):
            if (message := self.refused.get(pod.name)) is not None:
                raise InvalidError("pods", pod.key, (), server_message=message)
            await super().bind(pod, node_name)

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Patch."""
        self.patch_types.add(patch_type)
        with _Write(self, "patch", resource, ref, patch, subresource):
            return await super().patch(
                resource,
                ref,
                patch,
                patch_type=patch_type,
                subresource=subresource,
                expected_resource_version=expected_resource_version,
            )

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace."""
        with _Write(self, "update", resource, KubeObject.of(content).ref, content, subresource):
            return await super().update(resource, content, subresource=subresource)

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create."""
        with _Write(self, "create", resource, ref, content, "", 201):
            return await super().create(resource, ref, content)

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete."""
        body = {"kind": "DeleteOptions"}
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = str(grace_period_s)
        with _Write(self, "delete", resource, ref, body, ""):
            await super().delete(resource, ref, grace_period_s=grace_period_s, same_uid=same_uid)


class _Write:
    """One write: kept at its end, with the answer."""

    def __init__(
        self,
        cluster: RecordingCluster,
        verb: str,
        resource: str,
        ref: ObjectRef,
        body: Mapping[str, Any],
        subresource: str,
        status: int = 200,
    ) -> None:
        kind = BY_RESOURCE[resource]
        group, _, version = kind.api_version.rpartition("/")
        place = {
            "resource": kind.plural,
            "apiGroup": group,
            "apiVersion": version,
            "subresource": subresource,
            "namespace": ref.namespace,
            "name": ref.name,
        }
        self._write: Json = {"verb": verb, **{key: value for key, value in place.items() if value}}
        self._write |= {"status": status, "body": copy.deepcopy(dict(body))}
        self._cluster = cluster

    def __enter__(self) -> None:
        self._cluster.writes.append(self._write)

    def __exit__(self, _type: object, err: BaseException | None, _traceback: object) -> None:
        if isinstance(err, ClusterError):
            self._write["status"] = _STATUS[type(err)]
            self._write["response"] = {"message": str(err)}


class EmbeddedScenario:
    """One scenario being played. `steps`: one observation per step of the recording."""

    def __init__(self, scenario: Json) -> None:
        self._scenario = scenario
        self._clock = ManualClock(START_S)
        self.cluster = RecordingCluster(self._clock)
        self._events_seen = 0
        plugins: dict[str, type] = {"Probe": Probe} if scenario.get("plugin") == "Probe" else {}
        loaded = load_configuration(
            scenario["schedulerConfig"],
            source="recorded.yaml",
            registered=ClassRegistry(plugins).points(),
            emulated_version="1.36",  # the version that was recorded
        )
        options = HostOptions(clock=self._clock, chooser=SmallestName(), plugins=plugins)
        self._host = Host(loaded, self.cluster, options)

    async def steps(self) -> list[Json]:
        """Play it to its end."""
        observed = []
        for operation in self._scenario["setup"]:
            self._play(operation)
        await self._host.start()
        try:
            for step in self._scenario["steps"]:
                for operation in step["ops"]:
                    if "sleep" in operation:
                        await self._pass(float(operation["sleep"]))
                    else:
                        self._play(operation)
                await self._pass(float(step.get("observedFor", _OBSERVED_S)))
                observed.append(self._look())
        finally:
            await self._host.stop()
        return observed

    async def _pass(self, duration_s: float) -> None:
        for _ in range(round(duration_s / _STEP_S) + 1):
            await self._settle()
            self._clock.advance(_STEP_S)

    async def _settle(self) -> None:
        """Let everything happen that needs no time of the clock. A call in a thread takes real time."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                if not self._host.binding.active_count:
                    return
                await asyncio.sleep(0.001)

    def _look(self) -> Json:
        events = self.cluster.server.events
        news = events.recent[self._events_seen :]
        self._events_seen = events.total_count
        writes, self.cluster.writes = self.cluster.writes, []
        return {
            "pods": {pod.ref.name: shown_pod(pod) for pod in self.cluster.server.list("pods")},
            "events": masked(
                [
                    {
                        "reason": event.reason,
                        "action": event.action,
                        "type": event.type,
                        "note": event.note,
                        "regarding": event.regarding.name,
                        "reportingController": event.reporter,
                    }
                    for event in news
                ]
            ),
            "writes": [comparable(write) for write in masked(writes)],
        }

    # --- everybody else ----------------------------------------------------------------------------

    def _play(self, operation: Json) -> None:
        server = self.cluster.server
        match operation:
            case {"create": {"kind": "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding"}}:
                self.cluster.refused["p1"] = _refusal(self._scenario)
            case {"create": content}:
                _create(server, content)
            case {"patch": name, "kind": kind, "body": body, **more}:
                subresource = str(more.get("subresource", ""))
                server.patch(BY_KIND[kind].resource, _ref(kind, name), body, subresource=subresource)
            case {"delete": name, "kind": kind}:
                ref = _ref(kind, name)
                server.patch(BY_KIND[kind].resource, ref, {"metadata": {"finalizers": None}})
                if server.get(BY_KIND[kind].resource, ref) is not None:
                    server.delete(BY_KIND[kind].resource, ref)
            case {"bind": pod, "node": node}:
                server.bind(_ref("Pod", pod), node)
            case _:
                raise ValueError(f"unknown operation: {sorted(operation)}")


def _ref(kind: str, name: str) -> ObjectRef:
    return ObjectRef(name=name, namespace="default" if BY_KIND[kind].namespaced else "")


def _create(server: ApiServer, content: Json) -> None:
    wanted = copy.deepcopy(content)
    if wanted["kind"] == "Pod" and wanted["spec"].get("terminationGracePeriodSeconds", 30):
        wanted["metadata"]["finalizers"] = [KUBELET]
    made = server.create(wanted)
    if wanted.get("status") and made.get("status") != wanted["status"]:
        resource = BY_KIND[wanted["kind"]].resource
        server.patch(resource, made.ref, {"status": wanted["status"]}, subresource="status")


def _refusal(scenario: Json) -> str:
    """Return the answer of the scenario's admission policy."""
    answers = (write.get("response") for step in scenario["expected"] for write in step["writes"])
    return str(next(answer for answer in answers if answer)["message"])


# --- what is compared ------------------------------------------------------------------------------


def shown_pod(pod: KubeObject) -> Json:
    """Return a pod as an observation has it."""
    shown = {
        "phase": pod.get("status.phase"),
        "nodeName": pod.get("spec.nodeName"),
        "nominatedNodeName": pod.get("status.nominatedNodeName"),
        "terminating": True if pod.get("metadata.deletionTimestamp") else None,
        "conditions": [
            {"lastProbeTime": None, **condition} for condition in pod.get("status.conditions", [])
        ],
    }
    result: Json = masked({key: value for key, value in shown.items() if value is not None})
    return result


def comparable_event(event: Json) -> Json:
    """Return a recorded Event, as far as the port knows of it."""
    kept = ("reason", "action", "type", "note", "reportingController")
    return {**{key: event.get(key, "") for key in kept}, "regarding": event["regarding"]["name"]}


def comparable(write: Json) -> Json:
    """A masked write without what controllers, kubelets and etcd add on a real cluster alone."""
    made = copy.deepcopy(write)
    if "response" in made:
        made["response"] = {"message": made["response"]["message"]}
    body = made.get("body") or {}
    if made["verb"] != "update":
        return made
    body["metadata"].pop("generation", None)
    finalizers = [one for one in body["metadata"].pop("finalizers", []) if one not in _OWN_FINALIZERS]
    if finalizers:
        body["metadata"]["finalizers"] = finalizers
    body.setdefault("status", {}).pop("lastPhaseTransitionTime", None)
    return made
