"""`ServingOptions`: the flags of the secure port, from the command line, for `EndpointServer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from berth_host.model.user import ClientTrust

DEFAULT_PORT: Final = 10259
ALWAYS_ALLOWED: Final = ("/healthz", "/readyz", "/livez")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The options of the secure port, one field per flag of kube-scheduler; times in seconds.

    `port`: 0 for no server. `cert_file`: if None, a certificate is made, in `cert_dir` if that is given (and
    used again at the next start), else in memory. `min_tls`: `VersionTLS12` or `VersionTLS13`. `ciphers`:
    IANA names of TLS 1.2. `always_allowed`: paths that need no right. `trust`: the CAs from flags; the others
    are read from the cluster unless `skip_lookup`. `client_ca_file`, `proxy_ca_file`: the files of the CAs in
    `trust`, which are read again when they change; None: `trust` stays as it is. `ui`: whether the page is
    served at `/ui/`.
    `query_port`: of the query service; 0 for none. `query_address`: its address; "": `bind_address`.
    """

    bind_address: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    cert_file: Path | None = None
    key_file: Path | None = None
    cert_dir: Path | None = None
    min_tls: str = ""
    ciphers: tuple[str, ...] = ()
    always_allowed: tuple[str, ...] = ALWAYS_ALLOWED
    token_ttl_s: float = 10.0
    allowed_ttl_s: float = 10.0
    denied_ttl_s: float = 10.0
    trust: ClientTrust = field(default_factory=ClientTrust)
    client_ca_file: Path | None = None
    proxy_ca_file: Path | None = None
    skip_lookup: bool = False
    tolerate_lookup_failure: bool = True
    profiling: bool = True
    ui: bool = False
    query_address: str = ""
    query_port: int = 0
