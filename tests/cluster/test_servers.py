"""The test servers are real ones, and empty at the start of every test."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import (
    ADMIN,
    NOBODY,
    PROGRAMS,
    SCHEDULER,
    RealServers,
    chosen_release,
    program,
)
from support.certificates import Authority
from support.emptying import empty
from support.places import ROOT

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4"}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "finalizers": ["example.com/held"]},
    "spec": {"containers": [{"name": "c", "image": "app"}]},
}


def test_the_server_says_its_version(servers: RealServers) -> None:
    assert servers.request("GET", "/version")["gitVersion"] == chosen_release()


def test_programs_are_of_that_version(servers: RealServers) -> None:
    for name in PROGRAMS:
        if name not in ("etcd", "kubectl", "helm"):
            said = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True)
            assert said.stdout.strip() == f"Kubernetes {chosen_release()}"


@pytest.mark.usefixtures("servers")
def test_helm_is_of_the_version_that_its_module_names() -> None:
    module = (ROOT / "tests/cluster/envtest/helm/go.mod").read_text()
    said = subprocess.run([program("helm"), "version", "--short"], capture_output=True, text=True, check=True)
    assert f"helm.sh/helm/v3 {said.stdout.strip().partition('+')[0]} " in module


def test_pod_can_be_created_and_wiped(empty_servers: RealServers) -> None:
    empty_servers.create("/api/v1/nodes", NODE)
    empty_servers.create("/api/v1/namespaces/default/pods", POD)
    assert empty_servers.request("GET", "/api/v1/nodes/n1")["status"]["allocatable"] == {"cpu": "4"}
    empty(empty_servers)
    assert empty_servers.request("GET", "/api/v1/nodes")["items"] == []
    assert empty_servers.request("GET", "/api/v1/pods")["items"] == []


GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g1"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}
GROUPS_PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
MEMBER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "m1"},
    "spec": {"containers": [{"name": "c", "image": "app"}], "schedulingGroup": {"podGroupName": "g1"}},
}
PODS_PATH = "/api/v1/namespaces/default/pods"


@pytest.mark.long
def test_pod_group_and_its_member_can_be_created_and_wiped(empty_pod_group_servers: RealServers) -> None:
    servers = empty_pod_group_servers
    group = servers.create(GROUPS_PATH, GROUP)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert (group["spec"]["priority"], group["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert servers.create(PODS_PATH, MEMBER)["spec"]["schedulingGroup"] == {"podGroupName": "g1"}
    composite = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "c1"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "workloadRef": {"workloadName": "w1", "templateName": "t1"},
        },
    }
    servers.create("/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups", composite)
    empty(servers)
    assert servers.request("GET", GROUPS_PATH)["items"] == []
    assert servers.request("GET", PODS_PATH)["items"] == []


def test_server_has_no_pod_groups_by_default(empty_servers: RealServers) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        empty_servers.create(GROUPS_PATH, GROUP)
    assert caught.value.code == 404
    assert "schedulingGroup" not in empty_servers.create(PODS_PATH, MEMBER)["spec"]


def kubectl(access: Path, *arguments: str) -> str:
    """Run kubectl and return its output. Raises subprocess.CalledProcessError if it is refused."""
    done = subprocess.run(
        [program("kubectl"), f"--kubeconfig={access}", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("user", "insecure", "certificate"),
    [(ADMIN, False, False), (ADMIN, True, False), (SCHEDULER, False, False), (SCHEDULER, False, True)],
)
def test_kubeconfig_is_of_its_user(
    servers: RealServers, authority: Authority, user: str, insecure: bool, certificate: bool
) -> None:
    pair = authority.issue(user) if certificate else None
    access = servers.kubeconfig(user, insecure=insecure, certificate=pair)
    seen = json.loads(kubectl(access, "auth", "whoami", "--output=json"))
    assert seen["status"]["userInfo"]["username"] == user
    kubectl(access, "get", "nodes")


def test_users_have_only_the_rights_of_their_roles(servers: RealServers, authority: Authority) -> None:
    for certificate in (None, authority.issue(NOBODY)):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            kubectl(servers.kubeconfig(NOBODY, certificate=certificate), "get", "nodes")
        assert 'User "nobody" cannot list resource "nodes"' in caught.value.stderr
