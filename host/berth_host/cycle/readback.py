"""Reads from the cluster which node a pod is bound to, after a Binding whose outcome is unknown.

Called by the binding cycle, which keeps the pod assumed meanwhile. If the pod were forgotten too early, other
pods would get its room, although the pod may run there.
"""

from __future__ import annotations

from typing import Final

from berth_sdk.pod import Pod

from berth_host.attempt.cycle import Cycle
from berth_host.cluster.port import ClusterCalls
from berth_host.errors.cluster import ClusterError
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.model.clock import Clock, sleep

log = get_logger()
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
CLAIM_S: Final = 10.0
"""Seconds in which the cluster must show a binding after a plugin answered that it bound the pod."""


class ReadBack:
    """The reads of pods. Pauses between tries grow from FIRST_PAUSE_S to MAX_PAUSE_S, on the host's clock."""

    def __init__(self, cluster: ClusterCalls, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def comes_to(self, pod: Pod, cycle: Cycle) -> str | None:
        """Read the pod until it is bound or gone, for at most CLAIM_S; return as `node_of`."""
        ends_s = self._clock.monotonic_s() + CLAIM_S
        pause_s = FIRST_PAUSE_S
        while (found := await self.node_of(pod, cycle)) == "":
            if self._clock.monotonic_s() >= ends_s:
                break
            cycle.idle = True
            await sleep(self._clock, pause_s)
            cycle.idle = False
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        return found

    async def node_of(self, pod: Pod, cycle: Cycle | None = None) -> str | None:
        """Return the node that the pod is on, "" for none; None: the pod is gone.

        `cycle`: the binding cycle that asks; it is idle between the tries.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                now = await self._cluster.get("pods", pod.ref)
                return None if now is None else str(now.get("spec.nodeName", ""))
            except InvariantError:
                raise
            except Exception as err:
                # Only an answer ends the loop: an exception does not show where the pod is.
                log.warning(
                    "pod.read_back_failed",
                    pod=pod.key,
                    problem=str(err),
                    again_in_s=pause_s,
                    exc_info=None if isinstance(err, ClusterError) else err,
                )
            if cycle is not None:
                cycle.idle = True
            await sleep(self._clock, pause_s)
            if cycle is not None:
                cycle.idle = False
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
