"""`server_of_a_question`: admits the pods and nodes that a host is asked about, as an API server would."""

from __future__ import annotations

from berth_host.model.clock import ManualClock

from berth_sim.cluster.admission.gatekeeping import Gatekeeping
from berth_sim.cluster.server import ApiServer


def server_of_a_question(now_s: float) -> ApiServer:
    """Return an empty API server, with all admission plugins. `now_s`: its time, in Unix seconds."""
    return ApiServer(ManualClock(now_s), Gatekeeping())
