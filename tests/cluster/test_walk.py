"""Every block of docs/how-to/run-on-a-cluster.md and deploy.md, on a real API server."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from berth_bench.versus.real_servers import NOBODY, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from docs.pages import DOCS, Block, Page
from docs.workspace import Workspace
from support.kubelet import Kubelet
from support.places import ROOT
from support.waiting import until

pytestmark = pytest.mark.long

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="berth-walk-"))
    (path / ".venv").symlink_to(sys.prefix)
    yield path
    shutil.rmtree(path)  # removes the link to .venv, not its target


@pytest.mark.long
def test_a_new_user_comes_from_a_kubeconfig_to_a_bound_pod(
    empty_servers: RealServers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_servers.create("/api/v1/nodes", NODE)
    monkeypatch.setenv("KUBECONFIG", str(empty_servers.kubeconfig()))
    monkeypatch.setenv("PATH", f"{program('kubectl').parent}{os.pathsep}{os.environ['PATH']}")
    workspace = Workspace(Page(DOCS / "how-to/run-on-a-cluster.md"), folder)
    try:
        workspace.run()
    finally:
        workspace.close()


@pytest.mark.long
def test_a_new_user_deploys_the_chart(
    empty_servers: RealServers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of helm are run as processes here: the Deployment of the page binds the page's pod."""
    empty_servers.create("/api/v1/nodes", NODE)
    monkeypatch.setenv("KUBECONFIG", str(empty_servers.kubeconfig()))
    monkeypatch.setenv("PATH", f"{program('kubectl').parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HELM_CACHE_HOME", str(folder / "helm"))
    monkeypatch.setenv("HELM_CONFIG_HOME", str(folder / "helm"))
    monkeypatch.setenv("HELM_DATA_HOME", str(folder / "helm"))
    (folder / "deploy").symlink_to(ROOT / "deploy")
    pods = folder / "pods"
    pods.mkdir()
    workspace = Workspace(Page(DOCS / "how-to/deploy.md"), folder)
    with Kubelet(empty_servers, "berth-system", pods) as kubelet:

        def after(block: Block) -> None:
            if block.text.startswith(("helm install", "helm upgrade", "helm rollback", "helm uninstall")):
                kubelet.settle()

        try:
            workspace.run(after)
        finally:
            workspace.close()
    # The pod of the upgrade had a plugin; the pods before and after had none.
    schedulers = [path for path in kubelet.started if (path / "scheduler.log").exists()]
    assert [(path / "blinking-light-scorer.log").exists() for path in schedulers] == [False, True, False]
    (tested,) = [path for path in kubelet.started if path not in schedulers]
    assert "profile berth" in (tested / "test.log").read_text()


async def test_the_rights_of_the_page_are_enough(
    empty_servers: RealServers, folder: Path, tmp_path: Path
) -> None:
    page = Page(DOCS / "how-to/run-on-a-cluster.md")
    configuration = next(block.text for block in page.blocks if block.directives.get("file") == "berth.yaml")
    (rights,) = [block.text for block in page.blocks if "RoleBinding" in block.text]
    made = []
    for document in yaml.safe_load_all(rights):
        if "subjects" in document:
            document["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}]
        namespace = document["metadata"].get("namespace")
        within = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/rbac.authorization.k8s.io/v1{within}/{document['kind'].lower()}s"
        empty_servers.create(path, document)
        made.append(f"{path}/{document['metadata']['name']}")
    setup = SchedulerSetup(
        program="berth",
        kubeconfig=empty_servers.kubeconfig(NOBODY),
        folder=tmp_path,
        configuration=configuration,
    )
    process = SchedulerProcess(setup)
    try:
        await process.start()
        await process.ready()
        # A standby process is ready before its host starts.
        await until(lambda: "host.started" in process.log.read_text())
        assert await process.stop() == 0
    finally:
        await process.kill()
        for path in made:
            empty_servers.request("DELETE", path)
    assert "forbidden" not in process.log.read_text()
