"""`Server`: the API server's address, its trusted CAs and the token, from a kubeconfig or a pod's files.

Called by `credentials`. The Kubernetes client is imported only for users with an `auth-provider`, because the
import takes 0.3 s; this module reads all other fields.
Source: client-go `tools/clientcmd/client_config.go` and `rest/config.go` (InClusterConfig), v1.36.
"""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from berth_host.errors.cluster import ClientConfigError
from berth_host.model.paths import expanded, is_file
from berth_sdk.wire.verification import verify_as_go

from berth_kube.kubeconfig import Entry

TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
AUTHORITIES_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
_PROVIDERS: Final = ("gcp", "oidc")
"""The auth-providers that the Kubernetes client supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An API server. `authorities`: its CAs as PEM, or the path of a file; None: the system's CAs.

    `host`: URL without a final slash. `server_name`: the name that the certificate must have; empty for that
    in the URL. `proxy`: empty for none. `authorization`: a header's value, empty for none.
    """

    host: str
    authorities: str | Path | None = None
    is_verified: bool = True
    server_name: str = ""
    proxy: str = ""
    authorization: str = ""

    def ssl_context(self) -> ssl.SSLContext:
        """Return a new context. Raises OSError (ssl.SSLError too) and ValueError for unusable authorities."""
        named = self.authorities
        context = (
            ssl.create_default_context(cafile=named)
            if isinstance(named, Path)
            else ssl.create_default_context(cadata=named)
        )
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return verify_as_go(context)


async def of_kubeconfig(entry: Entry) -> Server:
    """Return the server of a kubeconfig's entry. Raises ClientConfigError, which names the file."""
    cluster, user = (entry.content[name][0][name[:-1]] for name in ("clusters", "users"))
    try:
        host = cluster["server"].rstrip("/")
        return Server(
            host=host,
            authorities=_authorities(entry, cluster) if host.startswith("https") else None,
            is_verified=not cluster.get("insecure-skip-tls-verify"),
            server_name=cluster.get("tls-server-name") or "",
            proxy=cluster.get("proxy-url") or "",
            authorization=await _authorization(entry, user),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as err:
        raise ClientConfigError(
            f"kubeconfig {str(entry.path)!r}: {err}; see it with kubectl config view --kubeconfig"
        ) from err


def of_service_account() -> Server:
    """Return the server of the pod that this process runs in. Raises ClientConfigError outside of a pod."""
    try:
        return Server(host=_host_of_environment(), authorities=_service_account_authorities())
    except (OSError, ValueError) as err:
        raise ClientConfigError(
            "found no cluster: --kubeconfig, clientConnection.kubeconfig and KUBECONFIG are not set, and this"
            f" is not a pod with a service account ({err}); {_offer()}"
        ) from err


def _authorities(entry: Entry, cluster: Mapping[str, Any]) -> str | Path | None:
    if entry.authorities is not None:
        return entry.authorities.decode("ascii")
    named = cluster.get("certificate-authority")
    if named is None:
        return None
    path = entry.folder / str(named)
    if not path.is_file():
        raise ValueError(f"certificate-authority {str(path)!r} is not a file")
    return path


async def _authorization(entry: Entry, user: Mapping[str, Any]) -> str:
    provider = user.get("auth-provider")
    if isinstance(provider, dict) and provider.get("name") in _PROVIDERS:
        return await _token_of_provider(entry)
    if user.get("token"):
        return f"Bearer {user['token']}"
    name, password = user.get("username"), user.get("password")
    if name is None or password is None:
        return ""
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode("ascii")


async def _token_of_provider(entry: Entry) -> str:
    """Get a token from an auth-provider with the Kubernetes client. Raises ValueError."""
    # Imported here, because this import takes longer than all of the host's.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    configuration = Configuration()
    try:
        loader = KubeConfigLoader(config_dict=entry.content, config_base_path=str(entry.folder))
        await loader.load_and_set(configuration)
    except ConfigException as err:
        raise ValueError(str(err)) from err
    return str(configuration.api_key.get("BearerToken") or "")


def _host_of_environment() -> str:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    return f"https://[{host}]:{port}" if ":" in host or "%" in host else f"https://{host}:{port}"


def _service_account_authorities() -> Path:
    for path in (TOKEN_FILE, AUTHORITIES_FILE):
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        if not path.read_bytes():
            raise ValueError(f"{path} is empty")
    return AUTHORITIES_FILE


def _offer() -> str:
    """Return the cure, which names kubectl's own file; that file is never used by default."""
    path = expanded("~/.kube/config")
    if is_file(path):
        return f"--kubeconfig={path} uses kubectl's file (~/.kube/config)"
    return "set one of them (kubectl's file, ~/.kube/config, is not there)"
