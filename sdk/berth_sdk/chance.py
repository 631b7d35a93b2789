"""The random numbers of a process that must differ from those of every other process.

Used for the jitter of waits and for ids. Credentials are made by `secrets` alone, and the choice between
nodes with equal scores by `cycle.chooser`. A program that simulates a whole process replaces the source
(`replaced`), so that the same seed gives the same run.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class _Used:
    """The generator that the functions of this module draw from."""

    chance: ClassVar[random.Random] = random.SystemRandom()


def share() -> float:
    """Return a number in [0, 1)."""
    return _Used.chance.random()


def below(count: int) -> int:
    """Return an integer in [0, count)."""
    return _Used.chance.randrange(count)


def token_hex(size_bytes: int) -> str:
    """Return so many random bytes as hexadecimal digits."""
    return _Used.chance.randbytes(size_bytes).hex()


def new_uid() -> str:
    """Return a UUID of version 4 in its usual form."""
    return str(uuid.UUID(bytes=_Used.chance.randbytes(16), version=4))


def generator() -> random.Random:
    """Return a generator with a seed of its own, for a part that draws often."""
    return random.Random(_Used.chance.getrandbits(64))


@contextmanager
def replaced(chance: random.Random) -> Iterator[None]:
    """Let the whole process draw from `chance` until the block ends."""
    before, _Used.chance = _Used.chance, chance
    try:
        yield
    finally:
        _Used.chance = before
