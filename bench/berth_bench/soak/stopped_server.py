"""`StoppedServer`: the process of a kube-apiserver that is stopped for a while and continued.

Used by `real_cluster`. While stopped it keeps its connections, accepts new ones and answers nothing, as on a
machine that is out of memory. Another program, or another cluster's server, is refused. Source: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import Final

from berth_bench.soak.clusters import SoakError
from berth_bench.soak.descriptors import PROC, connections_of

PROGRAM: Final = "kube-apiserver"
_TAKES_WITHIN_S: Final = 2.0
_LOOK_S: Final = 0.02


class StoppedServer:
    """The process. running -stop-> stopped -go_on-> running

    Raises SoakError for a process that does not answer at `host` and `port`.
    """

    def __init__(self, pid: int, host: str, port: int) -> None:
        self._pid = pid
        option = f"--api-server-pid {pid}"
        try:
            program = (PROC / str(pid) / "comm").read_text().strip()
            if program != PROGRAM:
                raise SoakError(f"{option}: is {program}, not {PROGRAM}; find the id with pgrep {PROGRAM}")
            os.kill(pid, 0)
            answers = _takes_connection(pid, host, port)
        except (FileNotFoundError, ProcessLookupError):
            raise SoakError(
                f"{option}: there is no such process here; find the id with pgrep {PROGRAM}"
            ) from None
        except PermissionError:
            raise SoakError(f"{option}: is another user's process; run the soak as that user") from None
        except OSError as err:
            raise SoakError(f"{host}:{port}, of the kubeconfig: {err}; is the server running?") from None
        if not answers:
            raise SoakError(
                f"{option}: the kubeconfig leads to {host}:{port}, where another process answers; give its id"
            )

    def stop(self) -> None:
        """Stop the process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # If the process has ended meanwhile, the account shows it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


def _takes_connection(pid: int, host: str, port: int) -> bool:
    """Return True if a connection to that address ends in this process; the port alone may be another
    machine's.
    """
    until_s = time.monotonic() + _TAKES_WITHIN_S
    with socket.create_connection((host, port), timeout=_TAKES_WITHIN_S) as probe:
        own_port = probe.getsockname()[1]
        while (port, own_port) not in connections_of(pid):
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
    return True
