"""When the host tries again to attach: after growing waits, and earlier when another process listens at
the place.

The waits have full jitter and double from 1 s to 60 s. `Attachment` uses both while no instance is attached.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from berth_sdk.clocks import monotonic_s

from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import Identity, identity_of
from berth_host.model.backoff import Backoff

FIRST_S: Final = 1.0
MAX_S: Final = 60.0
HEALTHY_S: Final = 60.0
"""Seconds without a failure after which the next failure counts as the first."""


def attach_backoff(rng: random.Random | None = None) -> Backoff:
    """Return the waits of one attachment, each of a random length up to its bound."""
    return Backoff(FIRST_S, MAX_S, rng=rng)


REJECTED_LOOK_S: Final = 5.0
BACKOFF_LOOK_S: Final = 1.0


def is_successor(now: Identity | None, met: Identity | None, *, in_folder: bool) -> bool:
    """Return True if the socket file is another one than `met`.

    In a folder of sockets another file usually belongs to another attachment. Only a new file with the same
    inode counts there: file systems use the inode of a removed file again.
    """
    if now is None or now == met:
        return False
    return not in_folder or (met is not None and now[:2] == met[:2])


async def another_comes(place: Place, met: Identity | None, within_s: float) -> bool:
    """Wait until another process than `met` listens at the place; return False after `within_s` seconds."""
    until_s = monotonic_s() + within_s
    while (left_s := until_s - monotonic_s()) > 0:
        await asyncio.sleep(min(left_s, BACKOFF_LOOK_S))
        if is_successor(identity_of(place.endpoint), met, in_folder=place.is_open):
            return True
    return False


async def after_refusal(place: Place) -> None:
    """Wait until another process may listen at the place; forever for a refused command."""
    if place.command:
        await asyncio.Event().wait()
    refused = identity_of(place.endpoint)
    while refused is not None:
        await asyncio.sleep(REJECTED_LOOK_S)
        now = identity_of(place.endpoint)
        if now is not None and now != refused:
            return
    # TCP: only a handshake can find another instance.
    await asyncio.sleep(12 * REJECTED_LOOK_S)
