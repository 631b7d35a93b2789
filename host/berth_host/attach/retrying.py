"""When the host tries again to attach: `Backoff` after failures, and earlier when another process listens at
the place.

The waits have full jitter and double from 1 s to 60 s. `Attachment` uses both while no instance is attached.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Final, TypeAlias

from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import socket_path
from berth_host.rpc.served.peer_user import socket_identity

FIRST_S: Final = 1.0
MAX_S: Final = 60.0
_MAX_DOUBLINGS: Final = 64
HEALTHY_S: Final = 60.0
"""Seconds without a failure after which the next failure counts as the first."""


class Backoff:
    """The waits of one attachment. `failures`: the number of failed attempts in a row."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.failures = 0
        self._rng = rng or random.Random()

    def next_s(self) -> float:
        """Count a failure; return a random wait in seconds, so that many attachments do not retry at once."""
        # A plugin may stay away for days: the exponent must not grow with its failures.
        bound_s = min(math.ldexp(FIRST_S, min(self.failures, _MAX_DOUBLINGS)), MAX_S)
        self.failures += 1
        return self._rng.uniform(0.0, bound_s)

    def reset(self) -> None:
        """Start again at the first delay, after the connection has been stable."""
        self.failures = 0


REJECTED_LOOK_S: Final = 5.0
BACKOFF_LOOK_S: Final = 1.0
Identity: TypeAlias = tuple[int, int, int]
"""A socket file's device, inode and time of its last change (nanoseconds)."""


def identity_of(endpoint: str) -> Identity | None:
    """Return a value that differs between a socket file and its successor; None for TCP or no file."""
    if not endpoint.startswith("unix:"):
        return None
    try:
        return socket_identity(socket_path(endpoint))
    except OSError:
        return None


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
    until_s = time.monotonic() + within_s
    while (left_s := until_s - time.monotonic()) > 0:
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
