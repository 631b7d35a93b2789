"""The contract's `PluginStatus` -> `Status`, as the host reads it.

A message without a code is a violation: it may be a rejection whose code got lost. An unknown code becomes
ERROR. Reasons are cut to the limits of the contract. Called by the codec.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.wire.status import CODES

from berth_host.errors.plugins import PluginProtocolError
from berth_host.log.hidden import without_hidden
from berth_host.rpc.code_log import CodeLog

MAX_REASONS: Final = 32
MAX_REASON_BYTES: Final = 4096
_LONGEST_SECRET: Final = 4096
"""The characters behind a cut that are read too, as a secret may begin before the cut and end there."""


def decode_status(message: pb.PluginStatus, asked: tuple[str, str], codes: CodeLog) -> Status:
    """Return a Status that names the plugin.

    Raises PluginProtocolError for a message without a code.

    Args:
        message: The plugin's message.
        asked: The plugin, and the call that it answers.
        codes: Logs an unknown code.
    """
    plugin, rpc = asked
    if message.code == pb.PluginStatus.CODE_UNSPECIFIED:
        raise PluginProtocolError(plugin, rpc, without_code(message.reasons))
    code = CODES.get(message.code)
    if code is None:
        reason = codes.unknown(plugin, rpc, message.code)
        return Status(Code.ERROR, (reason, *cut_reasons(message.reasons))[:MAX_REASONS], plugin)
    if code is Code.SUCCESS and not message.reasons:
        return SUCCESS
    return Status(code, cut_reasons(message.reasons), plugin)


def without_code(reasons: Iterable[str]) -> str:
    """Return what is wrong with a status that has no code, as the end of a sentence."""
    first = next(iter(cut_reasons(reasons)), None)
    if first is None:
        return "answered a status without a code: set `code`"
    return f"answered a status with reasons and without a code ({cut(first, 256)!r}): set `code`"


def cut_reasons(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return at most MAX_REASONS reasons of at most MAX_REASON_BYTES each, one line each, never cut inside a
    character.
    """
    return tuple(plain(cut(reason)) for reason, _ in zip(reasons, range(MAX_REASONS), strict=False))


def cut(text: str, limit_bytes: int = MAX_REASON_BYTES) -> str:
    """Return the longest start of a plugin's text with at most `limit_bytes` bytes, without secrets: the
    start of a secret would no longer be found.
    """
    text = without_hidden(text[: limit_bytes + _LONGEST_SECRET])
    if 4 * len(text) <= limit_bytes:
        return text
    raw = text.encode()
    return text if len(raw) <= limit_bytes else raw[:limit_bytes].decode(errors="ignore")


def plain(text: str) -> str:
    """Return one line that is safe to show: without secrets, a blank for a line end, `?` for unprintable
    characters. A plugin's text is printed beside the host's, and could otherwise overwrite or imitate it.
    """
    text = without_hidden(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)
