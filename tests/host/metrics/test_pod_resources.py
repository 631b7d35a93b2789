"""`/metrics/resources`: requests and limits of pods, in the units of kube-scheduler."""

from __future__ import annotations

from typing import Any

from berth_host.metrics.pod_resources import pod_resources_text
from berth_sdk import Pod
from berth_sdk.kube_object import KubeObject
from prometheus_client.parser import text_string_to_metric_families

Found = dict[tuple[str, str, str], float]


def a_pod(**spec: Any) -> Pod:
    return Pod.from_object(
        KubeObject.of(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
                "spec": {"nodeName": "n1", "priority": 7, "schedulerName": "second", **spec},
            }
        )
    )


def container(requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits or {}}, **more}


async def shown(pod: Pod) -> Found:
    """(request or limit, resource, unit) -> value."""
    found: Found = {}
    for metric in text_string_to_metric_families((await pod_resources_text([pod])).decode()):
        for sample in metric.samples:
            labels = dict(sample.labels)
            resource, unit = labels.pop("resource"), labels.pop("unit")
            assert labels == {
                "namespace": "ns",
                "pod": "p",
                "node": "n1",
                "scheduler": "second",
                "priority": "7",
            }
            found[sample.name.rpartition("_")[2], resource, unit] = sample.value
    return found


async def test_requests_and_limits_are_shown_in_cores_bytes_and_integers() -> None:
    requests = {"cpu": "250m", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}
    limits = {"cpu": "1", "memory": "2Gi", "example.com/gpu": "2"}
    assert await shown(a_pod(containers=[container(requests, limits)])) == {
        ("request", "cpu", "cores"): 0.25,
        ("request", "memory", "bytes"): 2**30,
        ("request", "hugepages-2Mi", "bytes"): 4 * 2**20,
        ("request", "example.com/gpu", "integer"): 2,
        ("limit", "cpu", "cores"): 1,
        ("limit", "memory", "bytes"): 2 * 2**30,
        ("limit", "example.com/gpu", "integer"): 2,
    }


async def test_limit_is_the_larger_of_init_and_main_containers_plus_overhead() -> None:
    found = await shown(
        a_pod(
            initContainers=[container({"cpu": "3"}, {"cpu": "4"})],
            containers=[container({"cpu": "1"}, {"cpu": "1"}), container({"cpu": "1"}, {"cpu": "1"})],
            overhead={"cpu": "100m", "memory": "64Mi"},
        )
    )
    assert found == {
        ("request", "cpu", "cores"): 3.1,
        ("request", "memory", "bytes"): 64 * 2**20,
        ("limit", "cpu", "cores"): 4.1,
    }


async def test_zero_amounts_are_not_shown_and_pods_kept_as_bytes_are_not_parsed() -> None:
    pod = a_pod(containers=[container({"cpu": "0"})])
    assert pod.object is not None
    pod.object.release()
    assert await pod_resources_text([pod]) == b""
    assert not pod.object.is_parsed
