"""How a host that is asked too often says when to ask again: trailing metadata, as gRPC's retries know it.

Written by the host's HandleService, read by the plugin's handle. Source: gRPC proposal A6, client retries.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

PUSHBACK: Final = "grpc-retry-pushback-ms"


def pushback_s(error: grpc.RpcError) -> float | None:
    """Seconds to wait; None: the host does not ask for the call again."""
    failed: Any = error  # every error of a call is also the call
    if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    for key, value in failed.trailing_metadata() or ():
        if key == PUSHBACK and value.isdigit():
            return int(value) / 1000
    return None
