"""`berth-sdk reflect`: list the services and methods that a server offers."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import grpc

from berth_sdk.serve.optional_services import services_on
from berth_sdk.wire.addresses import host_and_port, socket_problem

_TIMEOUT_S: Final = 5.0


_NO_REFLECTION: Final = """the server has no reflection, which is optional for a plugin. To add it:
  Python  pip install 'berth-sdk[server]'; without the SDK: grpcio-reflection, enable_server_reflection
  Go      google.golang.org/grpc/reflection, reflection.Register(server)
  Java    io.grpc:grpc-services, addService(ProtoReflectionServiceV1.newInstance())
  Node    @grpc/reflection, new ReflectionService(packageDefinition).addToServer(server)
  Rust    tonic-reflection, add_service(Builder::configure()...build_v1alpha())"""


def _is_reset(failed: Any) -> bool:
    """Return True for a server that ends the stream of an unknown call with a reset, as one of tonic does."""
    codes = (grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
    return failed.code() in codes and "RST_STREAM" in (failed.details() or "")


def reflect(options: Namespace) -> int:
    """Print the services and methods. Returns 0; 1: no answer from the server; 2: a wrong option, or a
    missing package.
    """
    try:
        credentials, more = connection(options)
        services = services_on(_channel(options.endpoint, credentials, more), _TIMEOUT_S)
    except OptionError as err:
        print(f"berth-sdk reflect: {err}", file=sys.stderr)
        return 2
    except ImportError as err:
        print(f"berth-sdk reflect: {err}: pip install 'berth-sdk[server]'", file=sys.stderr)
        return 2
    except grpc.RpcError as err:
        failed: Any = err  # every error of a call is also the call
        text = f"{failed.code().name}: {failed.details()}"
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED or _is_reset(failed):
            text = _NO_REFLECTION
        print(f"berth-sdk reflect: {options.endpoint}: {text}", file=sys.stderr)
        return 1
    for service, methods in services.items():
        print(service)
        for method in methods:
            print(f"  {method}")
    return 0


class OptionError(Exception):
    """An error in the options, with what to do."""


Connection = tuple[grpc.ChannelCredentials | None, tuple[tuple[str, Any], ...]]
"""The credentials of a connection (None: plaintext), and options of its channel."""


def connection(options: Namespace) -> Connection:
    """Return how to connect, from the options of a client. Raises OptionError."""
    given = {
        "--tls-ca": options.tls_ca,
        "--tls-cert": options.tls_cert,
        "--tls-key": options.tls_key,
    }
    _check_endpoint(options.endpoint)
    if not (options.tls_server_name or "").isprintable():
        raise OptionError(f"--tls-server-name {options.tls_server_name!r} is no name")
    missing = [name for name, path in given.items() if not path]
    if len(missing) == len(given) and not options.tls_server_name:
        return None, ()
    if missing:
        raise OptionError(f"TLS takes --tls-ca, --tls-cert and --tls-key together: add {', '.join(missing)}")
    try:
        authority, certificate, key = (Path(path).read_bytes() for path in given.values())
    except OSError as err:
        raise OptionError(f"{err.filename}: {err.strerror}") from err
    name = options.tls_server_name
    return (
        grpc.ssl_channel_credentials(authority, key, certificate),
        (("grpc.ssl_target_name_override", name),) if name else (),
    )


def _check_endpoint(endpoint: str) -> None:
    """Raise OptionError for an address that gRPC would read as another one, or as none."""
    if endpoint.startswith("unix:"):
        path = endpoint.removeprefix("unix:").removeprefix("//")
        problem = socket_problem(path) if path and path.isprintable() else "write unix:PATH"
        if not problem and endpoint.startswith("unix://") and not path.startswith("/"):
            problem = f"after unix:// the path begins with /: write unix:///{path}, or unix:{path}"
    else:
        found = host_and_port(endpoint)
        problem = "" if found is not None and found[1] else "write unix:PATH or HOST:PORT, as 127.0.0.1:7001"
    if problem:
        raise OptionError(f"{endpoint!r} is not an address: {problem}")


def _channel(
    endpoint: str, credentials: grpc.ChannelCredentials | None, options: tuple[tuple[str, Any], ...]
) -> grpc.Channel:
    if endpoint.startswith("unix:"):
        # Otherwise the socket's path becomes the authority, and some servers, as tonic's, reset the stream.
        options = (*options, ("grpc.default_authority", "localhost"))
    if credentials is None:
        return grpc.insecure_channel(endpoint, options)
    return grpc.secure_channel(endpoint, credentials, options)
