"""`admitted`: the admission of the pods and nodes that `berth scheduler` is asked about."""

from __future__ import annotations

from berth_host.app.asking import AdmittingServer


def admitted(now_s: float) -> AdmittingServer:
    """Return an empty API server for the manifests of one question. `now_s`: its time, in Unix seconds."""
    # Here, as a host that is never asked needs no embedded API server.
    from berth_sim.cluster.admitting import server_of_a_question

    return server_of_a_question(now_s)
