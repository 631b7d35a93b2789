"""TERM, INT and HUP -> events that the process waits for. A second TERM ends it at once, as kube-scheduler's.

Source: `k8s.io/apiserver/pkg/server/signal.go`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`stopping` is set for good; each HUP sets `reloading`, and the code that acts on it clears it."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reloading = asyncio.Event()

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Take the signals over, on the running loop."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.set)
        try:
            yield self
        finally:
            for number in (*_STOPPING, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """A signal asks the process to end; the second one ends it at once."""
        if self.stopping.is_set():
            os._exit(1)
        self.stopping.set()
