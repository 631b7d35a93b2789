"""`berth-sdk reflect`: which services and methods a server offers."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any, Final

import grpc

from berth_sdk.serve.optional_services import services_at

_TIMEOUT_S: Final = 5.0


def reflect(options: Namespace) -> int:
    """Print them. 1: the server does not answer; 2: the package is missing here."""
    try:
        services = services_at(options.endpoint, _TIMEOUT_S)
    except ImportError as err:
        print(f"berth-sdk reflect: {err}: pip install 'berth-sdk[server]'", file=sys.stderr)
        return 2
    except grpc.RpcError as err:
        failed: Any = err  # every error of a call is also the call
        text = f"{failed.code().name}: {failed.details()}"
        if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
            text = "the server offers no reflection: there, pip install 'berth-sdk[server]'"
        print(f"berth-sdk reflect: {options.endpoint}: {text}", file=sys.stderr)
        return 1
    for service, methods in services.items():
        print(service)
        for method in methods:
            print(f"  {method}")
    return 0
