"""Without --server: the leader is found in the cluster and reached through `kubectl port-forward`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from support import fake_kubectl
from support.serving import Served

from .conftest import run

Json = dict[str, Any]


class SmallApi:
    """As much of an API server as finding the leader needs.

    `leases`: holders by `namespace/name`, all with berth's label but those in `unlabelled`.
    `taken_over`: Leases whose label is that of an earlier holder.
    """

    def __init__(self) -> None:
        self.leases: dict[str, str] = {"berth/team-a-berth": "berth-1_6ba7b810"}
        self.unlabelled: set[str] = set()
        self.taken_over: set[str] = set()
        self.pods: list[Json] = [scheduler("berth-0"), scheduler("berth-1")]
        self.status = 200
        self.tokens: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.status != 200:
            return self._problem(self.status, "pods is forbidden")
        parts = request.path.strip("/").split("/")
        if parts[-1] == "leases":
            assert request.query["labelSelector"] == "berth.io/scheduler"
            shown = [key for key in self.leases if key not in self.unlabelled]
            return web.json_response({"items": [self._lease(key) for key in shown]})
        if "leases" in parts:
            key = f"{parts[4]}/{parts[6]}"
            if key not in self.leases:
                return self._problem(404, f"leases {key} not found")
            return web.json_response(self._lease(key))
        found = [
            pod for pod in self.pods if "namespaces" not in parts or parts[3] == pod["metadata"]["namespace"]
        ]
        wanted = request.query.get("labelSelector", "")
        return web.json_response({"items": [pod for pod in found if wanted in ("", LABEL_OF[pod_name(pod)])]})

    def _lease(self, key: str) -> Json:
        namespace, _, name = key.partition("/")
        holder = self.leases[key]
        label = "before" if key in self.taken_over else holder.rpartition("_")[2]
        metadata = {"namespace": namespace, "name": name, "labels": {"berth.io/scheduler": label}}
        return {"metadata": metadata, "spec": {"holderIdentity": holder}}

    def _problem(self, code: int, message: str) -> web.Response:
        status = {"kind": "Status", "code": code, "message": message, "reason": "Forbidden"}
        return web.json_response(status, status=code)


LABEL_OF: Final = defaultdict(lambda: "app.kubernetes.io/name=berth", {"mine-0": "app=mine"})
"""Labels of pods by their names."""


def pod_name(pod: Json) -> str:
    name: str = pod["metadata"]["name"]
    return name


def scheduler(name: str, phase: str = "Running", **spec: Any) -> Json:
    """Return a pod of a berth scheduler, in namespace berth."""
    return {"metadata": {"namespace": "berth", "name": name}, "spec": spec, "status": {"phase": phase}}


@pytest_asyncio.fixture
async def api() -> AsyncIterator[tuple[SmallApi, int]]:
    api = SmallApi()
    runner = web.ServerRunner(web.Server(api.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield api, runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
def notes(tmp_path: Path, port: Served, api: tuple[SmallApi, int], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a kubectl on the PATH, with a kubeconfig of two contexts, and return the log of its calls."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fake_kubectl.install(programs)
    kubeconfig = tmp_path / "kubeconfig"
    contexts = [
        {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "shop"}},
        {"name": "plain", "context": {"cluster": "here", "user": "me"}},
    ]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": contexts,
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{api[1]}"}}],
        "users": [{"name": "me", "user": {"token": "reads"}}],
    }
    kubeconfig.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nowhere{os.pathsep}{kubeconfig}")
    monkeypatch.setenv("FAKE_KUBECTL_TARGET", str(port.endpoints.server.port))
    monkeypatch.setenv("FAKE_KUBECTL_NOTES", str(tmp_path / "notes"))
    return tmp_path / "notes"


async def test_leader_is_queried_through_kubectl_which_ends_afterwards(
    notes: Path, api: tuple[SmallApi, int]
) -> None:
    result = await run("why", "default/huge", "-o", "json")
    assert result.exit_code == 3, result.output
    assert json.loads(result.stdout)["state"] == "unschedulable"
    said = notes.read_text().split("\n")
    assert said[:-2] == [
        "--namespace",
        "berth",
        "port-forward",
        "--address",
        "127.0.0.1",
        "pod/berth-1",
        ":10259",
    ]
    assert said[-2] == "ended", "the child outlives the question"
    assert set(api[0].tokens) == {"Bearer reads"}


async def test_options_of_kubectl_and_of_the_scheduler_are_passed_on(notes: Path) -> None:
    kubeconfig = os.environ["KUBECONFIG"].split(os.pathsep)[1]
    result = await run("plugins", "--kubeconfig", kubeconfig, "--context", "plain", "--scheduler-port", "443")
    assert result.exit_code == 0, result.output
    said = notes.read_text().splitlines()
    assert said[:2] == [f"--kubeconfig={kubeconfig}", "--context=plain"]
    assert said[-2] == ":443"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "key"),
    [(("why", "web"), "shop/web"), (("why", "web", "--context", "plain"), "default/web")],
)
async def test_default_namespace_is_that_of_the_context(
    notes: Path, arguments: tuple[str, ...], key: str
) -> None:
    result = await run(*arguments)
    if key == "default/web":
        assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "default/web: on node small-0")
    else:
        assert (result.exit_code, f"no pod {key} is known" in result.stderr) == (4, True)


@pytest.mark.slow
async def test_leader_is_found_by_the_name_of_its_lease_and_by_its_node(
    notes: Path, api: tuple[SmallApi, int]
) -> None:
    small, _ = api
    small.leases = {"berth/mine": "node-7_6ba7b810"}
    small.pods = [
        scheduler("other", nodeName="node-7"),
        scheduler("mine-0", nodeName="node-7", hostNetwork=True),
        scheduler("berth-abc", nodeName="node-7", hostNetwork=True),
    ]
    result = await run("plugins", "--lease", "berth/mine")
    assert result.exit_code == 0, result.output
    assert "pod/berth-abc" in notes.read_text()


@pytest.mark.slow
async def test_released_lease_of_a_release_that_is_gone_does_not_count(
    notes: Path, api: tuple[SmallApi, int]
) -> None:
    api[0].leases = {"berth/first": "", "berth/second": "berth-0_6ba7b810"}
    result = await run("plugins")
    assert result.exit_code == 0, result.output
    assert "pod/berth-0" in notes.read_text()


@pytest.mark.slow
async def test_lease_that_kube_scheduler_took_over_does_not_count(
    notes: Path, api: tuple[SmallApi, int]
) -> None:
    small, _ = api
    small.leases = {"berth/second": "berth-0_6ba7b810", "kube-system/kube-scheduler": "node-1_52d9b0c1"}
    small.taken_over = {"kube-system/kube-scheduler"}
    result = await run("plugins")
    assert result.exit_code == 0, result.output
    assert "pod/berth-0" in notes.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pod", "more"),
    [("berth-0", ()), ("mine-0", ("--selector", "app=mine"))],
)
async def test_pod_in_another_namespace_than_its_lease_is_found_by_its_labels(
    notes: Path, api: tuple[SmallApi, int], pod: str, more: tuple[str, ...]
) -> None:
    small, _ = api
    small.leases = {"kube-system/kube-scheduler": f"{pod}_6ba7b810"}
    small.pods.append(scheduler("mine-0"))
    result = await run("plugins", *more)
    assert result.exit_code == 0, result.output
    assert f"pod/{pod}" in notes.read_text()


@pytest.mark.slow
async def test_scheduler_without_a_lease_is_the_only_pod_with_the_labels(
    notes: Path, api: tuple[SmallApi, int]
) -> None:
    small, _ = api
    small.unlabelled = set(small.leases)
    small.pods = [scheduler("berth-0"), scheduler("berth-1", phase="Succeeded")]
    result = await run("plugins")
    assert result.exit_code == 0, result.output
    assert "pod/berth-0" in notes.read_text()


@pytest.mark.slow
async def test_missing_lease_or_pod_is_named_with_the_cure(
    notes: Path, api: tuple[SmallApi, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, _ = api

    async def problem(*more: str) -> str:
        result = await run("plugins", *more)
        assert result.exit_code in (1, 2), result.output
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        return result.stderr

    assert "there is no context 'gone'" in await problem("--context", "gone")
    assert "write it as NAMESPACE/NAME" in await problem("--lease", "mine")
    assert "leases" in await problem("--lease", "berth/none")
    monkeypatch.setenv("FAKE_KUBECTL_FAILURE", "error: unable to forward port because pod is not running")
    assert "failed: error: unable to forward port because pod is not running" in await problem()
    small.leases = {"berth/team-a-berth": ""}
    assert "no scheduler holds the Lease berth/team-a-berth" in await problem()
    small.leases = {"berth/team-a-berth": "laptop_6ba7b810"}
    assert "it may run outside the cluster" in await problem()
    small.leases = {"a/one": "berth-0_1", "berth/two": "berth-1_2", "gone/old": ""}
    assert (
        "2 Leases have the label berth.io/scheduler: a/one (held by berth-0_1), berth/two (held by"
        " berth-1_2); choose one with --lease NAMESPACE/NAME"
    ) in await problem()
    small.leases = {}
    assert "2 pods run with the label app.kubernetes.io/name=berth, and no Lease" in await problem()
    small.pods = [scheduler("berth-0", phase="Pending")]
    assert "no pod runs with the label app.kubernetes.io/name=berth" in await problem()
    small.status = 403
    assert "the scheduler's pod cannot be looked up: " in await problem()
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert "there is no kubeconfig /nowhere/config" in await problem()


async def test_missing_kubectl_is_named_with_the_cure(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    await asyncio.to_thread(empty.mkdir)
    monkeypatch.setenv("PATH", str(empty))
    result = await run("plugins")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: kubectl is not on the PATH")


@pytest.mark.slow
async def test_kubectl_finds_the_installed_plugin() -> None:
    program = Path(sys.executable).parent / "kubectl-berth"
    process = await asyncio.create_subprocess_exec(
        str(program), "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    assert (process.returncode, stdout[:14]) == (0, b"kubectl berth "), stderr
