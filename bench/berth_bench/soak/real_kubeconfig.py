"""Copy a kubeconfig file for access through a proxy on loopback.

Used by `real_cluster`: the host of a soak uses the proxy, the soak itself does not. If the server's
certificate is checked, its name is still that of the original file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from berth_kube.kubeconfig import read_kubeconfig
from berth_sdk.yaml.reader import read_one

from berth_bench.soak.clusters import SoakError

_PORTS: Final = {"http": 80, "https": 443}
_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class RealKubeconfig:
    """One file; its current context counts. `server`: its URL, with a port. Raises SoakError and
    ClientConfigError.
    """

    def __init__(self, path: Path) -> None:
        entry = read_kubeconfig(str(path))
        self.path = entry.path
        # The entry lacks what the client removes; the file is known to be valid here.
        self._content: dict[str, Any] = read_one(self.path.read_text(encoding="utf-8"))
        cluster = entry.content["clusters"][0]["cluster"]
        if cluster.get("proxy-url"):
            raise SoakError(
                f"{path}: has a proxy-url; the soak puts a proxy of its own before the server, which must be"
                " reached without another"
            )
        self.server = _with_port(str(cluster["server"]))

    def write_through(self, proxy_url: str, path: Path) -> None:
        """Write the file that reaches the server through `proxy_url`. It contains the credentials of the
        original, so only its owner can read it.
        """
        content = copy.deepcopy(self._content)
        for place in (*content["clusters"], *(content.get("users") or ())):
            part = place.get("cluster") or place.get("user")
            if isinstance(part, dict):
                self._with_absolute_paths(part)
        cluster = _current_cluster(content)
        proxy = urlsplit(proxy_url)
        cluster["server"] = self.server._replace(netloc=proxy.netloc).geturl()
        if self.server.scheme == "https" and not cluster.get("insecure-skip-tls-verify"):
            cluster.setdefault("tls-server-name", self.server.hostname)
        path.unlink(missing_ok=True)
        path.touch(0o600, exist_ok=False)
        path.write_text(json.dumps(content, default=str))

    def _with_absolute_paths(self, part: dict[str, Any]) -> None:
        for name in _FILES:
            if part.get(name):
                part[name] = str(self.path.parent / part[name])
        plugin = part.get("exec")
        # A command without a slash is searched in PATH.
        if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
            plugin["command"] = str(self.path.parent / plugin["command"])


def _current_cluster(content: Mapping[str, Any]) -> dict[str, Any]:
    contexts = {one.get("name"): one.get("context") for one in content["contexts"]}
    name = contexts[content["current-context"]]["cluster"]
    found: dict[str, Any] = next(one["cluster"] for one in content["clusters"] if one.get("name") == name)
    return found


def _with_port(url: str) -> SplitResult:
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if parts.port is not None:
        return parts
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
    return parts._replace(netloc=f"{host}:{_PORTS[parts.scheme]}")
