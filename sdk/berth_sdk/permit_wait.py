"""How long a pod may wait at Permit, and what its owner reads when that time is over.

Source: kube-scheduler `framework/runtime/framework.go` (maxTimeout), `waiting_pods_map.go`, v1.36.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.status import Status

MAX_WAIT_S: Final = 15 * 60.0
"""Longer waits are cut to this many seconds."""


def timed_out(plugin: str, wait_s: float) -> Status:
    """Return the rejection of a pod whose wait at `plugin` lasted `wait_s` seconds.

    >>> timed_out("Gang", 90).message
    'rejected due to timeout after waiting 1m30s at plugin Gang'
    """
    text = f"rejected due to timeout after waiting {go_duration(wait_s)} at plugin {plugin}"
    return Status.unschedulable(text).with_plugin(plugin)


def go_duration(seconds: float) -> str:
    """Seconds as Go prints a duration, such as `1m30s` or `250ms`; messages are compared with Go's."""
    if seconds == 0:
        return "0s"
    nanos = round(seconds * 10**9)
    if nanos < 10**9:
        for unit, size in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if nanos >= size:
                return f"{_trimmed(nanos, size)}{unit}"
    minutes, rest = divmod(nanos, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else (f"{minutes}m" if minutes else "")
    return f"{head}{_trimmed(rest, 10**9)}s"


def _trimmed(nanos: int, size: int) -> str:
    whole, part = divmod(nanos, size)
    if not part:
        return str(whole)
    digits = str(part).rjust(len(str(size)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
