"""A plugin whose needs, events and node mode follow from its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import NodeMode, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeView

CLAIMS = "persistentvolumeclaims"


class ByArguments(Plugin):
    """Lets pods onto nodes once a claim exists.

    Arguments: `claim` (the claim's name; none: every pod may go), `closed` (true: no pod may go), `mode`
    (`SNAPSHOT`; none: by names), `needs` (declared as it is).
    """

    node_mode = NodeMode.NAMES
    needs: Sequence[Need] = ()
    events: Sequence[EventInterest] = (EventInterest("Node", ("add",)),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self._claim = str(args.get("claim", ""))
        self._is_closed = bool(args.get("closed"))
        if self._claim:
            self.needs = [Need.objects(CLAIMS)]
            self.events = [EventInterest("PersistentVolumeClaim", ("add",))]
            self._claims = handle.objects(CLAIMS)
        if "mode" in args:
            self.node_mode = NodeMode[args["mode"]]
        if "needs" in args:
            self.needs = args["needs"] or ()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        if self._is_closed:
            return Status.unschedulable("no pod may go")
        if self._claim and self._claims.get(self._claim, pod.namespace) is None:
            return Status.unschedulable(f"waits for the claim {self._claim}")
        return SUCCESS
