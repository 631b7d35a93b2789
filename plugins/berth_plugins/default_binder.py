"""DefaultBinder: lets the host post the Binding object of the pod. Called at Bind.

Source: `pkg/scheduler/framework/plugins/defaultbinder/default_binder.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult
from berth_sdk.status import SUCCESS

_HOST_BINDS: Final = BindResult(SUCCESS, host_binds=True)


class DefaultBinder(Plugin):
    """Leaves the write to the host, which has the rights for it. Never skips."""

    needs: Sequence[Need] = ()
    depends_on: DependsOn | None = DependsOn.OTHER
    events: Sequence[EventInterest] | None = ()

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        """Return SUCCESS: the host posts the Binding. An error of the API server becomes the pod's error."""
        return _HOST_BINDS
