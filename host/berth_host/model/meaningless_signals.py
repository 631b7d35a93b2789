"""Signals that would end a Python process, and that the scheduler ignores, as a Go process does.

Called by `berth_host.run` before the modules of the command are imported, and by `process.signals`.
Source: Go's `runtime/sigtab_linux_generic.go`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import Any, Final

MEANINGLESS: Final = tuple(
    number
    for name in ("SIGUSR1", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGXCPU")
    if (number := getattr(signal, name, None)) is not None
) + tuple(range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if hasattr(signal, "SIGRTMIN") else ())
HEARD_LATER: Final = tuple(
    number for name in ("SIGHUP", "SIGUSR2") if (number := getattr(signal, name, None)) is not None
)
"""Signals that have a meaning while the scheduler runs, and are ignored before and after."""


def pass_over(numbers: Iterable[int]) -> Mapping[int, Any]:
    """Ignore these signals from now on; return their previous handlers."""
    # A handler instead of SIG_IGN, which child processes would inherit.
    return {number: signal.signal(number, _do_nothing) for number in numbers}


def _do_nothing(number: int, frame: object) -> None:
    """Do nothing."""
