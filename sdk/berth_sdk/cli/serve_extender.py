"""`berth-sdk serve PLUGIN --extender HOST:PORT`: serve one plugin as an HTTP scheduler extender."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from berth_sdk.errors import BerthError, PluginArgsError
from berth_sdk.json.bounded import read_bounded_json
from berth_sdk.wire.message_limit import FLAG

if TYPE_CHECKING:
    from berth_sdk.serve.extender.server import ExtenderServer, ExtenderSettings

LOG: Final = logging.getLogger("berth_sdk.serve.extender")
_EXTRA: Final = "aiohttp"
MISSING: Final = f"--extender needs the package {_EXTRA}: pip install 'berth-sdk[extender]'"
_ONLY: Final = {
    "args": "--args",
    "node_cache_capable": "--node-cache-capable",
    "server": "--server",
    "in_cluster": "--in-cluster",
    "token_file": "--token-file",
    "certificate_authority": "--certificate-authority",
    "client_certificate": "--client-certificate",
    "client_key": "--client-key",
}
"""The options that have an effect with --extender alone."""
_NOT_WITH: Final = {"listen": "--listen", "credential_file": "--credential-file", "max_message_bytes": FLAG}
"""The options of a server for berth."""


class OptionError(BerthError):
    """Options that do not go together. The text names them."""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of an extender."""
    parser.add_argument(
        "--extender",
        metavar="ADDRESS",
        help="serve one plugin as an HTTP extender of kube-scheduler; HOST:PORT (without TLS, loopback only)",
    )
    parser.add_argument(
        "--node-cache-capable",
        action="store_true",
        help="extender: requests have the names of nodes only (nodeCacheCapable of the scheduler)",
    )
    parser.add_argument("--args", metavar="JSON", help="extender: the arguments of the plugin, a JSON object")
    parser.add_argument(
        "--server", metavar="URL", help="extender: the API server, to follow nodes and pods and to bind"
    )
    parser.add_argument(
        "--in-cluster", action="store_true", help="extender: use the API server as the pod's service account"
    )
    parser.add_argument(
        "--token-file", metavar="PATH", help="extender: a token for --server; read for every request"
    )
    parser.add_argument(
        "--certificate-authority",
        metavar="PATH",
        help="extender: the authority of the API server's certificate, PEM (default: those of this machine)",
    )
    parser.add_argument(
        "--client-certificate", metavar="PATH", help="extender: a certificate for --server, PEM"
    )
    parser.add_argument("--client-key", metavar="PATH", help="extender: the key of --client-certificate, PEM")


def check_options(options: Namespace) -> None:
    """Check which options were given together. Raises OptionError."""
    if options.extender is None:
        given = [flag for name, flag in _ONLY.items() if getattr(options, name)]
        if given:
            raise OptionError(f"{', '.join(given)}: only with --extender HOST:PORT")
        return
    given = [flag for name, flag in _NOT_WITH.items() if getattr(options, name)]
    if given:
        raise OptionError(f"{', '.join(given)}: not with --extender, which kube-scheduler calls over HTTP")
    if len(options.names) != 1:
        raise OptionError(
            "--extender serves one plugin: start a process for each, with an entry of its own in `extenders:`"
        )
    credentials = {
        name: flag
        for name, flag in _ONLY.items()
        if name.endswith(("file", "authority", "certificate", "key"))
    }
    given = [flag for name, flag in credentials.items() if getattr(options, name)]
    if options.in_cluster and (options.server or given):
        raise OptionError("--in-cluster brings its own server and credentials: leave out --server and these")
    if given and not options.server:
        raise OptionError(f"{', '.join(given)}: give --server too, the API server that these are for")


def serve_extender(options: Namespace, classes: Mapping[str, type]) -> int:
    """Serve until a signal comes, and return 0. Raises BerthError for wrong input."""
    try:
        import aiohttp  # noqa: F401  (asked for here, so that a missing package is a clear error)
    except ImportError as err:
        raise OptionError(MISSING) from err
    from berth_sdk.serve.extender.server import ExtenderServer

    ((name, cls),) = classes.items()
    server = ExtenderServer(name, cls, _settings(options))
    ended = asyncio.run(_run(server))
    if not ended:
        LOG.warning("%d calls had not ended after %s s", server.in_flight.count, options.grace)
        # Threads of open calls cannot be interrupted, and the interpreter would wait for them.
        logging.shutdown()
        os._exit(0)
    return 0


async def _run(server: ExtenderServer) -> bool:
    """Serve until a signal comes; return False if a plugin's method still runs."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    url = await server.start()
    print(server.text(url), flush=True)
    LOG.info("serving %s at %s", server.plan.name, url)
    await stop.wait()
    LOG.info("stopping")
    return await server.stop()


def _settings(options: Namespace) -> ExtenderSettings:
    from berth_sdk.serve.extender.api_server import ApiAccess
    from berth_sdk.serve.extender.server import ExtenderSettings
    from berth_sdk.serve.extender.tls import ExtenderTls

    api = ApiAccess.in_cluster() if options.in_cluster else None
    if options.server:
        api = ApiAccess(
            url=options.server,
            token_file=options.token_file or "",
            ca_file=options.certificate_authority or "",
            cert_file=options.client_certificate or "",
            key_file=options.client_key or "",
        )
    tls = None
    if options.tls_cert or options.tls_key or options.tls_client_ca or options.tls_client_name:
        tls = ExtenderTls(
            cert_file=options.tls_cert or "",
            key_file=options.tls_key or "",
            client_ca_file=options.tls_client_ca or "",
            client_names=tuple(options.tls_client_name or ()),
        )
    return ExtenderSettings(
        listen=options.extender,
        args=_args(options.args),
        node_cache_capable=options.node_cache_capable,
        api=api,
        tls=tls,
        grace_s=options.grace,
    )


def _args(text: str | None) -> Mapping[str, Any]:
    if not text:
        return {}
    try:
        args = read_bounded_json(text)
    except ValueError as err:
        raise PluginArgsError(f"--args is not JSON: {err}") from err
    if not isinstance(args, dict):
        raise PluginArgsError('--args must be a JSON object, such as \'{"zone": "a"}\'')
    return args
