"""`Line`, `Lines`: open connections for the calls of scheduling cycles, in place of separate gRPC calls.

Implemented by `call_stream` and `framed_line`, used by `InstanceLink`.
"""

from __future__ import annotations

from typing import Final, Protocol

from berth_sdk.wire.stream import unwrap_answer
from google.protobuf.message import DecodeError

LARGEST_BYTES: Final = 1024 * 1024
"""A larger request goes as a call of its own: with its envelope it could be over a limit that it keeps."""
ENVELOPE_BYTES: Final = 16
"""By so much an answer on a line may be longer than one of its own, at most."""


class Line(Protocol):
    """One plugin's. It carries one call at a time."""

    async def ask(self, number: int, raw: bytes, deadline_s: float) -> bytes | None:
        """One call; None: the line was closed and the call not executed. Raises what a call of its own
        would: AioRpcError, DecodeError, CancelledError.
        """
        ...


class Lines(Protocol):
    """The lines of one instance, by plugin, each opened when it is needed. `name`: for tables and logs."""

    name: str

    def free(self, plugin: str) -> Line | None:
        """The plugin's line; None: it carries a call already."""
        ...

    async def end(self) -> None:
        """Let the instance end those between two calls; one that does not is left to `close`."""
        ...

    def close(self) -> None:
        """No call will be answered any more."""
        ...


def answer_to(number: int, raw: bytes) -> bytes:
    """The answer to call `number` in the envelope `raw`. Raises DecodeError."""
    try:
        answers, reply = unwrap_answer(raw)
    except ValueError as err:
        raise DecodeError(str(err)) from err
    if answers != number:
        raise DecodeError(f"an answer to call {answers} where {number} was asked")
    return reply
