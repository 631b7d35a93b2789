"""Waits until a changing set of tasks has ended. Called where the host drains and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from berth_sdk.clocks import monotonic_s


async def all_ended(tasks: Collection[asyncio.Future[None]], timeout_s: float) -> bool:
    """Wait until `tasks`, which removes each task that ends, is empty; return False after `timeout_s`.

    `timeout_s` is real time, because the calls of the tasks go to the cluster, also in a simulation.
    """
    ends_s = monotonic_s() + timeout_s
    while tasks:
        left_s = ends_s - monotonic_s()
        if left_s <= 0:
            return False
        await asyncio.wait(set(tasks), timeout=left_s)
    return True
