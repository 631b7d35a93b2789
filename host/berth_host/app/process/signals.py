"""TERM, INT, HUP and USR2 -> events that the process waits for. A second TERM ends it at once, as
kube-scheduler's.

QUIT ends the process, as it does kube-scheduler. Signals without a meaning (USR1, ALRM, real-time signals,
...) end a Python process by default, and a Go process takes no notice of them: nor does this one. Python
itself passes over PIPE and XFSZ.
Source: `k8s.io/apiserver/pkg/server/signal.go`, `cache/debugger/signal.go`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from berth_host.model.meaningless_signals import HEARD_LATER, MEANINGLESS, pass_over

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`stopping` is set for good; each HUP sets `reloading`, each USR2 `dumping`, and the code that acts
    on it clears it.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reloading = asyncio.Event()
        self.dumping = asyncio.Event()

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Take the signals over, on the running loop."""
        loop = asyncio.get_running_loop()
        before = pass_over((*MEANINGLESS, *HEARD_LATER))
        for stopping in _STOPPING:
            loop.add_signal_handler(stopping, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.set)
        loop.add_signal_handler(signal.SIGUSR2, self.dumping.set)
        try:
            yield self
        finally:
            for heard in (*_STOPPING, *HEARD_LATER):
                loop.remove_signal_handler(heard)
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """A signal asks the process to end; the second one ends it at once."""
        if self.stopping.is_set():
            os._exit(1)
        self.stopping.set()
