"""The limit for the size of a message, on both sides of the contract. All sizes are in bytes.

Each side has a limit of its own: the plugin's server announces its limit in the handshake, and the operator
sets the host's. The smaller one holds for both directions. Source: the contract's identity.proto
(HandshakeResponse and ConfigureRequest, max_message_bytes).
"""

from __future__ import annotations

from typing import Any, Final

DEFAULT_BYTES: Final = 4 * 1024 * 1024
"""The limit of a server that announces none, and of gRPC libraries."""
SERVER_BYTES: Final = 64 * 1024 * 1024
"""The limit of the SDK's server, unless an option sets another."""
MIN_BYTES: Final = 64 * 1024
"""The smallest limit: below it, a value of shared cycle state would not fit into a call."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""The largest limit that a configuration or an option may set."""
FLAG: Final = "--max-message-bytes"
CURE: Final = (
    "raise the smaller one of maxMessageBytes in BerthConfiguration and the limit that the plugin's server"
    f" announces (berth-sdk serve {FLAG})"
)
"""The end of an error about a message over the limit."""


def size_options(limit_bytes: int) -> list[tuple[str, Any]]:
    """Return the options of a gRPC channel or server for messages of at most `limit_bytes`."""
    return [
        ("grpc.max_send_message_length", limit_bytes),
        ("grpc.max_receive_message_length", limit_bytes),
    ]


def limit_problem(limit_bytes: int) -> str:
    """Return what is wrong with a limit, as the end of a sentence; empty if nothing is."""
    if MIN_BYTES <= limit_bytes <= MAX_BYTES:
        return ""
    return f"not in valid range [{MIN_BYTES}, {MAX_BYTES}]"
