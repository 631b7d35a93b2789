"""The way back: the calls that plugins make to the host, one row each.

A row says who may make the call, which function of `HandleBackend` answers it, how the arguments are read
from the request, and how the answers are written into the response. `HandleService` serves every row;
`InProcessHandle` calls the same functions with plain arguments. A new call is a row here, a message in the
contract, and a method of `berth_sdk.handle.Handle`. Source: the contract's handle.proto.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

from berth_sdk.clocks import monotonic_s
from berth_sdk.extension_points import ExtensionPoint, NodeMode
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import handle_pb2
from berth_sdk.pod_group import PodGroupReader
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PodGroupPostFilterResult,
    PostFilterResult,
    Trial,
    WaitingPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.groups import encode_assignments, encode_live_group
from berth_sdk.wire.status import encode_status

from berth_host.attach.state_feed import HostState
from berth_host.errors import HostError
from berth_host.handle.backend import HandleBackend
from berth_host.handle.reading import StateReader, readable
from berth_host.handle.scenario_reader import ScenarioReader
from berth_host.rpc.loop_slices import LoopSlices
from berth_host.rpc.served.statuses import cut
from berth_host.rpc.state_codec import CHUNK_BYTES

Args = TypeVarTuple("Args")
Out = TypeVar("Out")
MAX_EVENTS: Final = 100
"""Events in one call; the host drops the others, and counts them in the answer."""
MAX_NOTE_BYTES: Final = 1024
MAX_WORD_BYTES: Final = 128
"""The limit of an event's reason, and of its action."""
_EVENT_TYPES: Final = frozenset({"", "Normal", "Warning"})


ReadScenarios: TypeAlias = Callable[[NodeTable], list[Scenario]]
"""The scenarios of a question, over the nodes of the cluster. Raises ScenarioError."""


class FilterRunner(Protocol):
    """What-ifs, for plugins whose PostFilter or PodGroupPostFilter is open. Implemented by `host_backend`."""

    async def run_filters(self, plugin: str, cycle_id: str, read: ReadScenarios) -> list[Status]:
        """Return per scenario SUCCESS or the first rejection of the other plugins, in configured order.

        `read`: returns the scenarios, over the table of the nodes of the cluster. Raises NoOpenCallError and
        ScenarioError.
        """
        ...

    async def try_pod_group(self, plugin: str, cycle_id: str, removed: Sequence[ObjectRef]) -> Trial:
        """Place the group of an open PodGroupPostFilter in the snapshot without some pods.

        Raises NoOpenCallError, QuestionUnderWayError and UnknownPodError.
        """
        ...

    async def preempt_for_pod_group(self, plugin: str, cycle_id: str) -> PodGroupPostFilterResult:
        """Run the host's preemption for the group of an open PodGroupPostFilter.

        Raises NoOpenCallError and QuestionUnderWayError.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleSeams:
    """The host's parts that answer. `descriptor_of`: the descriptor of an attached plugin, None for others.
    `clock`: monotonic seconds, for the rates of calls.
    """

    backend: HandleBackend
    state: HostState
    filters: FilterRunner
    descriptor_of: Callable[[str], Descriptor | None]
    clock: Callable[[], float] = monotonic_s


class StaleStateError(HostError):
    """The snapshot is not at the version that the request names."""


@dataclass(frozen=True, slots=True)
class Known(Generic[Out]):
    """An answer that needs no question to the host: the request leaves only this one."""

    answer: Out


Chunks: TypeAlias = AsyncGenerator[Any, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandleCall(Generic[*Args, Out]):
    """One RPC of HandleService: `HandleCall[*arguments, the answer]`."""

    rpc: str
    point: ExtensionPoint | None = None
    """The extension point that the plugin must be at; None: any plugin with a token may ask."""
    open_in: str = ""
    """The calls of the plugin of which one must be open; empty: none."""
    in_chunks: bool = False
    """True if the answer is sent in chunks."""
    holds_data: bool = False
    """True if an answer in chunks keeps its data alive: a plugin has few such calls at once."""
    local: Callable[[HandleBackend, str, *Args], Out | Awaitable[Out]]
    """(backend, plugin, *arguments) -> the answer, or an awaitable of it. On the host's loop."""
    read: Callable[[Any, str], Iterable[tuple[*Args] | Known[Out]]]
    """(request, attachment) -> the questions in the request, each as arguments of `local`; empty: none."""
    write: Callable[[Any, list[Out]], Any]
    """(request, answers) -> the response, or its chunks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedCall:
    """One RPC of HandleService that in-process plugins do not need: they read the snapshot itself."""

    rpc: str
    open_in: str = ""
    in_chunks: bool = False
    holds_data: bool = False
    point: None = None
    answer: Callable[[HandleSeams, Any], Any]
    """(host, request) -> an awaitable of the response, or its chunks. Raises HostError and ValueError before
    the first chunk."""


AnyHandleCall: TypeAlias = HandleCall[*tuple[Any, ...], Any] | ServedCall


# --- waiting pods and binding cycles -----------------------------------------------------------------------


def _waiting_pod(item: WaitingPod, with_object: bool) -> handle_pb2.WaitingPod:
    message = handle_pb2.WaitingPod(
        pod=wire.encode_pod(item.pod),
        cycle_id=item.cycle_id,
        node_name=item.node_name,
        pending_plugins=item.pending_plugins,
        deadline=wire.encode_time(item.deadline_s),
    )
    if with_object and item.pod.object is not None:
        message.object.CopyFrom(wire.encode_object(item.pod.object))
    return message


async def _chunks_of_pods(
    empty: Callable[..., handle_pb2.ListWaitingPodsResponse | handle_pb2.ListNominatedPodsResponse],
    messages: Iterable[handle_pb2.WaitingPod | handle_pb2.NominatedPod],
) -> Chunks:
    """Yield responses of at most CHUNK_BYTES; a pod that is larger has one of its own."""
    pace = LoopSlices()
    pods: list[Any] = []
    used = 0
    for message in messages:
        size = message.ByteSize()
        if used and used + size > CHUNK_BYTES:
            yield empty(pods=pods)
            pods, used = [], 0
        pods.append(message)
        used += size
        await pace.step()
    if used:
        yield empty(pods=pods)


def _decide(
    backend: HandleBackend, plugin: str, uid: str, cycle_id: str, allows: bool, word: str
) -> Decision:
    """`word`: the plugin whose wait ends, or the message of a rejection."""
    if allows:
        return backend.allow(plugin, uid, cycle_id, word)
    return backend.reject(plugin, uid, cycle_id, word)


def _decision(item: handle_pb2.WaitDecision) -> tuple[str, str, bool, str] | Known[Decision]:
    if item.verdict == handle_pb2.WaitDecision.VERDICT_ALLOW:
        return item.pod_uid, item.cycle_id, True, item.plugin
    if item.verdict == handle_pb2.WaitDecision.VERDICT_REJECT:
        return item.pod_uid, item.cycle_id, False, cut(item.message)
    return Known(Decision.NOT_PERMITTED)


WAITING_PODS: Final[HandleCall[bool, list[WaitingPod]]] = HandleCall(
    rpc="ListWaitingPods",
    in_chunks=True,
    local=lambda backend, plugin, only_mine: backend.waiting_pods(plugin, only_mine),
    read=lambda request, _attachment: [(request.only_mine,)],
    write=lambda request, answers: _chunks_of_pods(
        handle_pb2.ListWaitingPodsResponse,
        (_waiting_pod(item, request.with_objects) for found in answers for item in found),
    ),
)
DECIDE: Final[HandleCall[str, str, bool, str, Decision]] = HandleCall(
    rpc="DecideWaitingPods",
    local=_decide,
    read=lambda request, _attachment: map(_decision, request.decisions),
    write=lambda _request, answers: handle_pb2.DecideWaitingPodsResponse(
        results=[handle_pb2.DecideWaitingPodsResponse.Result.ValueType(one.value) for one in answers]
    ),
)
CANCEL_BINDING: Final[HandleCall[str, str, str, Cancellation]] = HandleCall(
    rpc="CancelBinding",
    local=lambda backend, plugin, *item: backend.cancel_binding(plugin, *item),
    read=lambda request, _attachment: (
        (item.pod_uid, item.cycle_id, cut(item.message)) for item in request.items
    ),
    write=lambda _request, answers: handle_pb2.CancelBindingResponse(
        results=[handle_pb2.CancelBindingResponse.Result.ValueType(one.value) for one in answers]
    ),
)

# --- the snapshot ------------------------------------------------------------------------------------------


def _read_state(host: HandleSeams, request: handle_pb2.ReadStateRequest) -> Chunks:
    """Take version and content in one step of the loop; encode them in chunks while the cycles go on."""
    if request.HasField("at") and wire.decode_version(request.at) != host.state.version:
        raise StaleStateError(str(host.state.version))
    descriptor = host.descriptor_of(request.plugin)
    needs = readable(request.plugin, request.needs, () if descriptor is None else descriptor.needs)
    return StateReader(host.state, needs, request.nodes if request.HasField("nodes") else None).chunks()


READ_STATE: Final = ServedCall(rpc="ReadState", in_chunks=True, holds_data=True, answer=_read_state)

# --- questions from an open call ---------------------------------------------------------------------------


async def _run_filters(
    host: HandleSeams, request: handle_pb2.RunFiltersRequest
) -> handle_pb2.RunFiltersResponse:
    descriptor = host.descriptor_of(request.plugin)
    mode = NodeMode.NAMES if descriptor is None else descriptor.node_mode

    def read(nodes: NodeTable) -> list[Scenario]:
        reader = ScenarioReader(nodes)
        return [reader.read(message, mode) for message in request.scenarios]

    statuses = await host.filters.run_filters(request.plugin, request.cycle_id, read)
    return handle_pb2.RunFiltersResponse(statuses=[encode_status(status) for status in statuses])


def _preemption(_request: Any, answers: list[PostFilterResult]) -> handle_pb2.EvaluatePreemptionResponse:
    (found,) = answers
    return handle_pb2.EvaluatePreemptionResponse(
        status=encode_status(found.status),
        nominated_node=found.nominated_node,
        clear_nomination=found.clear_nomination,
        victims=[wire.encode_ref(ref) for ref in found.victims],
    )


def _scores(_request: Any, answers: list[NodeScores]) -> handle_pb2.RunScoresResponse:
    (found,) = answers
    return handle_pb2.RunScoresResponse(
        status=encode_status(found.status),
        totals=found.totals.tolist(),
        plugins=[
            handle_pb2.PluginNodeScores(plugin=item.plugin, weight=item.weight, scores=item.scores.tolist())
            for item in found.plugins
        ],
    )


async def _try_pod_group(
    host: HandleSeams, request: handle_pb2.TryPodGroupRequest
) -> handle_pb2.TryPodGroupResponse:
    removed = [wire.decode_ref(ref) for ref in request.removed]
    found = await host.filters.try_pod_group(request.plugin, request.cycle_id, removed)
    return handle_pb2.TryPodGroupResponse(
        status=encode_status(found.status), assignments=encode_assignments(found.assignments)
    )


async def _preempt_for_pod_group(
    host: HandleSeams, request: handle_pb2.EvaluatePodGroupPreemptionRequest
) -> handle_pb2.EvaluatePodGroupPreemptionResponse:
    found = await host.filters.preempt_for_pod_group(request.plugin, request.cycle_id)
    return handle_pb2.EvaluatePodGroupPreemptionResponse(
        status=encode_status(found.status),
        nominations=encode_assignments(found.nominations),
        victims=[wire.encode_ref(ref) for ref in found.victims],
    )


TRY_POD_GROUP: Final = ServedCall(rpc="TryPodGroup", open_in="PodGroupPostFilter", answer=_try_pod_group)
PREEMPT_FOR_POD_GROUP: Final = ServedCall(
    rpc="EvaluatePodGroupPreemption", open_in="PodGroupPostFilter", answer=_preempt_for_pod_group
)
READ_POD_GROUP: Final[HandleCall[str, tuple[PodGroupReader, str]]] = HandleCall(
    rpc="ReadPodGroup",
    local=lambda backend, _plugin, key: (backend.pod_groups(), key),
    read=lambda request, _attachment: [(request.key,)],
    write=lambda request, answers: encode_live_group(*answers[0], with_objects=request.with_objects),
)
RUN_FILTERS: Final = ServedCall(rpc="RunFilters", open_in="PostFilter", answer=_run_filters)
EVALUATE_PREEMPTION: Final[HandleCall[str, int, int, PostFilterResult]] = HandleCall(
    rpc="EvaluatePreemption",
    open_in="PostFilter",
    local=lambda backend, plugin, *limits: backend.evaluate_preemption(plugin, *limits),
    read=lambda request, _attachment: [
        (request.cycle_id, request.min_candidate_nodes_percentage, request.min_candidate_nodes_absolute)
    ],
    write=_preemption,
)
RUN_SCORES: Final[HandleCall[str, tuple[str, ...], NodeScores]] = HandleCall(
    rpc="RunScores",
    open_in="PostFilter, Reserve or Permit",
    local=lambda backend, plugin, cycle_id, names: backend.run_scores(plugin, cycle_id, names),
    read=lambda request, _attachment: [(request.cycle_id, tuple(request.node_names))],
    write=_scores,
)

# --- the queue ---------------------------------------------------------------------------------------------


def _nominated_pod(item: NominatedPod, with_object: bool) -> handle_pb2.NominatedPod:
    message = handle_pb2.NominatedPod(pod=wire.encode_pod(item.pod), node_name=item.node_name)
    if with_object and item.pod.object is not None:
        message.object.CopyFrom(wire.encode_object(item.pod.object))
    return message


def _nomination(item: handle_pb2.Nomination) -> tuple[str, str | None] | Known[Nomination]:
    if item.mode == handle_pb2.Nomination.MODE_OVERRIDE:
        # An empty name is no node, and here not the wish to have none.
        return (item.pod_uid, item.node_name) if item.node_name else Known(Nomination.UNKNOWN_NODE)
    if item.mode == handle_pb2.Nomination.MODE_FROM_STATUS:
        return item.pod_uid, None
    if item.mode == handle_pb2.Nomination.MODE_REMOVE:
        return item.pod_uid, ""
    return Known(Nomination.NOT_PERMITTED)


def _requeues(
    request: handle_pb2.RequeueRequest, attachment: str
) -> Iterator[tuple[Iterable[str] | None, str, bool, str]]:
    rest = (cut(request.reason), request.skip_backoff, attachment)
    if request.pod_uids:
        yield (list(request.pod_uids), *rest)
    if request.all_rejected_by_me:
        yield (None, *rest)


def _stale_keys(request: handle_pb2.InvalidateSortKeysRequest) -> list[tuple[Iterable[str] | None]]:
    if request.all:
        return [(None,)]
    return [(list(request.pod_uids),)] if request.pod_uids else []


NOMINATED_PODS: Final[HandleCall[Iterable[str] | None, list[NominatedPod]]] = HandleCall(
    rpc="ListNominatedPods",
    in_chunks=True,
    holds_data=True,
    local=lambda backend, plugin, names: backend.nominated_pods(plugin, names),
    read=lambda request, _attachment: [(None if request.all_nodes else tuple(request.node_names),)],
    write=lambda request, answers: _chunks_of_pods(
        handle_pb2.ListNominatedPodsResponse,
        (_nominated_pod(item, request.with_objects) for found in answers for item in found),
    ),
)
NOMINATE: Final[HandleCall[str, str | None, Nomination]] = HandleCall(
    rpc="Nominate",
    local=lambda backend, plugin, uid, node_name: backend.nominate(plugin, uid, node_name),
    read=lambda request, _attachment: map(_nomination, request.items),
    write=lambda _request, answers: handle_pb2.NominateResponse(
        results=[handle_pb2.NominateResponse.Result.ValueType(one.value) for one in answers]
    ),
)
REQUEUE: Final[HandleCall[Iterable[str] | None, str, bool, str, int]] = HandleCall(
    rpc="Requeue",
    local=lambda backend, plugin, *wish: backend.requeue(plugin, *wish),
    read=_requeues,
    write=lambda _request, answers: handle_pb2.RequeueResponse(moved=sum(answers)),
)
INVALIDATE_SORT_KEYS: Final[HandleCall[Iterable[str] | None, None]] = HandleCall(
    rpc="InvalidateSortKeys",
    point=ExtensionPoint.QUEUE_SORT,
    local=lambda backend, plugin, uids: backend.invalidate_sort_keys(plugin, uids),
    read=lambda request, _attachment: _stale_keys(request),
    write=lambda _request, _answers: handle_pb2.InvalidateSortKeysResponse(),
)

# --- events ------------------------------------------------------------------------------------------------


def is_writable(event: handle_pb2.EventRecord) -> bool:
    """Return True for an event with a known type, a reason, and words that are short enough.

    The API server refuses others, and until then they wait in the host's memory. Source:
    pkg/apis/core/validation/events.go, v1.36.
    """
    words = (event.reason, event.action)
    return bool(event.type in _EVENT_TYPES and event.reason) and all(
        len(word.encode()) <= MAX_WORD_BYTES for word in words
    )


def _events(
    request: handle_pb2.RecordEventsRequest,
) -> Iterator[tuple[ObjectRef, str, str, str, str] | Known[bool]]:
    for event in request.events[:MAX_EVENTS]:
        if is_writable(event):
            ref, note = wire.decode_ref(event.regarding), cut(event.note, MAX_NOTE_BYTES)
            yield ref, event.type or "Normal", event.reason, event.action, note
        else:
            yield Known(False)
    yield from repeat(Known(False), max(len(request.events) - MAX_EVENTS, 0))


RECORD_EVENT: Final[HandleCall[ObjectRef, str, str, str, str, bool]] = HandleCall(
    rpc="RecordEvents",
    local=lambda backend, plugin, *event: backend.record_event(plugin, *event),
    read=lambda request, _attachment: _events(request),
    write=lambda _request, answers: handle_pb2.RecordEventsResponse(dropped=answers.count(False)),
)

HANDLE_CALLS: Final[tuple[AnyHandleCall, ...]] = (
    WAITING_PODS,
    DECIDE,
    CANCEL_BINDING,
    READ_STATE,
    RUN_FILTERS,
    EVALUATE_PREEMPTION,
    RUN_SCORES,
    TRY_POD_GROUP,
    PREEMPT_FOR_POD_GROUP,
    READ_POD_GROUP,
    NOMINATED_PODS,
    NOMINATE,
    REQUEUE,
    INVALIDATE_SORT_KEYS,
    RECORD_EVENT,
)
