"""`StoppedServer`: the process of a kube-apiserver that is stopped for a while, and goes on.

Used by `real_cluster`. Stopped it keeps its connections, takes new ones and answers nothing, as on a machine
that is out of memory. Another program, or another cluster's server, is refused. Source: proc(5).
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
    """running -stop-> stopped -go_on-> running

    Raises SoakError for a process that is not the one which answers at `host` and `port`.
    """

    def __init__(self, pid: int, host: str, port: int) -> None:
        self._pid = pid
        option = f"--api-server-pid {pid}"
        try:
            program = (PROC / str(pid) / "comm").read_text().strip()
            if program != PROGRAM:
                raise SoakError(f"{option}: is {program}, no {PROGRAM}; pgrep {PROGRAM} tells")
            os.kill(pid, 0)
            answers = _takes_connection(pid, host, port)
        except (FileNotFoundError, ProcessLookupError):
            raise SoakError(f"{option}: there is no such process here; pgrep {PROGRAM} tells") from None
        except PermissionError:
            raise SoakError(f"{option}: is another user's process; run the soak as that user") from None
        except OSError as err:
            raise SoakError(f"{host}:{port}, of the kubeconfig: {err}; is the server running?") from None
        if not answers:
            raise SoakError(
                f"{option}: the kubeconfig leads to {host}:{port}, where another process answers; give its id"
            )

    def stop(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # Where it has ended meanwhile, the account shows it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


def _takes_connection(pid: int, host: str, port: int) -> bool:
    """Whether a connection to there ends in this process: a port alone may be another machine's."""
    until_s = time.monotonic() + _TAKES_WITHIN_S
    with socket.create_connection((host, port), timeout=_TAKES_WITHIN_S) as probe:
        own_port = probe.getsockname()[1]
        while (port, own_port) not in connections_of(pid):
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
    return True
