"""The demo's Deployment pod, run as processes against a real API server: pods are bound through its sidecars,
to which a plugin at Permit is added that calls the host.

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
import yaml
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import RealServers
from support.acted_pod import ActedPod, why_not_isolated
from support.chart import VALUES, Json, of_kind, rendered, the
from support.deployed import drop, put
from support.waiting import wait_until

pytestmark = pytest.mark.long

NODES: Final = {"general-a-1": "3", "general-b-1": "5", "general-b-3": "9"}
"""Nodes with their blinking lights: the last one has the most, and is under maintenance."""
KINDS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
GPU: Final = "gpu-share.berth.io/gpu"
PODS: Final = "/api/v1/namespaces/default/pods"
isolation: Final = why_not_isolated()
LONG_IF_ISOLATED: Final = [] if isolation else [pytest.mark.long]
"""`make test` acts the pod in one way: the better one that this machine can do."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder with a short name, because it contains sockets."""
    path = Path(tempfile.mkdtemp(prefix="berth-pod-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def manifests(empty_servers: RealServers) -> Iterator[list[Json]]:
    """Create the objects of the demo's account in the cluster; return all its objects, with a free port."""
    values = yaml.safe_load((VALUES / "demo.yaml").read_text())
    (profile,) = values["config"]["profiles"]
    profile["plugins"]["permit"] = {"enabled": [{"name": "Probe"}]}
    command = ["berth-sdk", "serve", "tests.support.probe_plugin:Probe"]
    container = values["plugins"][0]["container"] | {"command": command}
    values["plugins"].append({"name": "Probe", "container": container})
    values |= {"securePort": free_port(), "extraArgs": ["-v=2", "--bind-address=127.0.0.1"]}
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
        pytest.param(False, id="folders in the place of volumes", marks=LONG_IF_ISOLATED),
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
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", GPU: "2", f"{GPU}-milli": "2000"}
    servers.create(
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"example.com/blinking-lights": lights}},
            "status": {"capacity": allocatable, "allocatable": allocatable},
        },
    )


def add_pod(servers: RealServers, name: str, annotations: Json, **limits: str) -> None:
    container = {"name": "c", "image": "app", "resources": {"limits": {"cpu": "100m", **limits}}}
    servers.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": "berth", "containers": [container]},
        },
    )


def pods_of(servers: RealServers) -> dict[str, Json]:
    """Return every pod, by name."""
    return {one["metadata"]["name"]: one for one in servers.request("GET", PODS)["items"]}


def nodes_of(servers: RealServers) -> dict[str, str]:
    """Return every pod's node."""
    return {name: one["spec"].get("nodeName", "") for name, one in pods_of(servers).items()}


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
    active = ["Active"] * 4
    wait_until(lambda: [one["state"] for one in pod.plugins().values()] == active, lambda: str(pod.plugins()))

    # Maintenance rejects the node with most lights, and BlinkingLightScorer prefers the next one.
    add_pod(empty_servers, "single", {})
    # GpuShare chooses a GPU, and the host writes it to the pod.
    add_pod(empty_servers, "shared", {f"{GPU}-milli": "400"}, **{f"{GPU}-milli": "400"})
    # Probe holds the pod, and allows it by the socket on which plugins call the host.
    add_pod(empty_servers, "held", {"probe.example.com/permit": "allow-later"})
    wait_until(lambda: all(nodes_of(empty_servers).values()), lambda: pod.log_of("scheduler")[-2000:])
    assert nodes_of(empty_servers) == dict.fromkeys(("single", "shared", "held"), "general-b-1")
    assert pods_of(empty_servers)["shared"]["metadata"]["annotations"][f"{GPU}-index"] in ("0", "1")

    wait_until(lambda: len(told_of(empty_servers, pod)) == 4, lambda: pod.log_of("scheduler")[-2000:])
    assert {one["reason"] for one in told_of(empty_servers, pod)} == {"PluginActive"}

    codes = pod.stop()
    assert codes["scheduler"] == 0, pod.log_of("scheduler")[-2000:]
    assert {codes["gpu-share"], codes["blinking-light-scorer"], codes["probe"]} == {0}


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
    # A sidecar has its own folder alone, and may use the host's socket but not replace it.
    listed = pod.run(sidecar, ["python3", "-c", "import os; print(os.listdir('/run/berth/plugins'))"])
    assert listed.stdout.strip() == f"['{sidecar['name']}']", listed.stderr
    assert pod.run(sidecar, ["python3", "-c", "open('/run/berth/host/x', 'r')"]).returncode == 0
    assert pod.run(sidecar, ["python3", "-c", "open('/run/berth/host/y', 'w')"]).returncode == 1
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
    spec["initContainers"] = [one for one in spec["initContainers"] if one["name"] == "gpu-share"]
    spec["initContainers"][0]["env"][0]["value"] = "unix:///run/berth/gpu-share.sock"
    mounts = [one for one in spec["initContainers"][0]["volumeMounts"] if one["name"] != "berth"]
    spec["initContainers"][0]["volumeMounts"] = [*mounts, {"name": "berth", "mountPath": "/run/berth"}]
    spec["containers"][0]["env"] = [{"name": "TMPDIR", "value": "/run/berth"}]
    configmap = {
        "data": {
            "scheduler.yaml": text.replace(
                "/run/berth/plugins/gpu-share/plugin.sock", "/run/berth/gpu-share.sock"
            )
        }
    }
    with ActedPod(empty_servers, deployment, {"berth": configmap}, folder, isolated=True) as pod:
        refusal = "any user may replace /run/berth/gpu-share.sock"
        wait_until(
            lambda: refusal in pod.plugins().get("GpuShare", {}).get("reason", ""), lambda: str(pod.plugins())
        )
