"""`berth-sdk serve`: serve plugins in this process, until a signal or the host stops it."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from argparse import Namespace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, TypeAlias

from berth_sdk.cli.loading import load_plugins
from berth_sdk.cli.serve_extender import check_options, serve_extender
from berth_sdk.errors import BerthError
from berth_sdk.rfc3339 import format_micro_time
from berth_sdk.runtime.raised import author_traceback, place_of, raised_text
from berth_sdk.serve.child import ENDPOINT, ChildDuties, OrphanError, StandardOutput
from berth_sdk.serve.server import ListenError, PluginServer
from berth_sdk.serve.tls import TlsServing
from berth_sdk.serve.tracing import traces_of_environment
from berth_sdk.wire.addresses import endpoint_problem
from berth_sdk.wire.certificate import TlsError
from berth_sdk.wire.credential import read_credential, take_credential
from berth_sdk.wire.message_limit import SERVER_BYTES

LOG: Final = logging.getLogger("berth_sdk.serve.server")
_BAD_INPUT: Final = 2
_LOOK_S: Final = 0.5
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def serve(options: Namespace) -> int:
    """Serve until stopped. Returns 0: stopped cleanly; 1: the host is gone; 2: wrong input."""
    child = ChildDuties.from_environment(os.environ)
    credential = take_credential(os.environ)
    output = StandardOutput() if child else None
    _log_to_standard_error(as_json=child is not None, level=options.log_level)
    endpoint = options.listen or os.environ.get(ENDPOINT)
    if not endpoint and options.extender is None:
        return _refused(
            f"no address to listen at: give --listen unix:PATH or --listen HOST:PORT, or set {ENDPOINT}"
        )
    if not options.listen and endpoint and (problem := endpoint_problem(endpoint, any_port=True)):
        return _refused(f"{ENDPOINT} is {endpoint!r}: {problem}")
    stops: SimpleQueue[None] = (
        SimpleQueue()
    )  # a queue, not an Event: a signal handler may put to it at any moment
    try:
        check_options(options)
        if child is not None:
            child.tie_to_host()
        # Before the handlers: a signal then ends a slow or hanging import at once.
        classes = load_plugins(options.names)
        if options.extender is not None:
            return serve_extender(options, classes)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stops.put(None))
        if options.credential_file:
            credential = read_credential(options.credential_file)
        limit_bytes = options.max_message_bytes
        server = PluginServer(
            classes,
            credential,
            _tls(options),
            max_message_bytes=SERVER_BYTES if limit_bytes is None else limit_bytes,
            traces=traces_of_environment(),
        )
        address = server.listen(endpoint or "")
    except OrphanError as err:
        LOG.error("%s", err)
        return 1
    except ListenError as err:
        return _refused(str(err))  # without the cause: it has no line of the plugin's code
    except BerthError as err:
        return _refused(str(err), err.__cause__)
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        if not place_of(err):
            raise  # no line of the plugin's code: an internal error
        return _refused(f"{', '.join(options.names)} cannot be served: {raised_text(err)}", err)
    LOG.info("serving %s at %s", ", ".join(server.instance.classes), address)
    if child is not None and output is not None:
        output.say(child.handshake_line(address, server.instance.instance_id))
        child.watch_standard_input(lambda: stops.put(None))
    _wait(stops)
    LOG.info("stopping")
    if not server.stop(options.grace):
        LOG.warning("%d calls had not ended after %s s", server.instance.in_flight.count, options.grace)
        # Threads of open calls cannot be interrupted, and the interpreter would wait for them.
        logging.shutdown()
        os._exit(0)
    if child is not None:
        # The host closes the standard input and sends the signal. The later of the two must not end an
        # orderly exit, in which the interpreter gives up its handlers.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return 0


def _tls(options: Namespace) -> TlsServing | None:
    """Return the TLS settings. None: no TLS option is given. Raises TlsError if some are missing."""
    given = {
        "--tls-cert": options.tls_cert,
        "--tls-key": options.tls_key,
        "--tls-client-ca": options.tls_client_ca,
        "--tls-client-name": options.tls_client_name,
    }
    missing = [name for name, value in given.items() if not value]
    if len(missing) == len(given):
        return None
    if missing:
        listed = ", ".join(missing)
        raise TlsError(f"{listed} missing: TLS takes all of the --tls options, or none")
    return TlsServing(
        cert_file=options.tls_cert,
        key_file=options.tls_key,
        client_ca_file=options.tls_client_ca,
        client_names=tuple(options.tls_client_name),
    )


def _wait(stops: SimpleQueue[None]) -> None:
    """Block until a signal handler puts a stop request into the queue.

    The timeout matters: signal handlers run in this thread, but after a SIGCONT the kernel may deliver the
    signal to another thread, which does not wake this one.
    """
    while True:
        try:
            return stops.get(timeout=_LOOK_S)
        except Empty:
            continue


def _refused(text: str, cause: BaseException | None = None) -> int:
    if cause is not None:
        print(author_traceback(cause), end="", file=sys.stderr)
    print(f"berth-sdk serve: {text}", file=sys.stderr)
    return _BAD_INPUT


class _Lines(logging.Formatter):
    """Log lines for people. A traceback shows only the frames of the plugin's author, if there are any."""

    def __init__(self, *, whole_tracebacks: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._whole_tracebacks = whole_tracebacks

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 (logging's name)
        """Return the text of a traceback."""
        authors = "" if self._whole_tracebacks or ei[1] is None else author_traceback(ei[1])
        return authors.rstrip() or super().formatException(ei)


class _JsonLines(_Lines):
    """Log lines for the host: one JSON object per line, on standard error."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "timestamp": format_micro_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _log_to_standard_error(*, as_json: bool, level: str) -> None:
    handler = logging.StreamHandler()
    formatter = _JsonLines if as_json else _Lines
    handler.setFormatter(formatter(whole_tracebacks=level == "debug"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
