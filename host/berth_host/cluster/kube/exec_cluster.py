"""Describes the cluster to an exec plugin with `provideClusterInfo`. Called by `credentials`.

Source: client-go `tools/auth/exec/exec.go` and `pkg/apis/clientauthentication` (Cluster), v1.36.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from berth_host.cluster.kube.kubeconfig import Entry

EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The name of the extension of a kubeconfig's cluster that is passed on unchanged."""


def cluster_of(entry: Entry, master: str) -> dict[str, Any]:
    """Return `spec.cluster` of the ExecCredential. `master`: a URL that overrides the file's server.

    Raises OSError for a certificate-authority that cannot be read.
    """
    cluster = entry.content["clusters"][0]["cluster"]
    authorities = entry.authorities
    if authorities is None and cluster.get("certificate-authority"):
        authorities = (entry.folder / cluster["certificate-authority"]).read_bytes()
    found: dict[str, Any] = {
        "server": master or cluster["server"],
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authorities or b"").decode(),
        "proxy-url": cluster.get("proxy-url"),
        "disable-compression": cluster.get("disable-compression"),
    }
    # Go leaves out empty fields, except `config`.
    return {**{name: value for name, value in found.items() if value}, "config": _extension(cluster)}


def _extension(cluster: Mapping[str, Any]) -> Any:
    listed = cluster.get("extensions")
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and item.get("name") == EXTENSION:
            return item.get("extension")
    return None
