"""`virtual_keep_alive`: lets aiohttp's clients close idle connections by virtual time.

aiohttp measures by the machine's clock how long a connection has been idle. A life on a loaded machine would
then open more connections than the same life on an idle one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import connector
from berth_sdk.clocks import monotonic_s


@contextmanager
def virtual_keep_alive() -> Iterator[None]:
    """Let aiohttp read `berth_sdk.clocks` until the block ends."""
    names = vars(connector)
    before, names["monotonic"] = names["monotonic"], monotonic_s
    try:
        yield
    finally:
        names["monotonic"] = before
