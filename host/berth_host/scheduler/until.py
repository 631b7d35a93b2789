"""Waiting for tasks that come and go, for a bounded time. Called where the host drains and stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection


async def all_ended(tasks: Collection[asyncio.Future[None]], timeout_s: float) -> bool:
    """Wait until `tasks`, from which they vanish when they end, is empty; False: `timeout_s` was over first.

    Real time: the calls waited for go to the cluster, whose time is real in every mode.
    """
    ends_s = time.monotonic() + timeout_s
    while tasks:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            return False
        await asyncio.wait(set(tasks), timeout=left_s)
    return True
