"""A gRPC expander for cluster-autoscaler: chooses the node group on whose new nodes the pods really fit.

    python expander.py --berth HOST:PORT --berth-ca ca.crt --berth-token-file token \\
        --tls-cert tls.crt --tls-key tls.key

cluster-autoscaler estimates with the plugins of kube-scheduler that are built into it, so it may grow a
group whose nodes a plugin of berth rejects. This server asks berth (`berth.query.v1`, Simulate) about an
option: its pods, on as many new nodes of its kind as the autoscaler would add.

The best option places the most pods; among those with as many, the least of its new nodes stays unused.
Options that are equally good are all answered, and the autoscaler's next expander chooses among them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import kube_wire
from expander_berth import Access, Berth
from expander_options import LOG, RefusedError, choose, options_of

SERVICE: Final = "grpcplugin.Expander"
PATIENCE_S: Final = 5.0
"""Seconds for an answer to a call without a deadline. cluster-autoscaler waits as long."""
ANSWERING_S: Final = 0.25
"""Seconds of a call's deadline that are kept for the answer."""
MOST_BYTES: Final = 256 * 2**20
"""The most bytes of a question. Each option has its pods once more."""


# --- the server ------------------------------------------------------------------------------------------


class Expander(grpc.GenericRpcHandler):
    """The service that cluster-autoscaler calls."""

    def __init__(self, berth: Berth) -> None:
        self._berth = berth

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """Return the handler of a call; None for a call that is not part of the service."""
        if handler_call_details.method != f"/{SERVICE}/BestOptions":
            return None
        return grpc.unary_unary_rpc_method_handler(self.best_options)

    async def best_options(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Answer a BestOptionsRequest with the best options. An error of the call names the cure."""
        left_s = context.time_remaining()
        ends_s = time.monotonic() + (PATIENCE_S if left_s is None else left_s) - ANSWERING_S
        try:
            best = await choose(options_of(request), self._berth.try_option, ends_s)
        except RefusedError as err:
            LOG.error("no answer: %s", err)
            await context.abort(err.code, str(err))
        if not best:
            LOG.warning("no pod fits on new nodes of any group: the answer has no option")
        answers = [
            {"nodeGroupId": one.option.group, "nodeCount": one.option.count, "debug": f"berth: {one}"}
            for one in best
        ]
        return kube_wire.encode("BestOptionsResponse", {"options": answers})


@asynccontextmanager
async def serving(
    berth: Berth, listen: str, credentials: grpc.ServerCredentials | None
) -> AsyncIterator[int]:
    """Serve for the block; yield the port. `credentials` None: without TLS. Raises OSError."""
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", MOST_BYTES), ("grpc.so_reuseport", 0)]
    )
    server.add_generic_rpc_handlers((Expander(berth),))
    try:
        if credentials is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, credentials)
    except RuntimeError as err:
        raise OSError(f"--listen {listen}: the address cannot be used: {err}") from err
    await server.start()
    try:
        yield port
    finally:
        await server.stop(PATIENCE_S)


def credentials_of(cert: Path, key: Path) -> grpc.ServerCredentials:
    """Return credentials that follow the files, as certificates are renewed. Raises OSError."""

    def load() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])

    def renewed() -> Any:
        try:
            return load()
        except OSError as err:
            LOG.warning("the previous certificate stays in use: %s", err)
            return None

    return grpc.dynamic_ssl_server_credentials(load(), renewed)


def node_pods_of(path: Path) -> list[bytes]:
    """Return the pods of DaemonSets in the file, a List or a Pod as JSON. Raises ValueError and OSError."""
    content = json.loads(path.read_text())
    pods = content["items"] if content.get("kind", "").endswith("List") else [content]
    found = []
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences", ())
        if any(owner.get("kind") == "DaemonSet" for owner in owners):
            # The number counts; berth does not know the classes of the cluster.
            spec = {name: value for name, value in pod["spec"].items() if name != "priorityClassName"}
            found.append(json.dumps({**pod, "apiVersion": "v1", "kind": "Pod", "spec": spec}).encode())
    if not found:
        raise ValueError("no pod in it belongs to a DaemonSet: write the pods of a node of the cluster there")
    return found


# --- the command -----------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="A gRPC expander for cluster-autoscaler that asks berth where the pods really fit."
    )
    parser.add_argument(
        "--berth",
        action="append",
        required=True,
        metavar="HOST:PORT",
        help="its query port; once per replica",
    )
    parser.add_argument(
        "--berth-ca", type=Path, metavar="FILE", help="the authority of berth's certificate, PEM"
    )
    parser.add_argument(
        "--berth-name", default="", metavar="NAME", help="the name in berth's certificate, if not HOST"
    )
    parser.add_argument(
        "--berth-token-file",
        type=Path,
        metavar="FILE",
        help="the token of a user who may post on /berth/v1/simulate",
    )
    parser.add_argument(
        "--berth-plaintext", action="store_true", help="no TLS to berth: for `berth query` on this machine"
    )
    parser.add_argument(
        "--scheduler-name",
        default="",
        metavar="NAME",
        help="the profile for all pods, in place of each pod's own",
    )
    parser.add_argument(
        "--node-pods",
        type=Path,
        metavar="FILE",
        help="pods of a node, as JSON: those of DaemonSets are on each new node",
    )
    parser.add_argument(
        "--listen",
        default="0.0.0.0:9443",
        metavar="HOST:PORT",
        help="port 0: a free one; default: %(default)s",
    )
    parser.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="this server's certificate, PEM; cluster-autoscaler needs TLS",
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    parser.add_argument(
        "--plaintext", action="store_true", help="serve without TLS, behind a proxy that has it"
    )
    return parser


def _problem(options: argparse.Namespace) -> str:
    """Return what is wrong with the options; "" for nothing."""
    if (options.berth_ca is None) != options.berth_plaintext:
        return "give --berth-ca FILE, or --berth-plaintext for a berth without TLS on this machine"
    if options.berth_plaintext and options.berth_token_file is not None:
        return "--berth-token-file needs --berth-ca: a token is not sent without TLS"
    if options.plaintext == (options.tls_cert is not None) or (options.tls_cert is None) != (
        options.tls_key is None
    ):
        return "give --tls-cert FILE and --tls-key FILE, or --plaintext behind a proxy that has TLS"
    return ""


async def _serve(options: argparse.Namespace) -> None:
    access = Access(
        addresses=options.berth,
        ca=None if options.berth_ca is None else options.berth_ca.read_bytes(),
        token_file=options.berth_token_file,
        name=options.berth_name,
    )
    node_pods = () if options.node_pods is None else node_pods_of(options.node_pods)
    credentials = None if options.plaintext else credentials_of(options.tls_cert, options.tls_key)
    berth = Berth(access, scheduler_name=options.scheduler_name, node_pods=node_pods)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with serving(berth, options.listen, credentials) as port:
            host = options.listen.rpartition(":")[0]
            print(f"serving {SERVICE} at {host}:{port}", flush=True)
            await stop.wait()
    finally:
        await berth.close()


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM. Return 0, or 2 for options that cannot be used."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if problem := _problem(options):
        parser.error(problem)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(_serve(options))
    except (OSError, ValueError, KeyError, TypeError) as err:
        print(f"expander: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
