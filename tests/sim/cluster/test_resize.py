"""The resize subresource of pods: what it changes, what it leaves, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.cluster import InvalidError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject
from berth_sim.cluster.resize import qos_class
from berth_sim.cluster.server import ApiServer

Json = dict[str, Any]
STORAGE: Json = {"ephemeral-storage": "1Gi"}


def container(name: str = "app", image: str = "a", limits: Json | None = None, **requests: str) -> Json:
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    return {"name": name, "image": image, "resources": resources}


def pod(*containers: Json, **spec: Any) -> Json:
    metadata = {"name": "p", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [*containers], **spec},
    }


@pytest.fixture
def server() -> ApiServer:
    made = ApiServer(ManualClock(0.0))
    made.create(pod(container(cpu="2", memory="1Gi")))
    return made


def resized(server: ApiServer, *containers: Json, **spec: Any) -> KubeObject:
    return server.update(pod(*containers, **spec), subresource="resize")


def refusal(server: ApiServer, *containers: Json) -> str:
    (before,) = server.list("pods")
    with pytest.raises(InvalidError) as caught:
        resized(server, *containers)
    assert server.list("pods") == [before]
    return str(caught.value)


def test_requests_change_and_nothing_else_does(server: ApiServer) -> None:
    (before,) = server.list("pods")
    after = resized(server, container(image="b", cpu="100m", memory="2Gi"), nodeName="n1", priority=7)
    (own,) = after.get("spec.containers")
    assert own["resources"]["requests"] == {"cpu": "100m", "memory": "2Gi"}
    assert (own["image"], after.get("spec.nodeName")) == ("a", before.get("spec.nodeName"))
    assert after.get("spec.priority") == before.get("spec.priority")
    assert after.get("status") == before.get("status")
    assert after.get("metadata.generation") == before.get("metadata.generation") + 1


def test_resize_to_what_it_has_changes_nothing(server: ApiServer) -> None:
    (before,) = server.list("pods")
    assert resized(server, container(cpu="2", memory="1Gi")) is before


@pytest.mark.parametrize(
    ("containers", "problem"),
    [
        pytest.param([container("other", cpu="1", memory="1Gi")], "added, removed or renamed", id="renamed"),
        pytest.param([container(cpu="1", memory="1Gi"), container("b")], "added, removed or", id="added"),
        pytest.param([container(cpu="2", memory="1Gi", **STORAGE)], "only cpu and memory", id="other"),
        pytest.param([container(memory="1Gi")], "cpu: Invalid value: cannot be removed", id="removed"),
        pytest.param([container(cpu="much", memory="1Gi")], "requests.cpu: Invalid", id="no quantity"),
        pytest.param(
            [container(limits={"cpu": "2", "memory": "1Gi"}, cpu="2", memory="1Gi")],
            "the QoS class",
            id="class",
        ),
    ],
)
def test_change_that_is_no_resize_is_refused(server: ApiServer, containers: list[Json], problem: str) -> None:
    assert problem in refusal(server, *containers)


def test_only_pods_can_be_resized(server: ApiServer) -> None:
    node = server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    with pytest.raises(InvalidError, match="subresource 'resize' is not known: use status"):
        server.update(dict(node.parsed), subresource="resize")


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([container()], "BestEffort", id="nothing"),
        pytest.param([container(cpu="0")], "BestEffort", id="zero"),
        pytest.param([container(cpu="1")], "Burstable", id="requests alone"),
        pytest.param([container(limits={"cpu": "1", "memory": "1"})], "Guaranteed", id="limits alone"),
        pytest.param([container(limits={"cpu": "1", "memory": "1"}, cpu="0.5")], "Burstable", id="below"),
        pytest.param(
            [container(limits={"cpu": "1", "memory": "1"}, cpu="1000m", memory="1"), container("b")],
            "Burstable",
            id="one of two",
        ),
    ],
)
def test_qos_class_follows_from_requests_and_limits(containers: list[Json], expected: str) -> None:
    assert qos_class({"containers": containers}) == expected
