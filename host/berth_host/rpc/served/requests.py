"""The arguments of a call -> the contract's requests: the column `encode` of `rpc.calls`.

`RequestWriter` knows the plugin and its link; `GrpcTransport` adds the envelope of the cycle to the request
and sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PatchResult, QueuedPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenarios
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.rpc.cycle import Cycle
from berth_host.rpc.served import codec
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.served.outbox import Parcel


@dataclass(slots=True, eq=False)
class Written:
    """A request without its envelope, and the facts that its reply is read with (see `ReplyReader`)."""

    message: Any
    nodes: NodeTable | None = None
    back: NDArray[np.intp] | None = None
    count: int = 0


class RequestWriter:
    """Writes the requests to one plugin at one instance: a method per call, named as the plugin's."""

    def __init__(self, link: InstanceLink, descriptor: Descriptor) -> None:
        self._link = link
        self._plugin = descriptor.name
        self._mode = descriptor.node_mode
        self._whole_pod = descriptor.wants_whole_pod

    # --- the queue -------------------------------------------------------------------------------------

    def pre_enqueue(self, pods: Sequence[QueuedPod]) -> queue_pb2.PreEnqueueRequest:
        """The pods, with their attempts and times in the queue."""
        return queue_pb2.PreEnqueueRequest(
            plugin=self._plugin,
            pods=codec.encode_queued_pods(pods, self._whole_pod),
            attachment_id=self._link.identity.attachment_id,
        )

    def sort_keys(self, pods: Sequence[QueuedPod]) -> queue_pb2.SortKeysRequest:
        """The pods, with their attempts and times in the queue."""
        return queue_pb2.SortKeysRequest(
            plugin=self._plugin,
            pods=codec.encode_queued_pods(pods, self._whole_pod),
            attachment_id=self._link.identity.attachment_id,
        )

    def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod]) -> queue_pb2.QueueingHintsRequest:
        """The event, and the pods that it may concern."""
        return queue_pb2.QueueingHintsRequest(
            plugin=self._plugin,
            event=codec.encode_event(event),
            pods=codec.encode_pods(pods, self._whole_pod),
            attachment_id=self._link.identity.attachment_id,
        )

    # --- the scheduling cycle ----------------------------------------------------------------------------

    def pre_filter(self, cycle: Cycle, nodes: NodeTable) -> Written:
        """All nodes of the snapshot."""
        return self._over(scheduling_pb2.PreFilterRequest, nodes)

    def filter(self, cycle: Cycle, nodes: NodeTable) -> Written:
        """The candidates."""
        return self._over(scheduling_pb2.FilterRequest, nodes)

    def simulate_filter(self, cycle: Cycle, scenarios: Scenarios) -> list[Written]:
        """Batches of half the agreed size at most; they count as one call."""
        messages = codec.encode_scenarios(scenarios, self._mode, self._whole_pod)
        limit_bytes = self._link.identity.max_message_bytes // 2
        return [
            Written(scheduling_pb2.SimulateFilterRequest(scenarios=batch), count=len(batch))
            for batch in _batches(messages, limit_bytes)
        ]

    def post_filter(self, cycle: Cycle, rejections: NodeRejections) -> Written:
        """Why every node was rejected, and by which plugins."""
        feed = self._link.feed
        groups, plugins = codec.encode_rejections(
            rejections,
            feed.node_names() if feed is not None else list(rejections.by_node),
            self._mode,
            feed.index_of if feed is not None else _no_index,
        )
        return Written(scheduling_pb2.PostFilterRequest(rejected=groups, rejected_by=plugins))

    def pre_score(self, cycle: Cycle, nodes: NodeTable) -> Written:
        """The feasible nodes."""
        return self._over(scheduling_pb2.PreScoreRequest, nodes)

    def score(self, cycle: Cycle, nodes: NodeTable) -> Written:
        """The feasible nodes."""
        return self._over(scheduling_pb2.ScoreRequest, nodes)

    def normalize_score(self, cycle: Cycle, scores: NDArray[np.int64], nodes: NodeTable) -> Written:
        """The feasible nodes with their raw scores."""
        written = self._over(scheduling_pb2.NormalizeScoreRequest, nodes)
        if written.back is not None:
            scores = scores[np.argsort(written.back)]
        written.message.scores.CopyFrom(codec.encode_scores(scores))
        return written

    def reserve(self, cycle: Cycle, node_name: str) -> Written:
        """The chosen node."""
        index = self._index_of(node_name)
        return Written(scheduling_pb2.ReserveRequest(node_name=node_name, node_index=index))

    def permit(self, cycle: Cycle, node_name: str) -> Written:
        """The chosen node."""
        index = self._index_of(node_name)
        return Written(scheduling_pb2.PermitRequest(node_name=node_name, node_index=index))

    # --- the binding cycle -------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, cycle: Cycle, node_name: str) -> Written:
        """The chosen node."""
        return Written(scheduling_pb2.PreBindPreFlightRequest(node_name=node_name))

    def pre_bind(self, cycle: Cycle, node_name: str, patched: Sequence[PatchResult]) -> Written:
        """The chosen node, the round, and the outcomes of the patches of the round before."""
        rounds = cycle.part(self._plugin).rounds or 1
        results = codec.encode_patched(patched)
        request = scheduling_pb2.PreBindRequest(
            node_name=node_name, round=rounds - 1, patched=results, pod_deleted=cycle.pod_deleted
        )
        return Written(request)

    def bind(self, cycle: Cycle, node_name: str) -> Written:
        """The chosen node."""
        return Written(scheduling_pb2.BindRequest(node_name=node_name))

    # --- through the outbox ------------------------------------------------------------------------------

    def unreserve(self, cycle: Cycle, node_name: str, reason: str) -> Parcel:
        """The reservation, and why it is given back."""
        token = cycle.state(self._plugin).token
        return Parcel(cycle.cycle_id, cycle.pod.ref, node_name, token or b"", reason)

    def post_bind(self, cycle: Cycle, node_name: str) -> Parcel:
        """The reservation of a pod that is bound."""
        return self.unreserve(cycle, node_name, "")

    # --- pieces ------------------------------------------------------------------------------------------

    def _over(self, request: Any, nodes: NodeTable) -> Written:
        """By ascending slot, as the wire has them."""
        ascending, back = _ascending(nodes)
        return Written(request(candidates=codec.encode_candidates(ascending, self._mode)), ascending, back)

    def _index_of(self, node_name: str) -> int:
        """The node's slot in SNAPSHOT mode; 0, which is to leave it unset, in NAMES mode."""
        feed = self._link.feed
        index = None if self._mode is NodeMode.NAMES or feed is None else feed.index_of(node_name)
        return index or 0


def _ascending(nodes: NodeTable) -> tuple[NodeTable, NDArray[np.intp] | None]:
    """(the rows by ascending slot, as the wire has them; the way back to the order given, if they differ)."""
    if nodes.is_ascending:
        return nodes, None
    order = np.argsort(nodes.slots, kind="stable")
    return nodes.take(order), np.argsort(order, kind="stable")


def _batches(
    messages: list[scheduling_pb2.Scenario], limit_bytes: int
) -> list[list[scheduling_pb2.Scenario]]:
    """The scenarios in runs below the limit; one that is larger stands alone."""
    batches: list[list[scheduling_pb2.Scenario]] = [[]]
    size = 0
    for message in messages:
        more = message.ByteSize() + 8
        if batches[-1] and size + more > limit_bytes:
            batches.append([])
            size = 0
        batches[-1].append(message)
        size += more
    return batches


def _no_index(_name: str) -> int | None:
    return None
