"""The refusals of `berth simulate` equal the API server's, word for word: both get the same objects."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest
from berth_bench.versus.api import ApiClient, ApiError
from berth_bench.versus.real_servers import RealServers
from berth_host.errors.cluster import ClusterError, InvalidError
from berth_host.model.clock import ManualClock
from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.server import ApiServer
from support.observed.stage import api_of

Json = dict[str, Any]
PATIENCE_S: Final = 20


def limits(*items: Json) -> Json:
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [*items]}}


def quota(hard: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
    }


def runtime(name: str, **more: Any) -> Json:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "h",
        **more,
    }


def priority(name: str, value: int, **more: Any) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def pod(requests: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }


def whole(amounts: Json) -> Json:
    """Return a pod with requests and limits for the whole pod, and none for its container."""
    made = pod()
    made["spec"]["resources"] = {"requests": amounts, "limits": amounts}
    return made


def two(first: Json, second: Json) -> Json:
    """Return a pod of two containers with these requests and limits."""
    made = pod()
    made["spec"]["containers"] = [
        {"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        for name, amounts in (("a", first), ("b", second))
    ]
    return made


def claim(storage: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "resources": {"requests": {"storage": storage}},
        },
    }


INPUTS: Final[dict[str, list[Json]]] = {
    "maximum of a container": [
        limits({"type": "Container", "max": {"cpu": "1"}}),
        pod({"cpu": "2"}, {"cpu": "2"}),
    ],
    "minimum of a container": [
        limits({"type": "Container", "min": {"memory": "1Gi"}}),
        pod({"memory": "100Mi"}),
    ],
    "minimum and maximum": [
        limits({"type": "Container", "min": {"cpu": "500m"}, "max": {"memory": "1Gi"}}),
        pod({"cpu": "100m", "memory": "2Gi"}, {"memory": "2Gi"}),
    ],
    "ratio of limit and request": [
        limits({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
        pod({"cpu": "100m"}, {"cpu": "1"}),
    ],
    "ratio without a request": [
        limits({"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}),
        pod({"cpu": "1"}),
    ],
    "maximum of a pod": [
        limits({"type": "Pod", "max": {"cpu": "1500m"}}),
        two({"cpu": "1"}, {"cpu": "700m"}),
    ],
    "maximum of a pod in memory": [
        limits({"type": "Pod", "max": {"memory": "1Gi"}}),
        two({"memory": "1Gi"}, {"memory": "512Mi"}),
    ],
    "maximum of a pod with a container that goes on running": [
        limits({"type": "Pod", "max": {"cpu": "1"}}),
        pod(
            {"cpu": "600m"},
            {"cpu": "600m"},
            initContainers=[
                {
                    "name": "i",
                    "image": "i",
                    "restartPolicy": "Always",
                    "resources": {"limits": {"cpu": "600m"}},
                }
            ],
        ),
    ],
    "maximum of a pod that says its amounts as a whole": [
        limits({"type": "Pod", "max": {"cpu": "1"}}),
        whole({"cpu": "2"}),
    ],
    "default limit below the request": [
        limits({"type": "Container", "default": {"cpu": "1"}}),
        pod({"cpu": "2"}),
    ],
    "default limit of an extended resource": [
        limits({"type": "Container", "default": {"example.com/gpu": "2"}}),
        pod({"example.com/gpu": "1"}),
    ],
    "maximum of a claim": [
        limits({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}),
        claim("2Gi"),
    ],
    "minimum of a claim": [
        limits({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}),
        claim("100Mi"),
    ],
    "quota of requests": [quota({"requests.cpu": "1", "pods": "5"}), pod({"cpu": "1500m"})],
    "quota of several amounts": [
        quota({"requests.memory": "1Gi", "limits.cpu": "1"}),
        pod({"memory": "1536Mi"}, {"memory": "2Gi", "cpu": "1500m"}),
    ],
    "quota in decimal amounts": [
        quota({"requests.memory": "1.5G", "requests.cpu": "0.5"}),
        pod({"memory": "2000M", "cpu": "0.75"}),
    ],
    "maximum of a pod in decimal amounts": [
        limits({"type": "Pod", "max": {"memory": "1G"}}),
        two({"memory": "1G"}, {"memory": "500M"}),
    ],
    "quota of pods": [quota({"pods": "0"}), pod()],
    "quota that wants amounts": [quota({"limits.cpu": "1", "requests.memory": "1Gi"}), pod({"cpu": "1"})],
    "quota of extended resources": [
        quota({"requests.example.com/gpu": "1"}),
        pod({"example.com/gpu": "2"}, {"example.com/gpu": "2"}),
    ],
    "quota of storage": [quota({"requests.storage": "1Gi", "persistentvolumeclaims": "5"}), claim("2Gi")],
    "quota of a storage class": [
        quota({"s.storageclass.storage.k8s.io/requests.storage": "1Gi"}),
        claim("2Gi"),
    ],
    "unknown priority class": [pod(priorityClassName="gone")],
    "priority without a class": [pod(priority=8)],
    "priority of another class": [priority("ten", 10), pod(priorityClassName="ten", priority=11)],
    "policy of another class": [priority("ten", 10), pod(priorityClassName="ten", preemptionPolicy="Never")],
    "unknown runtime class": [pod(runtimeClassName="gone")],
    "overhead without a class": [pod(overhead={"cpu": "1"})],
    "overhead of another class": [
        runtime("r", overhead={"podFixed": {"cpu": "100m"}}),
        pod(runtimeClassName="r", overhead={"cpu": "1"}),
    ],
    "overhead that the class has not": [runtime("r"), pod(runtimeClassName="r", overhead={"cpu": "1"})],
    "selector of another class": [
        runtime("r", scheduling={"nodeSelector": {"a": "b"}}),
        pod(runtimeClassName="r", nodeSelector={"a": "c"}),
    ],
}
"""Objects by the checked rule; the last object of each list is refused."""


def own_refusal(objects: list[Json]) -> str:
    """Return the answer of the embedded API server to the last object."""
    server = ApiServer(ManualClock(1_800_000_000), Gatekeeping())
    *others, last = json.loads(json.dumps(objects))
    for one in others:
        server.create(one)
    with pytest.raises(ClusterError) as caught:
        server.create(last)
    if isinstance(caught.value, InvalidError):
        # An error found while the input is read, reported with its line and a remedy.
        (problem,) = caught.value.problems
        return f'pods "web" is forbidden: {problem.problem.partition(": leave it out")[0]}'
    return str(caught.value)


async def put(api: ApiClient, content: Json, namespace: str) -> None:
    """Create an object in the namespace of the tests; a quota gets the status that its controller writes."""
    placed = {**content, "metadata": {**content["metadata"], "namespace": namespace}}
    await api.create(placed)
    if content["kind"] == "ResourceQuota":
        hard = content["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        name = content["metadata"]["name"]
        await api.patch("ResourceQuota", name, status, namespace=namespace, subresource="status")


async def servers_refusal(api: ApiClient, content: Json, namespace: str) -> str:
    """Return the API server's answer to an object, once its admission plugins have seen the other objects."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await put(api, content, namespace)
            except ApiError as err:
                return err.message
            name = content["metadata"]["name"]
            await api.delete(content["kind"], name, namespace=namespace, grace_period_s=0)
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("name", INPUTS)
async def test_refusal_equals_that_of_the_api_server(servers: RealServers, name: str) -> None:
    *others, last = INPUTS[name]
    async with api_of(servers) as api:
        # A separate namespace: the server's plugins keep using deleted objects for a while.
        namespace = f"texts-{list(INPUTS).index(name)}"
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        try:
            for one in others:
                await put(api, one, namespace)
            said = await servers_refusal(api, last, namespace)
        finally:
            for one in others:
                await api.delete(one["kind"], one["metadata"]["name"], namespace=namespace)
    assert own_refusal(INPUTS[name]) == said
