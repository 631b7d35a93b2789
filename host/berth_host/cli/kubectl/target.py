"""The options that name the host and the user, and the `Target` made of them.

    --server        -> that URL, with --token and certificates, or as the kubeconfig's user if one is named
    otherwise       -> the leader's pod through a port-forward, as the kubeconfig's user

The leader is found by its Lease, which the host labels. So the user need not know the names of the release
and of its namespace. The identity of a Lease holder is its host name, `_` and a UUID. The host name of a pod
is its own name, or its node's name if the pod uses the node's network.
`kubectl berth` and `berth plugins --server` use these options.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import click
from berth_sdk.wire.verification import verify_as_go

from berth_host.cli.kubectl.asking import BAD_USAGE, UNREACHABLE, AskError, Target
from berth_host.cli.kubectl.port_forward import forwarded
from berth_host.errors.cluster import ClientConfigError, ClusterError
from berth_host.log.secrets import masked
from berth_host.model.lease_record import API_VERSION, LABEL, LeaseRecord, label_value
from berth_host.process.api_server import UserCluster

SELECTOR: Final = "app.kubernetes.io/name=berth"
_LEASES: Final = f"/apis/{API_VERSION}"
_NAMED: Final = "name the scheduler with --lease NAMESPACE/NAME, or with --server https://HOST:10259"
_HOST_NAME_LENGTH: Final = 63


class ApiClient(Protocol):
    """The part of `berth_kube.client.KubeClient` that this module needs."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the answer of the API server. Raises ClusterError."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    """A Lease. `holder` "": no process holds the Lease."""

    namespace: str
    name: str
    holder: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


async def leader_pod(client: ApiClient, lease: str, selector: str) -> tuple[str, str]:
    """Return the namespace and the name of the leader's pod.

    `lease`: `NAMESPACE/NAME`, or "" for the Lease with berth's label. `selector`: labels of the pods, for a
    scheduler without a Lease and for pods in another namespace than their Lease. Raises AskError if there is
    no such pod, or more than one.
    """
    try:
        held = await _named_lease(client, lease) if lease else await _labelled(client)
        found = await (_only_pod(client, selector) if held is None else _holder_of(held, client, selector))
    except ClusterError as err:
        raise AskError(f"the scheduler's pod cannot be looked up: {err}; {_NAMED}", UNREACHABLE) from err
    return found


async def _holder_of(lease: _Held, client: ApiClient, selector: str) -> tuple[str, str]:
    """Return the namespace and the name of the pod that holds the Lease.

    A pod that uses its node's network needs the labels, as other pods have the same host name. Pods in the
    namespace of the Lease are listed first, as users may lack the right to list pods of all namespaces.
    """
    host_name = lease.holder.rpartition("_")[0] or lease.holder
    beside = f"/api/v1/namespaces/{quote(lease.namespace, safe='')}/pods"
    found = _by_name(host_name, await _pods(client, beside))
    for path in (beside, "/api/v1/pods"):
        if not found:
            pods = await _pods(client, path, selector)
            found = _by_name(host_name, pods) or _by_node(host_name, pods)
    if not found:
        raise AskError(
            f"{lease.holder} holds the Lease {lease}, but no pod of that name is in its namespace or has the"
            f" label {selector}: it may run outside the cluster; give --server https://HOST:10259, or"
            " the labels of its pod with --selector"
        )
    return _name(found[0])


async def _named_lease(client: ApiClient, lease: str) -> _Held:
    namespace, _, name = lease.partition("/")
    path = f"{_LEASES}/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"
    found = await client.request("GET", path)
    return _led(_Held(namespace, name, LeaseRecord.of(found).holder))


async def _labelled(client: ApiClient) -> _Held | None:
    """Return the Lease with berth's label; None if there is none. Raises AskError if several are held.

    A removed release leaves its Lease without a holder, so such a Lease counts only if there is no other. A
    Lease that kube-scheduler took over does not count.
    """
    answer = await client.request("GET", f"{_LEASES}/leases", query={"labelSelector": LABEL})
    found = [
        _Held(item["metadata"]["namespace"], item["metadata"]["name"], LeaseRecord.of(item).holder)
        for item in answer.get("items") or []
        if LeaseRecord.of(item).holder == "" or _is_berths(item)
    ]
    if not found:
        return None
    held = [one for one in found if one.holder]
    if len(held) > 1:
        listed = ", ".join(f"{one} (held by {one.holder})" for one in held)
        raise AskError(
            f"{len(held)} Leases have the label {LABEL}: {listed}; choose one with --lease NAMESPACE/NAME"
        )
    return held[0] if held else _led(found[0])


def _is_berths(lease: Mapping[str, Any]) -> bool:
    label = (lease["metadata"].get("labels") or {}).get(LABEL)
    return bool(label == label_value(LeaseRecord.of(lease).holder))


def _led(lease: _Held) -> _Held:
    if not lease.holder:
        raise AskError(f"no scheduler holds the Lease {lease}: none leads now; see their logs")
    return lease


async def _only_pod(client: ApiClient, selector: str) -> tuple[str, str]:
    """Return the only running pod with the labels, for a scheduler without leader election and Lease."""
    pods = [pod for pod in await _pods(client, "/api/v1/pods", selector) if _runs(pod)]
    if not pods:
        raise AskError(
            f"no berth scheduler holds a Lease with the label {LABEL}, and no pod runs with the label"
            f" {selector}: {_NAMED}"
        )
    if len(pods) > 1:
        raise AskError(
            f"{len(pods)} pods run with the label {selector}, and no Lease with the label {LABEL}"
            f" says which leads: {_NAMED}"
        )
    return _name(pods[0])


async def _pods(client: ApiClient, path: str, selector: str = "") -> list[Mapping[str, Any]]:
    query = {"labelSelector": selector} if selector else {}
    return list((await client.request("GET", path, query=query)).get("items") or [])


def _by_name(host_name: str, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [pod for pod in pods if host_name in _host_names(pod)]


def _by_node(host_name: str, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    specs = [(pod, pod.get("spec") or {}) for pod in pods if _runs(pod)]
    return [pod for pod, spec in specs if spec.get("hostNetwork") and spec.get("nodeName") == host_name]


def _host_names(pod: Mapping[str, Any]) -> tuple[str, ...]:
    own = (pod.get("spec") or {}).get("hostname")
    name = _name(pod)[1]
    return (name, name[:_HOST_NAME_LENGTH].rstrip("-."), *([own] if own else []))


def _name(pod: Mapping[str, Any]) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta["namespace"], meta["name"]


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_PORT: Final = 10259

SERVER_OPTIONS: Final = (
    click.option(
        "--server", metavar="URL", default="", help="Address of the host's secure port, https://HOST:10259."
    ),
    click.option("--token", metavar="TOKEN", default="", help="Bearer token for --server."),
    click.option("--token-file", metavar="FILE", default="", help="File with the bearer token."),
    click.option("--certificate-authority", metavar="FILE", default="", help="CA of the host's certificate."),
    click.option(
        "--insecure-skip-tls-verify", is_flag=True, help="Do not check the certificate of --server."
    ),
    click.option("--client-certificate", metavar="FILE", default="", help="Client certificate (PEM)."),
    click.option("--client-key", metavar="FILE", default="", help="Key of the client certificate (PEM)."),
    click.option("--kubeconfig", metavar="FILE", default="", help="Kubeconfig with the user of the request."),
    click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig."),
)
_FINDING_OPTIONS: Final = (
    click.option(
        "--lease",
        metavar="NAMESPACE/NAME",
        default="",
        help=f"Lease whose holder is queried. Default: the Lease with the label {LABEL}.",
    ),
    click.option(
        "--selector",
        metavar="LABELS",
        default=SELECTOR,
        show_default=True,
        help="Labels of the scheduler's pods, for pods outside the Lease's namespace, or without a Lease.",
    ),
    click.option(
        "--scheduler-port",
        type=int,
        default=DEFAULT_PORT,
        show_default=True,
        help="The scheduler's --secure-port.",
    ),
)


def server_options(command: Command) -> Command:
    """Add the options for the host's address and the user."""
    for option in reversed(SERVER_OPTIONS):
        command = option(command)
    return command


def finding_options(command: Command) -> Command:
    """Add the options that find the scheduler in a cluster, in addition to `server_options`."""
    for option in reversed(_FINDING_OPTIONS):
        command = option(command)
    return command


@asynccontextmanager
async def target(options: Mapping[str, Any]) -> AsyncIterator[Target]:
    """Yield the host to query, with an open connection for the block. Raises AskError."""
    try:
        _check(options)
        if options["server"]:
            yield await _named(options)
            return
        cluster = cluster_of(options)
        async with cluster.client() as client:
            namespace, pod = await leader_pod(client, options["lease"], options["selector"])
        authorization, context = await _credentials(options, cluster)
        # The certificate is for another name than loopback's, or self-signed. The API server and the kubelet
        # ensure that the port leads to the pod.
        context.check_hostname = False
        if not options["certificate_authority"]:
            context.verify_mode = ssl.CERT_NONE
        given = [f"--{name}={options[name]}" for name in ("kubeconfig", "context") if options[name]]
        async with forwarded(namespace, pod, options["scheduler_port"], given) as port:
            yield Target(
                url=f"https://127.0.0.1:{port}",
                title=f"the scheduler's pod {namespace}/{pod}",
                context=context,
                authorization=authorization,
            )
    except ClientConfigError as err:
        raise AskError(str(err), BAD_USAGE) from err


def cluster_of(options: Mapping[str, Any]) -> UserCluster:
    """Return the cluster that the options choose. Raises ClientConfigError."""
    return UserCluster.find(options["kubeconfig"], options["context"], user_agent="kubectl-berth")


def _check(options: Mapping[str, Any]) -> None:
    url = options["server"]
    if url and not _is_url(url):
        raise AskError(f"--server {masked(url)}: write it as https://HOST:PORT", BAD_USAGE)
    if options["token"] and options["token_file"]:
        raise AskError("--token and --token-file exclude each other: give one", BAD_USAGE)
    if bool(options["client_certificate"]) != bool(options["client_key"]):
        raise AskError("--client-certificate and --client-key go together: give both", BAD_USAGE)
    if options["insecure_skip_tls_verify"] and options["certificate_authority"]:
        raise AskError("--certificate-authority has no effect with --insecure-skip-tls-verify", BAD_USAGE)
    lease = options.get("lease") or ""
    if lease and not all(lease.partition("/")):
        raise AskError(f"--lease {lease}: write it as NAMESPACE/NAME", BAD_USAGE)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # for unbalanced brackets, and for a port that is no number
        return False


async def _named(options: Mapping[str, Any]) -> Target:
    is_user_named = options["kubeconfig"] or options["context"]
    cluster = cluster_of(options) if is_user_named else None
    authorization, context = await _credentials(options, cluster)
    if options["insecure_skip_tls_verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    url = options["server"].rstrip("/")
    return Target(url=url, title=str(masked(url)), context=context, authorization=authorization)


async def _credentials(options: Mapping[str, Any], cluster: UserCluster | None) -> tuple[str, ssl.SSLContext]:
    """Return the Authorization header, and TLS settings with the client certificate, if any.

    Options take precedence over the kubeconfig. The trusted CA is that of --certificate-authority or of the
    system, as the cluster's CA does not sign the host's certificate.
    """
    authority = options["certificate_authority"]
    context = verify_as_go(
        _read("--certificate-authority", lambda: ssl.create_default_context(cafile=authority or None))
    )
    authorization = "" if cluster is None else await cluster.show_user_in(context)
    if options["client_certificate"]:
        pair = options["client_certificate"], options["client_key"]
        _read("--client-certificate", lambda: context.load_cert_chain(*pair))
    token = options["token"]
    if options["token_file"]:
        token = _read("--token-file", lambda: Path(options["token_file"]).read_text().strip())
    if not token.isprintable():
        option = "--token-file" if options["token_file"] else "--token"
        raise AskError(f"{option}: a token is one line without control characters", BAD_USAGE)
    return f"Bearer {token}" if token else authorization, context


T = TypeVar("T")


def _read(option: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (OSError, UnicodeDecodeError) as err:  # ssl.SSLError is an OSError
        problem = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise AskError(f"{option}: the file cannot be used: {problem}", BAD_USAGE) from err
