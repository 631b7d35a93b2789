"""Deadlines: how long a host waits for a call, and the check that the answers come in that time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import grpc

from berth_sdk.conformance.case import BrokenError, spelled
from berth_sdk.conformance.host import CallError, Host
from berth_sdk.plugin.v1 import identity_pb2 as identity

WARM_UP_S: float = 5.0
"""The time for each of the first calls, in which a process may still compile its code."""
_WARM_UPS: Final = 3
_TRIES: Final = 5
_DEADLINE_S: Final = 0.25
"""The default deadline of a call that `_DEADLINES_S` does not name."""
_DEADLINES_S: Final[Mapping[str, float]] = {"Reserve": 1.0, "Permit": 1.0}
"""The default deadlines, as the comments of the contract say them."""
_POINTS: Final[Mapping[str, int]] = {spelled(point): point for point in identity.ExtensionPoint.values()}
_SPELLED: Final[Mapping[str, str]] = {"SortKeys": "queueSort"}
"""The calls that BerthConfiguration spells otherwise."""


def deadline_s(host: Host, rpc: str) -> float:
    """Return the deadline of a call: what the plugin declares, or the default."""
    point = _POINTS.get(config_name(rpc))
    wishes = [one.deadline for one in host.subject.plugin.deadlines if one.point == point]
    wished_s = wishes[0].seconds + wishes[0].nanos / 1e9 if wishes else 0.0
    return wished_s if wished_s > 0 else _DEADLINES_S.get(rpc, _DEADLINE_S)


def answers_in_time(host: Host, rpc: str, ask: Callable[[float], None]) -> None:
    """Check that a plugin answers a call within its deadline: the best of five, after some to warm up.

    `ask` makes the call, with the calls before it, and gives it that many seconds. Raises BrokenError, and
    SkippedError if the host would not make the call.
    """
    limit_s = deadline_s(host, rpc)
    failed: CallError | None = None
    for number in range(_WARM_UPS + _TRIES):
        is_warm = number >= _WARM_UPS
        try:
            ask(limit_s if is_warm else WARM_UP_S)
        except CallError as err:
            if err.code is not grpc.StatusCode.DEADLINE_EXCEEDED or err.rpc != rpc:
                raise
            failed = err
        else:
            if is_warm:
                return
    raise BrokenError(
        f"{failed}; its deadline is {limit_s:g} s, and the host drops a later answer: answer sooner, or"
        f" declare a longer deadline for {config_name(rpc)} (PluginDescriptor.deadlines)"
    )


def config_name(rpc: str) -> str:
    """Return a call as BerthConfiguration spells its point."""
    return _SPELLED.get(rpc, rpc[0].lower() + rpc[1:])
