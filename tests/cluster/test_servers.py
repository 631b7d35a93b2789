"""The test servers are the real ones, and a test finds them empty."""

from __future__ import annotations

import subprocess

from support.emptying import empty
from support.real_servers import PROGRAMS, VERSION, RealServers, program

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
    assert servers.request("GET", "/version")["gitVersion"] == VERSION


def test_programs_are_of_that_version(servers: RealServers) -> None:
    for name in PROGRAMS:
        if name not in ("etcd", "kubectl"):
            said = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True)
            assert said.stdout.strip() == f"Kubernetes {VERSION}"


def test_a_pod_can_be_made_and_all_of_it_goes_away(empty_servers: RealServers) -> None:
    empty_servers.create("/api/v1/nodes", NODE)
    empty_servers.create("/api/v1/namespaces/default/pods", POD)
    assert empty_servers.request("GET", "/api/v1/nodes/n1")["status"]["allocatable"] == {"cpu": "4"}
    empty(empty_servers)
    assert empty_servers.request("GET", "/api/v1/nodes")["items"] == []
    assert empty_servers.request("GET", "/api/v1/pods")["items"] == []
