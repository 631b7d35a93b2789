"""The signals TERM, INT, HUP and USR2 as asyncio events. A second TERM or INT ends the process at once, as in
kube-scheduler.

QUIT ends the process, as in kube-scheduler. Signals without a meaning (USR1, ALRM, real-time signals, ...)
end a Python process by default. A Go process ignores them, and so does this one. Python itself ignores PIPE
and XFSZ.
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
    """One event per signal. `stopping`: TERM or INT, never cleared. `reloading`: HUP. `dumping`: USR2.

    The code that reloads or dumps clears its event.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.reloading = asyncio.Event()
        self.dumping = asyncio.Event()

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Handle the signals on the running loop, for the block."""
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
        """Set `stopping`; end the process at once if `stopping` is set already."""
        if self.stopping.is_set():
            os._exit(1)
        self.stopping.set()
