"""The work of a cluster on a Deployment, as far as one machine can: its pod is acted out, as it changes.

For walks of pages that deploy berth: there is no controller of Deployments and no kubelet. Pods of
`helm test` are run to their end, once they have a node.
"""

from __future__ import annotations

import threading
import urllib.error
from pathlib import Path
from types import TracebackType
from typing import Final

from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import RealServers
from support.acted_pod import ActedPod
from support.chart import Json
from support.waiting import wait_until

_LOOKS_S: Final = 0.3
_HOOK: Final = "helm.sh/hook"
_CHECKSUM: Final = "config.berth.io/checksum"
_ENDS_WITHIN_S: Final = 90.0


class Kubelet:
    """Acts out one replica of every Deployment of one namespace, on a free port of loopback, and tests."""

    def __init__(self, servers: RealServers, namespace: str, folder: Path) -> None:
        self._servers = servers
        self._namespace = namespace
        self._folder = folder
        self._pods: dict[tuple[str, str], ActedPod] = {}
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.started: list[Path] = []
        """The folders of the pods, in order."""
        self._problem: Exception | None = None

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(_ENDS_WITHIN_S)
        for pod in self._pods.values():
            pod.stop()
        if error is not None and self._problem is not None:
            error.add_note(f"a pod could not be started: {self._problem!r}")

    def _work(self) -> None:
        try:
            while not self._stopping.wait(_LOOKS_S):
                self._look()
        except (OSError, RuntimeError, LookupError) as err:
            self._problem = err

    def settle(self) -> None:
        """Wait until the pods are those that the Deployments ask for, and ready.

        Raises RuntimeError where a pod could not be started, and TimeoutError.
        """
        wait_until(lambda: self._problem is not None or self._is_settled(), self._said)
        if self._problem is not None:
            raise RuntimeError("a pod could not be started") from self._problem

    def _said(self) -> str:
        return "\n".join(pod.log_of("scheduler")[-2000:] for pod in self._pods.values())

    def _is_settled(self) -> bool:
        with self._changing:
            ready = [pod.probe(pod.spec["containers"][0], "readinessProbe") for pod in self._pods.values()]
            return self._pods.keys() == self._wanted().keys() and all(code == 200 for code in ready)

    def _look(self) -> None:
        with self._changing:
            wanted = self._wanted()
            for key in self._pods.keys() - wanted.keys():
                self._pods.pop(key).stop()
            for key in wanted.keys() - self._pods.keys():
                self._pods[key] = self._start(wanted[key])
        for pod in self._items("api/v1", "pods"):
            if "deletionTimestamp" in pod["metadata"]:
                self._let_go(pod)
            elif _HOOK in (pod["metadata"].get("annotations") or {}) and pod["spec"].get("nodeName"):
                self._run(pod)

    def _wanted(self) -> dict[tuple[str, str], Json]:
        """Return the Deployments, by name and checksum of their configuration."""
        wanted = {}
        for one in self._items("apis/apps/v1", "deployments"):
            template = one["spec"]["template"]
            version = (template["metadata"].get("annotations") or {}).get(_CHECKSUM, "")
            wanted[one["metadata"]["name"], version] = one
        return wanted

    def _start(self, deployment: Json) -> ActedPod:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        words = [word for word in container["args"] if not word.startswith("--secure-port")]
        port = free_port()
        container["args"] = [*words, f"--secure-port={port}", "--bind-address=127.0.0.1"]
        container["ports"][0]["containerPort"] = port
        pod = ActedPod(self._servers, deployment, self._configmaps(), self._new_folder())
        pod.start()
        return pod

    def _run(self, pod: Json) -> None:
        if pod["status"]["phase"] != "Pending":
            return
        acted = ActedPod(
            self._servers, {**pod, "spec": {"template": pod}}, self._configmaps(), self._new_folder()
        )
        phase = "Failed" if acted.run_to_its_end() else "Succeeded"
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}/status"
        change = {"status": {"phase": phase}}
        self._servers.request("PATCH", path, change, content_type="application/merge-patch+json")

    def _let_go(self, pod: Json) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}"
        self._servers.request("DELETE", path, body)

    def _configmaps(self) -> dict[str, Json]:
        return {one["metadata"]["name"]: one for one in self._items("api/v1", "configmaps")}

    def _new_folder(self) -> Path:
        folder = self._folder / f"pod-{len(self.started)}"
        folder.mkdir()
        self.started.append(folder)
        return folder

    def _items(self, api: str, resource: str) -> list[Json]:
        try:
            found = self._servers.request("GET", f"/{api}/namespaces/{self._namespace}/{resource}")
        except urllib.error.HTTPError as err:
            if err.code == 404:
                return []
            raise
        items: list[Json] = found["items"]
        return items
