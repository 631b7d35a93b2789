"""A whole cluster on loopback without machines: the real servers, their controllers, and kwok's nodes.

Called by tests/cluster/e2e/run.py. kwok plays the kubelets: it makes nodes ready, renews their leases, says
of bound pods that they run, and lets deleted ones go, by the stages that its own module has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import (
    RealServers,
    ServerError,
    program,
    programs_folder,
)
from support.places import ROOT

Json = dict[str, Any]
PROGRAMS: Final = ("kwok", "e2e.test")
"""The programs that `make e2e` builds beyond the servers."""
CURE: Final = "run `make e2e` (it needs Go), which builds them"
NODES: Final = 4
ZONES: Final = 2
POD_GROUP_GATE: Final = ("--feature-gates=GenericWorkload=true",)
"""The flag with which schedulers and kube-controller-manager know pod groups."""
_OF_POD_GROUPS: Final = "FeatureGate: containsAny GenericWorkload"
READY_WITHIN_S: Final = 90.0
_KWOK_MODULE: Final = ROOT / "tests/cluster/envtest/kwok"
_STAGES: Final = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
_LEFT_FOR_MS: Final = 500
_ENDS_WITHIN_S: Final = 20.0


def missing_e2e_programs() -> str:
    """Return the programs that are missing beyond the servers, and the cure; empty where all is there."""
    missing = [name for name in PROGRAMS if not os.access(program(name), os.X_OK)]
    return f"no {', '.join(missing)} in {programs_folder()}: {CURE}" if missing else ""


def kwok_stages() -> list[Json]:
    """Return the Stages of kwok's module, where Go keeps modules. Raises ServerError."""
    asked = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]
    done = subprocess.run(asked, cwd=_KWOK_MODULE, capture_output=True, text=True, check=False)
    folder = done.stdout.strip()
    if done.returncode or not folder:
        raise ServerError(f"kwok's module is not where Go keeps modules: {CURE}\n{done.stderr}")
    return stages_of(Path(folder))


def stages_of(module: Path) -> list[Json]:
    """Return the Stages of the folders that are used, as kwok is given them. Raises ServerError where one has
    none.

    kwok deletes by name: of a pod that is gone already, the next one of that name. A deleted pod is therefore
    left for a moment, as a kubelet leaves it, and kwok sees it go first if somebody else removes it.
    """
    found: list[Json] = []
    for folder in _STAGES:
        files = sorted((module / "kustomize/stage" / folder).glob("*.yaml"))
        stages = [stage for path in files if (stage := yaml.safe_load(path.read_text()))["kind"] == "Stage"]
        if not stages:
            raise ServerError(f"{module} has no stage {folder}")
        found += stages
    for stage in found:
        if stage["spec"]["next"].get("delete"):
            stage["spec"]["delay"] = {"durationMilliseconds": _LEFT_FOR_MS}
    return found


def fake_node(number: int) -> Json:
    """Return a node as a kubelet would register it, in one of the zones."""
    name = f"node-{number}"
    addresses = [
        {"type": "InternalIP", "address": f"10.1.0.{number + 1}"},
        {"type": "Hostname", "address": name},
    ]
    room = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
            },
        },
        "status": {"capacity": room, "allocatable": room, "addresses": addresses},
    }


@contextlib.contextmanager
def cluster(folder: Path, *, pod_groups: bool = False) -> Iterator[RealServers]:
    """Yield the servers, kube-controller-manager, kwok and ready nodes, while it is entered. Raises
    ServerError.

    `pod_groups`: the cluster serves pod groups, and its controllers know them.
    """
    # Specs of pod groups make privileged pods, as a cluster lets its admins do.
    more = ("--allow-privileged=true",)
    with RealServers(folder / "servers", controllers=True, pod_groups=pod_groups, more=more) as servers:
        for number in range(NODES):
            servers.create("/api/v1/nodes", fake_node(number))
        manager_flags = [*_controller_flags(servers, folder), *(POD_GROUP_GATE if pod_groups else ())]
        with (
            _running(folder, "kube-controller-manager", manager_flags) as manager,
            _running(folder, "kwok", _kwok_flags(servers, folder)) as kwok,
        ):
            _wait_for_nodes(servers, {"kube-controller-manager": manager, "kwok": kwok}, folder)
            yield servers


async def run_specs(
    servers: RealServers, folder: Path, *, focus: Sequence[str] = (), pod_groups: bool = False
) -> Path:
    """Run Kubernetes' scheduling specs on the cluster; the path of Ginkgo's JSON report.

    `focus`: regular expressions of spec names; without any, all that no feature gate has to be on for.
    `pod_groups`: run the specs that need the gate of pod groups instead.
    A spec that fails is the report's matter; that there is no report is the caller's.
    """
    report = folder / "report.json"
    wanted = focus or (r"\[sig-scheduling\]",)
    command = [
        str(program("e2e.test")),
        f"--kubeconfig={servers.kubeconfig()}",
        "--provider=skeleton",
        f"--num-nodes={NODES}",
        f"--e2e-output-dir={folder}",
        f"--ginkgo.json-report={report}",
        f"--ginkgo.label-filter={_OF_POD_GROUPS if pod_groups else 'Feature: isEmpty'}",
        "--ginkgo.seed=1",
        "--ginkgo.timeout=3h",
        "--ginkgo.no-color",
        "--ginkgo.v",
        *(f"--ginkgo.focus={one}" for one in wanted),
    ]
    with (folder / "e2e.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    return report


def _controller_flags(servers: RealServers, folder: Path) -> list[str]:
    return [
        f"--kubeconfig={servers.kubeconfig()}",
        f"--service-account-private-key-file={servers.service_account_key}",
        f"--root-ca-file={servers.ca_file}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / 'controller-certificates'}",
    ]


def _kwok_flags(servers: RealServers, folder: Path) -> list[str]:
    stages = folder / "stages.yaml"
    stages.write_text(yaml.safe_dump_all(kwok_stages()))
    return [
        f"--kubeconfig={servers.kubeconfig()}",
        f"--config={stages}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        "--server-address=",
    ]


@contextlib.contextmanager
def _running(folder: Path, name: str, flags: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # A folder of its own as home: kwok reads and writes a folder of its user's otherwise.
    environment = {**os.environ, "HOME": str(folder)}
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [program(name), *flags],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_nodes(
    servers: RealServers, processes: dict[str, subprocess.Popen[bytes]], folder: Path
) -> None:
    """Until every node is ready and has lost its taints."""
    ends_s = time.monotonic() + READY_WITHIN_S
    while True:
        for name, process in processes.items():
            if process.poll() is not None:
                end = (folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise ServerError(f"{name} ended with {process.returncode}:\n{end}")
        nodes = servers.request("GET", "/api/v1/nodes")["items"]
        if all(is_usable(node) for node in nodes):
            return
        if time.monotonic() > ends_s:
            states = json.dumps([{"taints": node["spec"].get("taints"), **node["status"]} for node in nodes])
            raise ServerError(f"the nodes were not ready in {READY_WITHIN_S:.0f} s: {states[:2000]}")
        time.sleep(0.2)


def is_usable(node: Json) -> bool:
    """Whether a node says that it is ready, and no taint keeps pods away."""
    conditions = node["status"].get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not node["spec"].get("taints")
