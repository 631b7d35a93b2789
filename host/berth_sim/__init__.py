"""Runs without a cluster: an embedded API server, manifests that fill it, and commands that work on files.

cluster/    the embedded API server behind the port, with admission, validation and controllers
manifests/  manifests on disk, read as objects and workloads
run/        a host on the embedded cluster, run until nothing changes any more
commands/   `berth simulate` and its like, which `berth` finds by entry points

Programs of others may import from here: `ApiServer`, `MemoryCluster`, `settle`, and `server_of_a_question`,
which admits the manifests of questions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from berth_sim.cluster.admitting import server_of_a_question
    from berth_sim.cluster.cluster import MemoryCluster
    from berth_sim.cluster.server import ApiServer
    from berth_sim.run.settle import settle

__all__ = ["ApiServer", "MemoryCluster", "server_of_a_question", "settle"]
_HOMES: Final = {
    "ApiServer": "berth_sim.cluster.server",
    "MemoryCluster": "berth_sim.cluster.cluster",
    "server_of_a_question": "berth_sim.cluster.admitting",
    "settle": "berth_sim.run.settle",
}


def __getattr__(name: str) -> object:
    """Import what is asked for, and nothing before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
