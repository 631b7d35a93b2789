"""Gang: all pods of a group start together, or none of them starts.

Two labels of a pod give the name of its gang and the number of members. Each member that has found a node
waits at Permit. The member that completes the gang allows all of them. When a member gives up (its wait timed
out, or a step after Permit failed), the others give up too, so that half a gang never holds nodes for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError, PluginArgsError
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PermitResult, WaitingPod
from berth_sdk.status import Status

NAME: Final = "gang.example.com/name"
SIZE: Final = "gang.example.com/size"
Key = tuple[str, str]


class Gang(Plugin):
    """Holds pods until their gang is complete. Arguments: `waitSeconds`, how long the first member waits for
    the last (default 30).
    """

    version = "1.0.0"
    depends_on = DependsOn.OTHER
    # A gang that was sent back is tried again when a member is added, or a node that may fit.
    events = (EventInterest("Pod", ("add",), label_selector=NAME), EventInterest("Node", ("add",)))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._wait_s = args.get("waitSeconds", 30)
        if isinstance(self._wait_s, bool) or not isinstance(self._wait_s, int | float) or self._wait_s <= 0:
            raise PluginArgsError("waitSeconds: must be a number above zero")
        self._released: dict[Key, set[str]] = {}

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Wait for the other members. The last member allows all of them."""
        key = gang_of(pod)
        if key is None:
            return Status.success()
        size = pod.labels.get(SIZE, "")
        if not size.isdecimal():
            return Status.unresolvable(f"label {SIZE} must be a number, but is {size!r}")
        siblings = self._waiting(key, besides=pod)
        released = self._released.setdefault(key, set())
        there = len(siblings) + len(released - {pod.uid}) + 1
        if there < int(size):
            return PermitResult.wait(self._wait_s, f"gang {key[1]} has {there} of {size} members")
        released.update((pod.uid, *(waiting.pod.uid for waiting in siblings)))
        for waiting in siblings:
            self.handle.allow(waiting)
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Send the members that still wait back too, because one member gave up."""
        key = gang_of(pod)
        if key is None:
            return
        self._released.get(key, set()).discard(pod.uid)
        try:
            for waiting in self._waiting(key, besides=pod):
                self.handle.reject(waiting, f"gang {key[1]} lost member {pod.name}")
        except HandleError:
            pass  # unreserve must not fail: without the host, the other members' waits time out

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Reserve nothing. The method exists so that the host calls `unreserve`."""
        return Status.success()

    def reconcile(self, live: Sequence[LiveReservation]) -> None:
        """Restore nothing: the host lists the waiting pods, so an earlier process had no state of its own."""

    def _waiting(self, key: Key, *, besides: Pod) -> list[WaitingPod]:
        return [
            waiting
            for waiting in self.handle.waiting_pods(only_mine=True)
            if waiting.pod.uid != besides.uid and gang_of(waiting.pod) == key
        ]


def gang_of(pod: Pod) -> Key | None:
    """Return namespace and name of the pod's gang, None for a pod without one."""
    name = pod.labels.get(NAME)
    return (pod.namespace, name) if name else None
