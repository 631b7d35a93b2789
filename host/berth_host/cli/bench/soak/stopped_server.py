"""`StoppedServer`: the process of a kube-apiserver that is stopped for a while, and goes on.

Used by `real_cluster`. Stopped it keeps its connections, takes new ones and answers nothing, as on a machine
that is out of memory. Another process, or another cluster's server, is refused. Source: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final

from berth_host.cli.bench.soak.clusters import SoakError
from berth_host.cli.bench.soak.descriptors import PROC, ports_of

PROGRAM: Final = "kube-apiserver"


class StoppedServer:
    """running -stop-> stopped -go_on-> running. Raises SoakError for a process that is not the API server
    which listens at `port`.
    """

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        option = f"--api-server-pid {pid}"
        try:
            program = (PROC / str(pid) / "comm").read_text().strip()
            ports = ports_of(pid)
            os.kill(pid, 0)
        except FileNotFoundError:
            raise SoakError(f"{option}: there is no such process here; pgrep {PROGRAM} tells") from None
        except PermissionError:
            raise SoakError(f"{option}: is another user's process; run the soak as that user") from None
        if program != PROGRAM:
            raise SoakError(f"{option}: is {program}, no {PROGRAM}; pgrep {PROGRAM} tells")
        if port not in ports:
            listens = ", ".join(map(str, sorted(ports))) or "no port"
            raise SoakError(
                f"{option}: listens at {listens}, and the kubeconfig leads to port {port};"
                " give the process of that server"
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
