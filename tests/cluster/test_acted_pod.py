"""The demo's Deployment pod, run as processes against a real API server: pods are bound through its sidecars.

Once with a read-only root and another user for each container, if the machine allows it; once without.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from berth_bench.versus.real_servers import RealServers, free_port
from support.acted_pod import ActedPod, why_not_isolated
from support.chart import VALUES, Json, of_kind, rendered, the
from support.deployed import drop, put
from support.waiting import wait_until

NODES: Final = {"general-a-1": "3", "general-b-1": "5", "general-b-3": "9"}
"""Nodes with their blinking lights: the last one has the most, and is under maintenance."""
KINDS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
PODS: Final = "/api/v1/namespaces/default/pods"
isolation: Final = why_not_isolated()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder with a short name, because it contains sockets."""
    path = Path(tempfile.mkdtemp(prefix="berth-pod-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def manifests(empty_servers: RealServers) -> Iterator[list[Json]]:
    """Create the objects of the demo's account in the cluster; return all its objects, with a free port."""
    values = {"securePort": free_port(), "extraArgs": ["-v=2", "--bind-address=127.0.0.1"]}
    made = rendered(VALUES / "demo.yaml", values=values)
    own = [one for one in made if one["kind"] in KINDS]
    for manifest in own:
        put(empty_servers, manifest)
    yield made
    for manifest in own:
        drop(empty_servers, manifest)


@pytest.fixture(
    params=[
        pytest.param(
            True,
            id="a root of its own",
            marks=[pytest.mark.skipif(bool(isolation), reason=f"no mount namespaces here: {isolation}")],
        ),
        pytest.param(False, id="folders in the place of volumes"),
    ]
)
def pod(
    request: pytest.FixtureRequest, empty_servers: RealServers, manifests: list[Json], folder: Path
) -> Iterator[ActedPod]:
    """Run the pod."""
    configmaps = {one["metadata"]["name"]: one for one in of_kind(manifests, "ConfigMap")}
    deployment = the(manifests, "Deployment")
    with ActedPod(empty_servers, deployment, configmaps, folder, isolated=request.param) as running:
        yield running


def scheduler_of(pod: ActedPod) -> Json:
    """Return the container with the name `scheduler`."""
    (found,) = pod.spec["containers"]
    container: Json = found
    return container


def add_node(servers: RealServers, name: str, lights: str) -> None:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    servers.create(
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"example.com/blinking-lights": lights}},
            "status": {"capacity": allocatable, "allocatable": allocatable},
        },
    )


def add_pod(servers: RealServers, name: str, **labels: str) -> None:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": "100m"}}}
    servers.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "berth", "containers": [container]},
        },
    )


def nodes_of(servers: RealServers) -> dict[str, str]:
    """Return every pod's node."""
    items = servers.request("GET", PODS)["items"]
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in items}


def told_of(servers: RealServers, pod: ActedPod) -> list[Json]:
    """Return the events about the scheduler's own pod."""
    events = servers.request("GET", f"/apis/events.k8s.io/v1/namespaces/{pod.metadata['namespace']}/events")[
        "items"
    ]
    return [one for one in events if one["regarding"].get("uid") == pod.metadata["uid"]]


def passed(pod: ActedPod, container: Json, which: str) -> bool:
    """Return True if a probe of the kubelet passes."""
    return pod.probe(container, which) == 200


def test_pods_are_bound_through_the_sidecars(empty_servers: RealServers, pod: ActedPod) -> None:
    scheduler = scheduler_of(pod)
    for name, lights in NODES.items():
        add_node(empty_servers, name, lights)
    for which in ("startupProbe", "livenessProbe", "readinessProbe"):
        passes = partial(passed, pod, scheduler, which)
        wait_until(passes, lambda: pod.log_of("scheduler")[-2000:])
    assert all(alive for name, alive in pod.alive().items() if name != "folders")
    active = ["Active"] * 3
    wait_until(lambda: [one["state"] for one in pod.plugins().values()] == active, lambda: str(pod.plugins()))

    # Maintenance rejects the node with most lights, and BlinkingLightScorer prefers the next one.
    add_pod(empty_servers, "single")
    # The first pod of a gang waits until the second allows it, by the socket on which plugins call the host.
    gang = {"gang.example.com/name": "g", "gang.example.com/size": "2"}
    add_pod(empty_servers, "first", **gang)
    wait_until(lambda: nodes_of(empty_servers)["single"], lambda: pod.log_of("scheduler")[-2000:])
    assert nodes_of(empty_servers) == {"single": "general-b-1", "first": ""}
    add_pod(empty_servers, "second", **gang)
    wait_until(lambda: all(nodes_of(empty_servers).values()), lambda: pod.log_of("scheduler")[-2000:])
    assert set(nodes_of(empty_servers).values()) == {"general-b-1"}

    wait_until(lambda: len(told_of(empty_servers, pod)) == 3, lambda: pod.log_of("scheduler")[-2000:])
    assert {one["reason"] for one in told_of(empty_servers, pod)} == {"PluginActive"}

    codes = pod.stop()
    assert codes["scheduler"] == 0, pod.log_of("scheduler")[-2000:]
    assert {codes["gang"], codes["blinking-light-scorer"]} == {0}


@pytest.mark.skipif(bool(isolation), reason=f"no mount namespaces here: {isolation}")
@pytest.mark.parametrize("pod", [True], indirect=True)
def test_acted_containers_have_the_restrictions_of_the_chart(pod: ActedPod) -> None:
    """Checks that the other test really runs with a read-only root, another user, and one token."""
    scheduler, sidecar = scheduler_of(pod), pod.spec["initContainers"][1]
    user = pod.run(scheduler, ["python3", "-c", "import os; print(os.getuid(), os.getgid())"])
    assert user.stdout.split() == ["65532", "65532"], user.stderr
    for place in ("/x", "/berth/x", "/etc/berth/x", "/usr/x", "/tmp/x"):
        done = pod.run(scheduler, ["python3", "-c", f"open({place!r}, 'w')"])
        assert done.returncode == 1, place
    assert pod.run(scheduler, ["python3", "-c", "open('/run/berth/host/x', 'w')"]).returncode == 0
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert pod.run(scheduler, ["cat", token]).stdout
    assert "No such file" in pod.run(sidecar, ["cat", token]).stderr
    rights = pod.run(scheduler, ["grep", "CapEff", "/proc/self/status"])
    assert int(rights.stdout.split()[1], 16) == 0


@pytest.mark.skipif(bool(isolation), reason=f"no mount namespaces here: {isolation}")
def test_without_the_folders_container_the_host_dials_no_plugin(
    empty_servers: RealServers, manifests: list[Json], folder: Path
) -> None:
    """The container is needed because every user may replace files at the top of an emptyDir."""
    text = the(manifests, "ConfigMap")["data"]["scheduler.yaml"]
    deployment = the(manifests, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    spec["initContainers"] = [one for one in spec["initContainers"] if one["name"] == "gang"]
    spec["initContainers"][0]["env"][0]["value"] = "unix:/run/berth/gang.sock"
    spec["containers"][0]["env"] = [{"name": "TMPDIR", "value": "/run/berth"}]
    configmap = {"data": {"scheduler.yaml": text.replace("/run/berth/plugins/gang", "/run/berth/gang")}}
    with ActedPod(empty_servers, deployment, {"berth": configmap}, folder, isolated=True) as pod:
        refusal = "any user may replace /run/berth/gang.sock"
        wait_until(
            lambda: refusal in pod.plugins().get("Gang", {}).get("reason", ""), lambda: str(pod.plugins())
        )
