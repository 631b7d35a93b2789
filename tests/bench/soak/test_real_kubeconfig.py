"""A user's kubeconfig is changed to use the proxy, and all else in it stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench.soak.clusters import SoakError
from berth_bench.soak.real_kubeconfig import RealKubeconfig
from berth_host.errors.cluster import ClientConfigError


def written(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "other", "cluster": {"server": "https://o"}},
            {"name": "c", "cluster": cluster},
        ],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def through(path: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cluster and the user of the file that the host gets."""
    made = folder / "made.json"
    RealKubeconfig(path).write_through("http://127.0.0.1:7", made)
    assert made.stat().st_mode & 0o777 == 0o600
    content = json.loads(made.read_text())
    (cluster,) = (one["cluster"] for one in content["clusters"] if one["name"] == "c")
    return cluster, content["users"][0]["user"]


def test_certificate_is_checked_for_the_servers_own_name(tmp_path: Path) -> None:
    path = written(tmp_path, {"server": "https://api.example.com/prefix"})
    assert RealKubeconfig(path).server.geturl() == "https://api.example.com:443/prefix"
    cluster, user = through(path, tmp_path)
    assert cluster == {"server": "https://127.0.0.1:7/prefix", "tls-server-name": "api.example.com"}
    assert user == {"token": "t"}


def test_server_name_in_the_file_stays(tmp_path: Path) -> None:
    path = written(tmp_path, {"server": "https://10.0.0.1:6443", "tls-server-name": "api"})
    assert through(path, tmp_path)[0] == {"server": "https://127.0.0.1:7", "tls-server-name": "api"}


def test_server_without_tls_or_without_verification_gets_no_server_name(tmp_path: Path) -> None:
    for cluster in ({"server": "http://h:1"}, {"server": "https://h:1", "insecure-skip-tls-verify": True}):
        made, _ = through(written(tmp_path, cluster), tmp_path)
        assert "tls-server-name" not in made


def test_relative_file_names_work_from_the_other_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    user = {
        "client-certificate": "me.crt",
        "client-key": "/keys/me.key",
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "bin/login",
            "interactiveMode": "Never",
        },
    }
    path = written(inner, {"server": "https://h:1", "certificate-authority": "ca.crt"}, user)
    cluster, made = through(path, tmp_path)
    assert cluster["certificate-authority"] == str(inner / "ca.crt")
    assert (made["client-certificate"], made["client-key"]) == (str(inner / "me.crt"), "/keys/me.key")
    assert made["exec"]["command"] == str(inner / "bin/login")


def test_kubeconfig_with_a_proxy_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"server": "https://h:1", "proxy-url": "http://proxy:3128"})
    with pytest.raises(SoakError, match="has a proxy-url"):
        RealKubeconfig(path)


def test_file_that_is_not_a_kubeconfig_is_refused_with_the_clients_message(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("kind: Pod")
    with pytest.raises(ClientConfigError, match="is not a kubeconfig"):
        RealKubeconfig(tmp_path / "config")
