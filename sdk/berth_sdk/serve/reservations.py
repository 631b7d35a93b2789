"""The calls that end reservations: Unreserve, PostBind and Reconcile. The servicers use it.

Each call may come twice, late, or for a cycle that is unknown to this process. After a restart of the
process, the plugin gets only the pod's ref and the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.plugin.v1 import scheduling_pb2, state_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation
from berth_sdk.serve.calls import CallRefusedError, ask
from berth_sdk.serve.cycle_call import CycleCall
from berth_sdk.serve.cycles import MEMORY_TOKEN, PluginCycle
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.lanes import CallContext
from berth_sdk.serve.served import ServedPlugin
from berth_sdk.wire.groups import decode_trial
from berth_sdk.wire.records import decode_time
from berth_sdk.wire.requests import decode_bare_pod


class ReservationCalls:
    """The end of cycles, for all plugins of an instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._cycles = instance.cycles
        self._epochs: dict[str, int] = {}
        """The epoch of the last list of each plugin."""

    def is_undone(self, call: CycleCall) -> bool:
        """Return True for a Reserve that comes after its Unreserve; release its cycle then."""
        name, cycle_id = call.served.name, call.state.cycle_id
        if not self._cycles.is_undone(name, cycle_id):
            return False
        self._cycles.release(name, cycle_id)
        return True

    def undo(self, plugin: str, item: scheduling_pb2.UnreserveItem, context: CallContext) -> bool:
        """Unreserve one cycle; return False if the plugin failed and the host has to repeat the call."""
        part = self._cycles.find(plugin, item.cycle_id)
        if not self._cycles.undo_begins(plugin, item.cycle_id):
            return True
        if not self._tell("unreserve", plugin, part, item, context):
            return False
        self._cycles.undo_ended(plugin, item.cycle_id, keep=item.trial.tentative)
        return True

    def bound(self, plugin: str, item: scheduling_pb2.PostBindItem, context: CallContext) -> None:
        """Call PostBind for one cycle, and release the cycle."""
        self._tell("post_bind", plugin, self._cycles.find(plugin, item.cycle_id), item, context)
        self._cycles.end(plugin, item.cycle_id, bound=True)

    def reconcile(
        self, request: state_pb2.ReconcileRequest, context: CallContext
    ) -> state_pb2.ReconcileResponse:
        """Undo all reservations that are not in the list, and keep those in the list.

        Calls PostBind instead for a reservation of an earlier host whose pod is bound. `request`: the whole
        list. The response names listed cycles that the plugin cannot continue. Raises CallRefusedError.
        """
        plugin = request.plugin
        profiles = self._instance.profiles_of(plugin)
        first = next(iter(profiles.values()))
        live = {item.cycle_id: item for item in request.live}
        over = {key: part for key, part in self._cycles.reservations(plugin).items() if key not in live}
        bound = self._bound_of(over) if self._epochs.get(plugin) != request.host_epoch else frozenset()
        self._epochs[plugin] = request.host_epoch
        for cycle_id, part in over.items():
            if cycle_id in bound:
                bound_item = scheduling_pb2.PostBindItem(
                    cycle_id=cycle_id, node_name=part.node_name, profile=part.served.profile
                )
                self._tell("post_bind", plugin, part, bound_item, context)
                self._cycles.end(plugin, cycle_id, bound=True)
            else:
                self._give_back(plugin, cycle_id, part, context)
        known = {cycle_id for cycle_id in live if self._cycles.find(plugin, cycle_id) is not None}
        distinct = _distinct(profiles.values())
        lists: dict[int, list[LiveReservation]] = {id(served.runtime): [] for served in distinct}
        for item in live.values():
            # A profile that is gone from the configuration may still have a pod that waits.
            served = profiles.get(item.profile, first)
            lists[id(served.runtime)].append(self._take_up(served, item))
        if first.runtime.has_reconcile:
            asked = [self._ask(served, lists[id(served.runtime)], context) for served in distinct]
            unknown = frozenset[str]().union(*asked)
        else:
            has_reserve = ExtensionPoint.RESERVE in first.runtime.descriptor.points
            unknown = frozenset(
                item.cycle_id
                for item in live.values()
                if item.cycle_id not in known and _is_lost(item, has_reserve=has_reserve)
            )
        for cycle_id in unknown:
            self._cycles.release(plugin, cycle_id)
        return state_pb2.ReconcileResponse(unknown_cycle_ids=sorted(unknown))

    def _bound_of(self, over: Mapping[str, PluginCycle]) -> frozenset[str]:
        """Return the reservations of an earlier host whose pods are bound, by the copy of the state.

        That host ended between the binding and PostBind. In the first list of a new host, the copy has no pod
        that a cycle has only assumed. Without a copy of pods, no reservation is found.
        """
        try:
            nodes = self._instance.copy.nodes()
        except HandleError:
            return frozenset()
        if nodes.known_pods is None:
            return frozenset()
        found: dict[str, str] = {}
        for cycle_id, part in over.items():  # the latest reservation of a pod is the last one
            trial = part.state.trial
            if trial is None or not trial.tentative:
                found[part.pod.uid] = cycle_id
        bound = set()
        for uid, cycle_id in found.items():
            node = nodes.node_named(over[cycle_id].node_name)
            if node is not None and any(pod.uid == uid for pod in node.pods):
                bound.add(cycle_id)
        return frozenset(bound)

    def _take_up(self, served: ServedPlugin, item: state_pb2.LiveReservation) -> LiveReservation:
        part = self._cycles.find(served.name, item.cycle_id)
        if part is None:
            part = self._cycles.open(served, item.cycle_id, decode_bare_pod(item.pod))
            part.state.token = None if item.plugin_token in (b"", MEMORY_TOKEN) else item.plugin_token
        part.node_name = item.node_name
        part.reserved = True
        if item.HasField("trial"):
            part.state.trial = decode_trial(item.trial)
        deadline_s = decode_time(item.permit_deadline) if item.HasField("permit_deadline") else None
        return LiveReservation(
            state=part.state,
            pod=part.pod,
            node_name=item.node_name,
            waiting_on_permit=item.waiting_on_permit,
            deadline_s=deadline_s,
        )

    def _ask(self, served: ServedPlugin, live: list[LiveReservation], context: CallContext) -> frozenset[str]:
        with served.turn("reconcile", context):
            refused: frozenset[str] = ask(
                served, "reconcile", self._instance.loop, context, lambda: served.runtime.reconcile(live)
            )
        return refused

    def _give_back(self, plugin: str, cycle_id: str, part: PluginCycle, context: CallContext) -> None:
        item = scheduling_pb2.UnreserveItem(
            cycle_id=cycle_id, node_name=part.node_name, profile=part.served.profile
        )
        if self._cycles.undo_begins(plugin, cycle_id):
            # A failure is only logged, as it must not keep the attachment from becoming active.
            self._tell("unreserve", plugin, part, item, context)
        self._cycles.undo_ended(plugin, cycle_id)

    def _tell(
        self,
        method: str,
        plugin: str,
        part: PluginCycle | None,
        item: scheduling_pb2.UnreserveItem | scheduling_pb2.PostBindItem,
        context: CallContext,
    ) -> bool:
        """Call a method without an answer; return False if it raised an exception, which is logged."""
        if part is not None and not part.served.calls.is_shut:
            if isinstance(item, scheduling_pb2.UnreserveItem) and item.HasField("trial"):
                part.state.trial = decode_trial(item.trial)
            return self._told(part.served, method, (part.state, part.pod, item.node_name), context)
        # A profile that is gone from the configuration may have left a cycle to any of the others.
        profiles = self._instance.profiles_of(plugin)
        own = profiles.get(item.profile)
        told = True
        for runtime_of in _distinct(profiles.values()) if own is None else (own,):
            state = CycleState(item.cycle_id, plugin=plugin)
            state.token = item.plugin_token if item.plugin_token not in (b"", MEMORY_TOKEN) else None
            if isinstance(item, scheduling_pb2.UnreserveItem) and item.HasField("trial"):
                state.trial = decode_trial(item.trial)
            told &= self._told(
                runtime_of, method, (state, decode_bare_pod(item.pod), item.node_name), context
            )
        return told

    def _told(
        self, served: ServedPlugin, method: str, args: tuple[CycleState, Pod, str], context: CallContext
    ) -> bool:
        call: Callable[..., Any] = getattr(served.runtime, method)
        try:
            with served.turn(method, context):
                ask(served, method, self._instance.loop, context, lambda: call(*args))
        except CallRefusedError:
            return False
        return True


def whole_list(pages: Iterable[state_pb2.ReconcileRequest]) -> state_pb2.ReconcileRequest:
    """Return the pages of a Reconcile as one list. Raises CallRefusedError for inconsistent pages."""
    whole = state_pb2.ReconcileRequest()
    for count, page in enumerate(pages):
        if whole.last:
            raise _fault("a page follows the last one")
        if page.sequence != count:
            raise _fault(f"page {page.sequence} came where {count} was due")
        if count and (page.plugin, page.host_epoch) != (whole.plugin, whole.host_epoch):
            raise _fault("the pages are about several plugins or epochs")
        whole.MergeFrom(page)
    if not whole.last:
        raise _fault("the stream ended before the page that says `last`")
    return whole


def _fault(text: str) -> CallRefusedError:
    return CallRefusedError(
        grpc.StatusCode.INVALID_ARGUMENT, f"the list of live reservations breaks off: {text}"
    )


def _is_lost(item: state_pb2.LiveReservation, *, has_reserve: bool) -> bool:
    """Return True if a process that does not know the cycle cannot continue it.

    A wait at Permit needs no state of the process, as the host holds the pod.
    """
    if item.plugin_token == MEMORY_TOKEN:
        return True
    return not item.plugin_token and (has_reserve or not item.waiting_on_permit)


def _distinct(served: Any) -> list[ServedPlugin]:
    return list({id(one.runtime): one for one in served}.values())
