"""The options that name the host and the user, and the `Target` made of them.

    --server        -> that URL, with --token and certificates, or as the kubeconfig's user if one is named
    otherwise       -> the leader's pod (leader.py) through a port-forward, as the kubeconfig's user

Shared by `kubectl berth` and `berth plugins --server`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from berth_host.cli.kubectl.asking import BAD_USAGE, AskError, Target
from berth_host.cli.kubectl.leader import SELECTOR, leader_pod
from berth_host.cli.kubectl.port_forward import forwarded
from berth_host.cluster.kube.client import KubeClient
from berth_host.cluster.kube.connection import Connection
from berth_host.cluster.kube.credentials import Credentials
from berth_host.cluster.kube.lease_record import LABEL
from berth_host.cluster.kube.user_config import UserConfig
from berth_host.config.secrets import masked
from berth_host.errors.cluster import ClientConfigError

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
    """Add the options for --server's address and the user."""
    for option in reversed(SERVER_OPTIONS):
        command = option(command)
    return command


def finding_options(command: Command) -> Command:
    """Add the options that find the scheduler in a cluster; beside `server_options`."""
    for option in reversed(_FINDING_OPTIONS):
        command = option(command)
    return command


@asynccontextmanager
async def target(options: Mapping[str, Any]) -> AsyncIterator[Target]:
    """The host to ask, for as long as the way there is open. Raises AskError."""
    try:
        _check(options)
        if options["server"]:
            yield await _named(options)
            return
        config = UserConfig.find(options["kubeconfig"], options["context"])
        connection = Connection(kubeconfig=config.path, context=config.context, user_agent="kubectl-berth")
        client = await KubeClient.open(connection)
        try:
            namespace, pod = await leader_pod(client, options["lease"], options["selector"])
        finally:
            await client.close()
        authorization, context = await _credentials(options, connection)
        # The certificate is for a name that loopback does not have, or made by the host itself; that this is
        # the pod, the API server and the kubelet have said.
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
    except ValueError:  # brackets that do not close, a port that is none
        return False


async def _named(options: Mapping[str, Any]) -> Target:
    connection = None
    if options["kubeconfig"] or options["context"]:
        config = UserConfig.find(options["kubeconfig"], options["context"])
        connection = Connection(kubeconfig=config.path, context=config.context)
    authorization, context = await _credentials(options, connection)
    if options["insecure_skip_tls_verify"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    url = options["server"].rstrip("/")
    return Target(url=url, title=str(masked(url)), context=context, authorization=authorization)


async def _credentials(
    options: Mapping[str, Any], connection: Connection | None
) -> tuple[str, ssl.SSLContext]:
    """(Authorization header, TLS with a client certificate if there is one); options beat the kubeconfig.

    Trust is that of --certificate-authority or of the system: the cluster's CA says nothing of the host.
    """
    authority = options["certificate_authority"]
    context = _read("--certificate-authority", lambda: ssl.create_default_context(cafile=authority or None))
    authorization = ""
    if connection is not None:
        known = await Credentials.open(connection)
        authorization = known.authorization
        known.show_certificate_in(context)
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
