"""berth as the chart deploys it, on a real API server: its service account, its rights, its configuration.

    with Deployed(servers, folder, values) as berth:     # the chart's objects are there
        berth.lead()

The process runs beside the API server; a pod acted out whole is in `acted_pod`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest
import yaml
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import ADMIN, RealServers
from support.chart import Json, of_kind, rendered, the
from support.places import ROOT
from support.waiting import PATIENCE_S, wait_until

NAMESPACE: Final = "kube-system"
ACCOUNT: Final = "berth"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/{ns}/serviceaccounts",
    "ConfigMap": "/api/v1/{ns}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/{ns}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/{ns}/rolebindings",
}


def path_of(manifest: Json) -> str:
    """Return the path of the object's collection."""
    namespace = manifest["metadata"].get("namespace", "")
    return _PATHS[manifest["kind"]].format(ns=f"namespaces/{namespace}")


def put(servers: RealServers, manifest: Json) -> None:
    """Make an object, or make it what the manifest says."""
    path = path_of(manifest)
    try:
        servers.request("POST", path, manifest)
    except urllib.error.HTTPError as err:
        if err.code != 409:
            raise
        servers.request("PUT", f"{path}/{manifest['metadata']['name']}", manifest)


def drop(servers: RealServers, manifest: Json) -> None:
    """Delete an object; harmless when it is gone."""
    try:
        servers.request("DELETE", f"{path_of(manifest)}/{manifest['metadata']['name']}")
    except urllib.error.HTTPError as err:
        if err.code != 404:
            raise


def token_of(servers: RealServers, account: str = ACCOUNT, namespace: str = NAMESPACE) -> str:
    """Return a token of a service account, as the kubelet gets one for a pod."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = servers.request("POST", path, body)["status"]["token"]
    return token


@dataclass(frozen=True, slots=True)
class Running:
    """One process; `log` is its output, `port` its secure port."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def said(self) -> str:
        """All that it printed so far."""
        return self.log.read_text()

    @property
    def ended_with(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()


class Deployed:
    """The objects of the chart that a scheduler needs, and processes with its configuration."""

    def __init__(
        self, servers: RealServers, folder: Path, values: Mapping[str, Any], *, more_documents: str = ""
    ) -> None:
        self.servers = servers
        chart = rendered(values=values)
        self.manifests = [one for one in chart if one["kind"] in _PATHS]
        (container,) = the(chart, "Deployment")["spec"]["template"]["spec"]["containers"]
        self._gates = [flag for flag in container["args"] if flag.startswith("--feature-gates=")]
        text: str = the(self.manifests, "ConfigMap")["data"]["scheduler.yaml"]
        self.configuration: Json = yaml.safe_load(text.split("\n---\n")[0])
        self._folder = folder
        self._config = folder / "scheduler.yaml"
        self._config.write_text(text if not more_documents else f"{text.rstrip()}\n---\n{more_documents}")
        self._running: list[Running] = []

    def __enter__(self) -> Deployed:
        for manifest in self.manifests:
            put(self.servers, manifest)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for manifest in reversed(self.manifests):
            drop(self.servers, manifest)

    def manifest(self, kind: str, name: str = "") -> Json:
        """One of the chart's objects."""
        (found,) = [one for one in of_kind(self.manifests, kind) if name in ("", one["metadata"]["name"])]
        return found

    def start(self, name: str) -> Running:
        """Start a process; nothing is waited for."""
        port, said = free_port(), self._folder / f"{name}.log"
        kubeconfig = self.servers.kubeconfig(token=token_of(self.servers))
        path = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH", ""))))
        line = [sys.executable, "-m", "berth_host", "scheduler", f"--config={self._config}"]
        line += [f"--secure-port={port}", "--bind-address=127.0.0.1", "--logging-format=json", "-v=2"]
        line += self._gates
        with said.open("wb") as log:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, "KUBECONFIG": str(kubeconfig)},
            )
        self._running.append(Running(process, said, port))
        return self._running[-1]

    def lead(self, name: str = "scheduler") -> Running:
        """Start a process and wait until it schedules."""
        running = self.start(name)
        wait_until(
            lambda: '"host.started"' in running.said or running.ended_with is not None, lambda: running.said
        )
        if running.ended_with is not None:
            pytest.fail(f"it ended with {running.ended_with}:\n{running.said[-3000:]}")
        return running

    def stop(self) -> None:
        """End every process that was started here."""
        alive = [one.process for one in self._running if one.ended_with is None]
        for process in alive:
            process.terminate()
        for process in alive:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def get(self, path: str) -> Json | None:
        """One object as the administrator sees it; None where there is none."""
        try:
            found: Json = self.servers.request("GET", path, user=ADMIN)
        except urllib.error.HTTPError as err:
            if err.code == 404:
                return None
            raise
        return found
