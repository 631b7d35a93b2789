"""The contract's numbers of the codes of a `Status`, for both the host and the server.

Each side has its own rule for unset and unknown codes and for reasons that are too long: `requests` for the
plugin, `rpc.served.statuses` for the host. Source: the contract's common.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.status import Code, Status

WIRE_CODES: Final[Mapping[Code, pb.PluginStatus.Code.ValueType]] = {
    Code.SUCCESS: pb.PluginStatus.CODE_SUCCESS,
    Code.ERROR: pb.PluginStatus.CODE_ERROR,
    Code.UNSCHEDULABLE: pb.PluginStatus.CODE_UNSCHEDULABLE,
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: pb.PluginStatus.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE,
    Code.WAIT: pb.PluginStatus.CODE_WAIT,
    Code.SKIP: pb.PluginStatus.CODE_SKIP,
    Code.PENDING: pb.PluginStatus.CODE_PENDING,
}
CODES: Final[Mapping[int, Code]] = {number: code for code, number in WIRE_CODES.items()}
"""The codes by the contract's number, without unset and unknown codes."""


def encode_status(status: Status) -> pb.PluginStatus:
    """Return the status as a message, without the plugin, which is known from the call."""
    code, reasons = WIRE_CODES[status.code], status.reasons
    return pb.PluginStatus(code=code, reasons=reasons) if reasons else pb.PluginStatus(code=code)
