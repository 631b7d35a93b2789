"""The pause that a host demands after too many calls: trailing metadata, as in gRPC's retries.

The host's HandleService writes it, and the plugin's handle reads it. Source: gRPC proposal A6 (retries).
"""

from __future__ import annotations

from typing import Any, Final

import grpc

PUSHBACK: Final = "grpc-retry-pushback-ms"


def pushback_s(error: grpc.RpcError) -> float | None:
    """Return the seconds to wait before a repeated call; None: the host does not want a repeated call."""
    failed: Any = error  # gRPC's error of a call is also the failed call
    if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    for key, value in failed.trailing_metadata() or ():
        if key == PUSHBACK and value.isdigit():
            return int(value) / 1000
    return None
