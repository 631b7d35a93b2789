"""`Stage`: what all parts of one life share."""

from __future__ import annotations

from dataclasses import dataclass

from berth_sim.cluster.server import ApiServer

from berth_bench.life.trace import Trace
from berth_bench.life.virtual_loop import VirtualClocks
from berth_bench.life.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The shared parts of one life.

    `server`: the embedded API server. `weights`: drawn from the seed. `trace`: gets a line for all that
    happens. `clocks`: the virtual time.
    """

    server: ApiServer
    weights: Weights
    trace: Trace
    clocks: VirtualClocks
