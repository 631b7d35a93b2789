"""Several kubeconfigs are merged as kubectl merges the files of KUBECONFIG."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from berth_host.errors.cluster import ClientConfigError
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.kubeconfig import read_kubeconfig
from berth_kube.user_config import UserConfig

CONTEXT = "contexts: [{name: here, context: {cluster: c, user: u, namespace: team}}]\n"


@pytest.fixture
def three_files(tmp_path: Path) -> str:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/config").write_text(
        "users: [{name: u, user: {tokenFile: token}}]\nclusters: [{name: other, cluster: {server: 'https://x'}}]\n"
    )
    (tmp_path / "b/config").write_text(
        f"current-context: here\n{CONTEXT}clusters: [{{name: c, cluster: {{server: 'https://b:1'}}}}]\n"
        "users: [{name: u, user: {token: second}}]\n"
    )
    (tmp_path / "last").write_text(
        "current-context: last\nclusters: [{name: c, cluster: {server: 'https://last:1'}}]\n"
    )
    return os.pathsep.join(str(tmp_path / name) for name in ("nowhere", "a/config", "b/config", "last"))


def test_context_cluster_and_user_may_be_in_three_files(three_files: str, tmp_path: Path) -> None:
    entry = read_kubeconfig(three_files)
    assert entry.content["clusters"][0]["cluster"]["server"] == "https://b:1"
    assert entry.token_file == tmp_path / "a/token", "relative to the file that names it"


def test_kubectl_command_takes_the_namespace_of_the_merged_context(
    three_files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", three_files)
    found = UserConfig.find()
    assert found.namespace == "team"
    assert read_kubeconfig(found.path).content["clusters"][0]["cluster"]["server"] == "https://b:1"


async def test_files_of_which_none_exists_are_named() -> None:
    with pytest.raises(ClientConfigError, match=r"/nowhere/a.*/nowhere/b.*none of these files exists"):
        await KubeClient.open(Connection(kubeconfig=f"/nowhere/a{os.pathsep}/nowhere/b"))


async def test_host_without_a_cluster_says_what_it_looked_for_and_offers_kubectls_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClientConfigError, match=r"; set one of them \(.*~/\.kube/config, is not there"):
        await KubeClient.open(Connection())
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").touch()
    with pytest.raises(ClientConfigError, match=rf"--kubeconfig={tmp_path}/.kube/config uses kubectl's"):
        await KubeClient.open(Connection())
