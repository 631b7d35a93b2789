"""`Handle` of a served plugin: short calls to the host's HandleService, and reads of the local copy.

The server makes one per plugin and profile. The host's address comes with the Configure of each attachment.
While a plain method waits for the host, the server runs other calls to the plugin: SimulateFilter must answer
while PostFilter waits for the host's preemption. An `async def` method uses the handle with
`asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
import numpy as np

from berth_sdk.clocks import monotonic_s
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.pod import Pod
from berth_sdk.pod_group import LiveGroup, LiveMembers, PodGroup
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PluginNodeScores,
    PodGroupPostFilterResult,
    PostFilterResult,
    Trial,
    WaitingPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.serve.handle_connection import HandleConnection
from berth_sdk.serve.lanes import waiting_for_host
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.call_names import metadata_of
from berth_sdk.wire.groups import decode_assignments, decode_live_group
from berth_sdk.wire.pushback import pushback_s
from berth_sdk.wire.requests import decode_status
from berth_sdk.wire.scenarios import encode_scenario

CALL_DEADLINE_S: Final = 5.0
EVALUATION_DEADLINE_S: Final = 60.0
"""An upper bound. The deadline of the open call is shorter, and ends the evaluation."""
_DECISIONS: Final = {decision.value: decision for decision in Decision}
_CANCELLATIONS: Final = {cancellation.value: cancellation for cancellation in Cancellation}
_NOMINATIONS: Final = {nomination.value: nomination for nomination in Nomination}


_TOO_LARGE: Final = "message larger than max"
"""A part of gRPC's own text for a message over its limit, which names no cure."""


class LocalCopy(Protocol):
    """The part of the synchronised copy that the handle reads."""

    def nodes(self) -> NodeTable:
        """Return all nodes."""
        ...

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource."""
        ...


T = TypeVar("T")


class PodGroupTries:
    """`berth_sdk.results.Tries` of one call. The deadline of the open call applies.

    The methods block in a plain method of the plugin. An `async def` method awaits them, as in process.
    """

    def __init__(
        self,
        schedule: Callable[[Sequence[Pod]], Trial],
        preempt: Callable[[], PodGroupPostFilterResult],
        *,
        reached_pre_filter: bool,
    ) -> None:
        """`reached_pre_filter`: as in `Tries`."""
        self.reached_pre_filter = reached_pre_filter
        self._schedule = schedule
        self._preempt = preempt

    def schedule(self, removed: Sequence[Pod]) -> Trial | Awaitable[Trial]:
        """Place the group in the snapshot without some pods. Raises HandleError."""
        return _here_or_beside(self._schedule, removed)

    def preempt(self) -> PodGroupPostFilterResult | Awaitable[PodGroupPostFilterResult]:
        """Run the host's own preemption for the group. Raises HandleError."""
        return _here_or_beside(self._preempt)


def _here_or_beside(call: Callable[..., T], *args: Any) -> T | Awaitable[T]:
    """Return the answer of a call that blocks; on an event loop an awaitable of it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call(*args)
    return asyncio.to_thread(call, *args)


class AskedPodGroups:
    """Implements `berth_sdk.pod_group.PodGroupReader`: every read asks the host. Raises HandleError."""

    def __init__(self, read: Callable[[str], LiveGroup]) -> None:
        self._read = read

    def object(self, key: str) -> PodGroup | None:
        """Return the object of a group; None if there is none."""
        return self._read(key).group

    def state(self, key: str) -> LiveMembers | None:
        """Return the members of a group; None if there is neither a member nor an object."""
        return self._read(key).members

    def root(self, key: str) -> PodGroup | None:
        """Return the group at the top of a group's tree; None while one of the objects is missing."""
        seen: set[str] = set()
        while key not in seen:
            seen.add(key)
            group = self._read(key).group
            if group is None or not group.parent_key:
                return group
            key = group.parent_key
        return None

    def children(self, key: str) -> list[PodGroup]:
        """Return the child groups of a CompositePodGroup, by creation time, then name."""
        found = (self._read(child).group for child in self._read(key).children)
        return [group for group in found if group is not None]


class HandleClient:
    """The calls of one plugin to the host. Safe to use from any thread."""

    def __init__(
        self,
        descriptor: Descriptor,
        connection: HandleConnection,
        copy: LocalCopy,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """Make the handle of one plugin. `forget`: drops the plugin's kept answers; `requeue` calls it."""
        self._plugin = descriptor.name
        self._with_objects = descriptor.wants_whole_pod
        self._connection = connection
        self._copy = copy
        self._forget = forget

    def describes(self, descriptor: Descriptor) -> None:
        """Take the descriptor of the instance, which may declare other needs than its class."""
        self._with_objects = descriptor.wants_whole_pod

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Return the pods that wait at Permit. `only_mine`: only pods that this plugin holds."""
        request = handle_pb2.ListWaitingPodsRequest(
            plugin=self._plugin, only_mine=only_mine, with_objects=self._with_objects
        )
        chunks = self._call("ListWaitingPods", request, whole=list)
        return [_waiting_pod(item) for chunk in chunks for item in chunk.pods]

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of `plugin`; empty: of this plugin."""
        return self._decide(
            handle_pb2.WaitDecision(
                pod_uid=waiting.pod.uid,
                cycle_id=waiting.cycle_id,
                verdict=handle_pb2.WaitDecision.VERDICT_ALLOW,
                plugin=plugin,
            )
        )

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """Reject the pod, whichever plugins hold it; the host requeues it."""
        return self._decide(
            handle_pb2.WaitDecision(
                pod_uid=waiting.pod.uid,
                cycle_id=waiting.cycle_id,
                verdict=handle_pb2.WaitDecision.VERDICT_REJECT,
                message=message,
            )
        )

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Cancel the binding of a pod in PreBind; the host requeues the pod."""
        item = handle_pb2.BindingCancellation(pod_uid=pod.uid, cycle_id=cycle_id, message=message)
        request = handle_pb2.CancelBindingRequest(plugin=self._plugin, items=[item])
        reply = self._call("CancelBinding", request)
        if len(reply.results) != 1:
            raise HandleError(f"the host answered {len(reply.results)} results to one cancellation")
        # A result of a newer contract; the value means that nothing changed.
        return _CANCELLATIONS.get(reply.results[0], Cancellation.NOT_IN_PRE_BIND)

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource."""
        return self._copy.objects(resource)

    def snapshot(self) -> NodeTable:
        """Return all nodes of the current cycle's snapshot. Raises HandleError if there is none."""
        return self._copy.nodes()

    def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult:
        """Return the result of the host's preemption. The deadline of the open PostFilter call applies."""
        request = handle_pb2.EvaluatePreemptionRequest(
            plugin=self._plugin,
            cycle_id=state.cycle_id,
            min_candidate_nodes_percentage=min_candidate_nodes_percentage,
            min_candidate_nodes_absolute=min_candidate_nodes_absolute,
        )
        reply = self._call("EvaluatePreemption", request, deadline_s=EVALUATION_DEADLINE_S)
        return PostFilterResult(
            decode_status(reply.status),
            reply.nominated_node,
            reply.clear_nomination,
            tuple(wire.decode_ref(ref) for ref in reply.victims),
        )

    def run_filters(self, state: CycleState, scenarios: Iterable[Scenario]) -> list[Status]:
        """Return the verdicts of the other plugins. The deadline of the open PostFilter call applies."""
        asked = [encode_scenario(one, None, whole=True) for one in scenarios]
        request = handle_pb2.RunFiltersRequest(plugin=self._plugin, cycle_id=state.cycle_id, scenarios=asked)
        reply = self._call("RunFilters", request, deadline_s=EVALUATION_DEADLINE_S)
        if len(reply.statuses) != len(asked):
            raise HandleError(f"the host answered {len(reply.statuses)} verdicts on {len(asked)} scenarios")
        return [decode_status(status) for status in reply.statuses]

    def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores:
        """Return the scores of all Score plugins for these nodes. The deadline of the open call applies."""
        names = tuple(node_names)
        request = handle_pb2.RunScoresRequest(plugin=self._plugin, cycle_id=state.cycle_id, node_names=names)
        reply = self._call("RunScores", request, deadline_s=EVALUATION_DEADLINE_S)
        status = decode_status(reply.status)
        if not status.is_success:
            return NodeScores(status)
        plugins = tuple(
            PluginNodeScores(item.plugin, item.weight, np.array(item.scores, dtype=np.int64))
            for item in reply.plugins
        )
        totals = np.array(reply.totals, dtype=np.int64)
        if any(len(scores) != len(names) for scores in (totals, *(item.scores for item in plugins))):
            raise HandleError(f"the host did not answer one score for each of the {len(names)} nodes")
        return NodeScores(status, names, totals, plugins)

    def tries(self, cycle_id: str, members: Mapping[str, Pod], *, reached_pre_filter: bool) -> PodGroupTries:
        """Return the what-ifs of an open PodGroupPostFilter. `members`: the pods to place, by uid.

        `reached_pre_filter`: as in `Tries`.
        """
        return PodGroupTries(
            lambda removed: self._try_pod_group(cycle_id, members, removed),
            lambda: self._preempt_for_group(cycle_id, members),
            reached_pre_filter=reached_pre_filter,
        )

    def _preempt_for_group(self, cycle_id: str, members: Mapping[str, Pod]) -> PodGroupPostFilterResult:
        request = handle_pb2.EvaluatePodGroupPreemptionRequest(plugin=self._plugin, cycle_id=cycle_id)
        reply = self._call("EvaluatePodGroupPreemption", request, deadline_s=EVALUATION_DEADLINE_S)
        return PodGroupPostFilterResult(
            decode_status(reply.status),
            decode_assignments(reply.nominations, members),
            tuple(wire.decode_ref(ref) for ref in reply.victims),
        )

    def pod_groups(self) -> AskedPodGroups:
        """Return the groups of pods as the host knows them now. Every read is a call."""
        return AskedPodGroups(self._read_pod_group)

    def _read_pod_group(self, key: str) -> LiveGroup:
        request = handle_pb2.ReadPodGroupRequest(
            plugin=self._plugin, key=key, with_objects=self._with_objects
        )
        return decode_live_group(self._call("ReadPodGroup", request))

    def _try_pod_group(self, cycle_id: str, members: Mapping[str, Pod], removed: Sequence[Pod]) -> Trial:
        request = handle_pb2.TryPodGroupRequest(
            plugin=self._plugin,
            cycle_id=cycle_id,
            removed=[pb.ObjectRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in removed],
        )
        reply = self._call("TryPodGroup", request, deadline_s=EVALUATION_DEADLINE_S)
        status = decode_status(reply.status)
        return Trial(status, decode_assignments(reply.assignments, members))

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """Return the pods that are nominated to one of these nodes; None: to any node."""
        names = () if node_names is None else tuple(node_names)
        if node_names is not None and not names:
            return []
        request = handle_pb2.ListNominatedPodsRequest(
            plugin=self._plugin,
            node_names=names,
            all_nodes=node_names is None,
            with_objects=self._with_objects,
        )
        chunks = self._call("ListNominatedPods", request, whole=list)
        return [_nominated_pod(item) for chunk in chunks for item in chunk.pods]

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Nominate a pending pod to a node; None: to the node in its status; "": remove its nomination."""
        item = handle_pb2.Nomination(pod_uid=pod.uid, mode=_mode(node_name), node_name=node_name or "")
        reply = self._call("Nominate", handle_pb2.NominateRequest(plugin=self._plugin, items=[item]))
        if len(reply.results) != 1:
            raise HandleError(f"the host answered {len(reply.results)} results to one nomination")
        # A result of a newer contract; the value means that nothing changed.
        return _NOMINATIONS.get(reply.results[0], Nomination.NOT_PERMITTED)

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Requeue these pods; none given: all pods that this plugin rejected. Returns how many moved.

        Drops the plugin's kept answers first, so that the host does not use them again.
        """
        self._forget()
        uids = [pod.uid for pod in pods]
        request = handle_pb2.RequeueRequest(
            plugin=self._plugin,
            pod_uids=uids,
            all_rejected_by_me=not uids,
            reason=reason,
            skip_backoff=skip_backoff,
        )
        return int(self._call("Requeue", request).moved)

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """Mark the sort keys of these pods as stale; none given: all keys."""
        uids = [pod.uid for pod in pods]
        request = handle_pb2.InvalidateSortKeysRequest(plugin=self._plugin, pod_uids=uids, all=not uids)
        self._call("InvalidateSortKeys", request)

    def record_event(
        self,
        regarding: ObjectRef,
        reason: str,
        note: str,
        *,
        action: str = "",
        type: str = "Normal",
    ) -> None:
        """Write a Kubernetes Event about a pod."""
        event = handle_pb2.EventRecord(
            regarding=wire.encode_ref(regarding), type=type, reason=reason, action=action, note=note
        )
        self._call("RecordEvents", handle_pb2.RecordEventsRequest(plugin=self._plugin, events=[event]))

    def _decide(self, decision: handle_pb2.WaitDecision) -> Decision:
        request = handle_pb2.DecideWaitingPodsRequest(plugin=self._plugin, decisions=[decision])
        reply = self._call("DecideWaitingPods", request)
        if len(reply.results) != 1:
            raise HandleError(f"the host answered {len(reply.results)} results to one decision")
        # A result of a newer contract; the value means that nothing changed.
        return _DECISIONS.get(reply.results[0], Decision.NOT_PERMITTED)

    def _call(
        self,
        method: str,
        request: Any,
        deadline_s: float = CALL_DEADLINE_S,
        whole: Callable[[Any], Any] = lambda reply: reply,
    ) -> Any:
        """Call the host. Raises HandleError. `whole`: converts the stub's return value, such as a stream."""
        stub, token = self._connection.open()
        metadata = (*token, *metadata_of(plugin=request.plugin))
        call: Callable[..., Any] = getattr(stub, method)
        try:
            with waiting_for_host():
                return _patiently(
                    lambda left_s: whole(call(request, metadata=metadata, timeout=left_s)), deadline_s
                )
        except grpc.RpcError as err:
            # gRPC's error of a call is also the failed call, with its code and its details.
            failed: Any = err
            text = f"{method} failed with {failed.code().name}: {failed.details()}"
            if failed.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in (failed.details() or ""):
                text += ": ask in parts"
            raise HandleError(text) from err
        except ValueError as err:
            raise HandleError(f"{method} failed: the attachment ended during the call") from err


def _patiently(call: Callable[[float], Any], deadline_s: float) -> Any:
    """Return the answer of `call`, which gets the remaining seconds.

    If the host limits the rate of calls, its error names a pause. The call is repeated after the pause,
    within the deadline.
    """
    ends_s = monotonic_s() + deadline_s
    while True:
        try:
            return call(max(ends_s - monotonic_s(), 0.0))
        except grpc.RpcError as err:
            pause_s = pushback_s(err)
            if pause_s is None or monotonic_s() + pause_s >= ends_s:
                raise
        time.sleep(pause_s)


def _mode(node_name: str | None) -> handle_pb2.Nomination.Mode.ValueType:
    if node_name is None:
        return handle_pb2.Nomination.MODE_FROM_STATUS
    return handle_pb2.Nomination.MODE_OVERRIDE if node_name else handle_pb2.Nomination.MODE_REMOVE


def _pod(message: handle_pb2.WaitingPod | handle_pb2.NominatedPod) -> Pod:
    item = wire.decode_object(message.object) if message.HasField("object") else None
    return wire.decode_pod(message.pod, item=item)


def _nominated_pod(message: handle_pb2.NominatedPod) -> NominatedPod:
    return NominatedPod(pod=_pod(message), node_name=message.node_name)


def _waiting_pod(message: handle_pb2.WaitingPod) -> WaitingPod:
    return WaitingPod(
        pod=_pod(message),
        cycle_id=message.cycle_id,
        node_name=message.node_name,
        pending_plugins=tuple(message.pending_plugins),
        deadline_s=wire.decode_time(message.deadline) if message.HasField("deadline") else float("inf"),
    )
