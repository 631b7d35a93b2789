"""`Status` and the contract's `Status` message, both ways.

An unset code reads as its place says (`unset`), an unknown one as ERROR; reasons are cut to what the
contract allows. Called by the codec and by the handle's service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.status import SUCCESS, Code, Status

MAX_REASONS: Final = 32
MAX_REASON_BYTES: Final = 4096

_TO_WIRE: Final = {
    Code.SUCCESS: pb.Status.CODE_SUCCESS,
    Code.ERROR: pb.Status.CODE_ERROR,
    Code.UNSCHEDULABLE: pb.Status.CODE_UNSCHEDULABLE,
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: pb.Status.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE,
    Code.WAIT: pb.Status.CODE_WAIT,
    Code.SKIP: pb.Status.CODE_SKIP,
    Code.PENDING: pb.Status.CODE_PENDING,
}
_FROM_WIRE: Final[dict[int, Code]] = {wire: code for code, wire in _TO_WIRE.items()}


def encode_status(status: Status) -> pb.Status:
    """Status -> message; the plugin that signed it does not travel."""
    return pb.Status(code=_TO_WIRE[status.code], reasons=status.reasons)


def decode_status(message: pb.Status, plugin: str, unset: Code) -> Status:
    """Message -> Status signed by `plugin`."""
    if message.code == pb.Status.CODE_UNSPECIFIED:
        code = unset
    else:
        known = _FROM_WIRE.get(message.code)
        if known is None:
            reason = f'plugin "{plugin}" answered the unknown status code {message.code}'
            return Status(Code.ERROR, (reason, *cut_reasons(message.reasons))[:MAX_REASONS], plugin)
        code = known
    if code is Code.SUCCESS and not message.reasons:
        return SUCCESS
    return Status(code, cut_reasons(message.reasons), plugin)


def cut_reasons(reasons: Iterable[str]) -> tuple[str, ...]:
    """At most MAX_REASONS of at most MAX_REASON_BYTES each, never cut inside a character."""
    return tuple(cut(reason) for reason, _ in zip(reasons, range(MAX_REASONS), strict=False))


def cut(text: str, limit_bytes: int = MAX_REASON_BYTES) -> str:
    """The longest start of `text` that fits."""
    if 4 * len(text) <= limit_bytes:
        return text
    raw = text.encode()
    return text if len(raw) <= limit_bytes else raw[:limit_bytes].decode(errors="ignore")
