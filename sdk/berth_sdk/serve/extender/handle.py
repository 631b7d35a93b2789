"""`ExtenderHandle`: the handle of a plugin that is served as an extender. There is no host to call."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NoReturn

from berth_sdk.errors import HandleError
from berth_sdk.runtime.way_back import WAY_BACK
from berth_sdk.tables import NodeTable

IN_BIND: Final[ContextVar[bool]] = ContextVar("in_bind", default=False)
"""True in a call of Bind, which runs beside the requests that change the snapshot."""


class ExtenderHandle:
    """The handle. `snapshot`: returns all nodes; None: the server has no copy of the cluster."""

    def __init__(self, snapshot: Callable[[], NodeTable] | None) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> NodeTable:
        """Return all nodes. Raises HandleError without a copy, and in Bind."""
        if self._snapshot is None:
            raise HandleError(
                "handle.snapshot: an extender without access to the API server knows the nodes of one request"
                " only: start `berth-sdk serve --extender` with --server or --in-cluster"
            )
        if IN_BIND.get():
            raise HandleError("handle.snapshot: the snapshot may change while Bind runs: read it in Filter")
        return self._snapshot()

    def __getattr__(self, name: str) -> Any:
        if name not in WAY_BACK and name != "objects":
            raise AttributeError(name)

        def refuse(*_args: object, **_kwargs: object) -> NoReturn:
            raise HandleError(f"handle.{name}: kube-scheduler offers its extenders no such call")

        return refuse
