"""etcd and kube-apiserver as child processes on loopback, for `berth bench versus` and for tests.

    with RealServers(folder) as servers:
        servers.kubeconfig("admin")      # a file; also: an ordinary user, a wrong token, ...

The programs are those of `make envtest` (or of KUBEBUILDER_ASSETS); see `missing_programs`.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from berth_sdk.json.objects import finish, object_steps
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from berth_bench.versus.free_ports import free_port

VERSION: Final = "v1.37.2"
"""The release that `make envtest` builds, unless ENVTEST_K8S_VERSION names another one."""
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "helm")
CURE: Final = (
    "run `make envtest` in a clone of berth (it needs Go), or set KUBEBUILDER_ASSETS to their folder"
)
_OWN: Final = ("etcd", "kube-apiserver")
STARTS_WITHIN_S: Final = 90.0
_STARTS: Final = 3
_PORT_IS_TAKEN: Final = "address already in use"
ADMIN: Final = "admin"
SCHEDULER: Final = "system:kube-scheduler"
"""The user that the stock cluster roles of the scheduler are bound to."""
NOBODY: Final = "nobody"
"""A user without any rights of its own."""
FIRST_WITH_POD_GROUPS: Final = 37
"""The first minor of Kubernetes 1 whose API server has PodGroups in the version that berth reads."""
_FIRST_WITHOUT_PREEMPTION_POLICY: Final = 38
"""The first minor that has no gate PodGroupPreemptionPolicy, as the policy is a part of pod groups there."""


def chosen_release() -> str:
    """Return the release of the programs: the one that ENVTEST_K8S_VERSION names, else VERSION."""
    chosen = os.environ.get("ENVTEST_K8S_VERSION")
    return f"v{chosen.removeprefix('v')}" if chosen else VERSION


def minor() -> int:
    """Return the minor of the programs' release: 37 of v1.37.2."""
    return int(chosen_release().split(".")[1])


def pod_group_flags() -> tuple[str, ...]:
    """Return the flags by which kube-apiserver serves Workload, PodGroup and CompositePodGroup, and keeps
    `spec.schedulingGroup` of a pod and the claims of a group. All of it is off by default.

    Raises ServerError for a release without them.
    """
    if minor() < FIRST_WITH_POD_GROUPS:
        raise ServerError(
            f"{chosen_release()} has no PodGroups of scheduling.k8s.io/v1beta1: use 1.{FIRST_WITH_POD_GROUPS}"
            " or later"
        )
    gates = ["GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"]
    if minor() < _FIRST_WITHOUT_PREEMPTION_POLICY:
        gates.append("PodGroupPreemptionPolicy")
    gates.append("DRAWorkloadResourceClaims")
    return (
        f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    )


def programs_folder() -> Path:
    """Return the folder of the programs: KUBEBUILDER_ASSETS, or where `make envtest` keeps those of the
    release.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        return Path(given)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "berth/envtest" / chosen_release()


def program(name: str) -> Path:
    """Return the path of one program."""
    return programs_folder() / name


def missing_programs(names: Sequence[str] = PROGRAMS) -> str:
    """Return the missing programs, and the remedy; empty if all exist."""
    missing = [name for name in names if not os.access(program(name), os.X_OK)]
    return f"no {', '.join(missing)} in {programs_folder()}: {CURE}" if missing else ""


class ServerError(RuntimeError):
    """A server did not start, or answered with an error. The text contains the end of its log."""


class RealServers:
    """One API server with its etcd. Not for use by several threads.

    `audit_policy`: the server writes `audit_log` by this policy, before it answers a request. `rbac` False:
    every user may do everything. `client_ca`: in PEM, the authority of trusted client certificates.
    `pod_groups`: serve pod groups, with `pod_group_flags`. `more`: further flags of kube-apiserver.
    `controllers`: the caller runs kube-controller-manager, so nothing that depends on it is switched off.
    `service_accounts`: the caller creates the service accounts, so pods are given a volume with a token.
    """

    def __init__(
        self,
        folder: Path,
        *,
        audit_policy: Mapping[str, Any] | None = None,
        rbac: bool = True,
        client_ca: bytes = b"",
        controllers: bool = False,
        pod_groups: bool = False,
        service_accounts: bool = False,
        more: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self.port = self._etcd_port = self._peer_port = 0
        self._choose_ports()
        self._audit_policy = audit_policy
        self._rbac = rbac
        # Without controllers, service accounts are not created and the not-ready taint is not removed.
        off = ("TaintNodesByCondition",) if service_accounts else ("ServiceAccount", "TaintNodesByCondition")
        admission = () if controllers else (f"--disable-admission-plugins={','.join(off)}",)
        self._more = (*admission, *(pod_group_flags() if pod_groups else ()), *more)
        self._client_ca = client_ca
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.tokens = {user: secrets.token_hex(16) for user in (ADMIN, SCHEDULER, NOBODY)}

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> RealServers:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start both servers and wait until they can be used. Raises ServerError.

        If another process took a port in the meantime, they start again on other ports.
        """
        if problem := missing_programs(_OWN):
            raise ServerError(problem)
        self._prepare()
        for starts_left in reversed(range(_STARTS)):
            try:
                self.start_etcd()
                self.start_api_server()
            except ServerError as err:
                self.stop()
                if not starts_left or _PORT_IS_TAKEN not in str(err):
                    raise
                self._choose_ports()
            except BaseException:
                self.stop()
                raise
            else:
                return

    def _choose_ports(self) -> None:
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()

    def start_etcd(self) -> None:
        """Start etcd, on its existing data."""
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd",
            [
                f"--data-dir={self.folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--log-level=error",
            ],
        )

    def start_api_server(self) -> None:
        """Start kube-apiserver, on the same port as before, and wait until it can be used."""
        key = self.service_account_key
        flags = [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            # The address of the API server's own Service, which nothing uses.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--authorization-mode={'RBAC' if self._rbac else 'AlwaysAllow'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            *self._more,
        ]
        if self._client_ca:
            flags.append(f"--client-ca-file={self.folder / 'clients.crt'}")
        if self._audit_policy is not None:
            flags += [
                f"--audit-policy-file={self.folder / 'audit-policy.json'}",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-mode=blocking",
            ]
        self._spawn("kube-apiserver", flags)
        self._wait_until_ready()

    def stop_api_server(self, *, kill: bool = False) -> None:
        """Stop the API server alone; etcd keeps the data."""
        self._end("kube-apiserver", kill=kill)

    def stop(self) -> None:
        """Stop both servers; harmless when repeated."""
        for name in ("kube-apiserver", "etcd"):
            self._end(name, kill=False)

    @property
    def api_server_pid(self) -> int:
        """The process of the API server, for tests that stop it for a while."""
        return self._processes["kube-apiserver"].pid

    @property
    def pids(self) -> list[int]:
        """The processes of the running servers."""
        return [process.pid for process in self._processes.values()]

    # --- use -----------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """`https://127.0.0.1:PORT`."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def etcd_url(self) -> str:
        """The URL of etcd, which serves its API as JSON too."""
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def ca_file(self) -> Path:
        """The certificate that the API server made for itself, and that is its own authority."""
        return self.folder / "certificates/apiserver.crt"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service accounts' tokens."""
        return self.folder / "service-accounts.key"

    def kubeconfig(
        self,
        user: str = ADMIN,
        *,
        token: str | None = None,
        certificate: tuple[bytes, bytes] | None = None,
        insecure: bool = False,
        url: str = "",
    ) -> Path:
        """Write a kubeconfig file for a user, or with any `token`. `url`: of a proxy in front of the server.

        `certificate`: use a client certificate and its key, in PEM, instead of a token.
        """
        cluster: dict[str, Any] = {"server": url or self.url}
        if insecure:
            cluster["insecure-skip-tls-verify"] = True
        else:
            cluster["certificate-authority"] = str(self.ca_file)
        path = self.folder / f"kubeconfig-{secrets.token_hex(4)}.json"
        if certificate is not None:
            credential = {
                "client-certificate": str(path.with_suffix(".crt")),
                "client-key": str(path.with_suffix(".key")),
            }
            path.with_suffix(".crt").write_bytes(certificate[0])
            path.with_suffix(".key").write_bytes(certificate[1])
        else:
            credential = {"token": self.tokens[user] if token is None else token}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": credential}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(content))
        return path

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        user: str = ADMIN,
    ) -> Any:
        """Make one request; return parsed JSON, or text. Raises urllib.error.HTTPError for status 400 and
        above.
        """
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Authorization": f"Bearer {self.tokens[user]}"},
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                text = answer.read()
                is_json = "json" in (answer.headers.get("Content-Type") or "")
        except urllib.error.HTTPError as err:
            # The error has the open connection, which callers that only look at the code would not close.
            with err:
                said = io.BytesIO(err.read())
            raise urllib.error.HTTPError(err.url, err.code, err.reason, err.headers, said) from None
        # Whatever the API server admits is read: tests write objects that parsers refuse.
        return finish(object_steps("", text, json.loads)) if is_json else text.decode()

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create one object. `path` is that of its collection. A status is written in a second step."""
        made = self.request("POST", path, body)
        if body.get("status") and body.get("kind") == "Node":
            name = made["metadata"]["name"]
            self.request(
                "PATCH",
                f"{path}/{name}/status",
                {"status": body["status"]},
                content_type="application/merge-patch+json",
            )
        return made

    # --- steps ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = self.service_account_key
        if not key.exists():
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            key.write_bytes(
                made.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.TraditionalOpenSSL,
                    serialization.NoEncryption(),
                )
            )
        groups = {ADMIN: '"system:masters"'}
        rows = [
            f"{token},{user},{user},{groups.get(user, '')}".rstrip(",") for user, token in self.tokens.items()
        ]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "clients.crt").write_bytes(self._client_ca)
        if self._audit_policy is not None:
            (self.folder / "audit-policy.json").write_text(json.dumps(self._audit_policy))

    def _spawn(self, name: str, flags: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [program(name), *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self, name: str, *, kill: bool) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self) -> None:
        ends_s = time.monotonic() + STARTS_WITHIN_S
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ServerError(f"{name} ended with {process.returncode}:\n{self._log_of(name)}")
            try:
                self.request("GET", "/readyz")
                # The API server creates it a moment after it is ready.
                self.request("GET", "/api/v1/namespaces/default")
                self.request("GET", "/api/v1/namespaces/kube-system")
                self.request("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
            except (OSError, urllib.error.URLError):
                if time.monotonic() > ends_s:
                    log = self._log_of("kube-apiserver")
                    raise ServerError(
                        f"kube-apiserver was not ready in {STARTS_WITHIN_S:.0f} s:\n{log}"
                    ) from None
                time.sleep(0.1)
            else:
                return

    def _log_of(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""
