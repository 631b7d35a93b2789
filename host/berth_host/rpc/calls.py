"""The calls of the contract, one row each: what a call sends, what comes back, and the check of the answer.

All other code follows the rows. The relay (`relay`) reads deadline, policy, repeat and budget.
`InProcessTransport` reads the column `local`. `GrpcTransport` derives request and reply from the columns
`sends`, `answer`, `unset` and `full` and the contract's messages (`served.codec`). `check` checks the answers
of both transports. A new call is a row here, a message in the contract, and a method of `PluginClient`.
Source: the contract's scheduling.proto and queue.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.runtime.early import PreScored
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import Reserved
from berth_host.attempt.cycle import Cycle
from berth_host.rpc.call import AnyCall, Call, Lane, keys_of
from berth_host.rpc.group_calls import GROUP_CALLS
from berth_host.rpc.hint_answer import HintAnswer, NoHint
from berth_host.rpc.in_process import reserve
from berth_host.rpc.validate import VERDICT_CODES, Checker

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")
R = TypeVar("R")
Scores = NDArray[np.int64]
_POINT = ExtensionPoint

_ALWAYS: Final = frozenset({Code.SUCCESS, Code.ERROR})
_DONE: Final = frozenset({Code.SUCCESS})
_SKIPS: Final = frozenset({Code.SUCCESS, Code.SKIP})


# --- one function per lane makes its rows, so that types of columns are checked against each other


def _queue(
    point: ExtensionPoint,
    rpc: str = "",
    *,
    keys: tuple[str, ...] = (),
    pure: bool = False,
    stateless: bool = False,
    codes: frozenset[Code] = _ALWAYS,
    each: Callable[[*Args], Iterable[tuple[Any, ...]]],
    local: Callable[..., Answer[R]],
    sends: tuple[str, ...],
    answer: Any,
    check: Callable[[Checker, Call[*Args, list[R], list[R]], list[R], *Args], list[R]],
    check_one: Callable[[Checker, Call[*Args, list[R], list[R]], R], R],
) -> Call[*Args, list[R], list[R]]:
    """Return the row of a batch, which has one answer per pod."""

    def checked(
        checker: Checker, call: Call[*Args, list[R], list[R]], _cycle: None, answer: list[R], *args: *Args
    ) -> list[R]:
        return check(checker, call, answer, *args)

    return Call(
        rpc=rpc or point.kube_name,
        point=point,
        keys=keys or keys_of(point),
        lane=Lane.QUEUE,
        pure=pure,
        stateless=stateless,
        codes=codes,
        local=local,
        each=each,
        sends=sends,
        answer=answer,
        check=checked,
        check_one=check_one,
    )


def _cycle(
    point: ExtensionPoint,
    rpc: str = "",
    *,
    keys: tuple[str, ...] = (),
    pure: bool = False,
    after_outbox: bool = False,
    codes: frozenset[Code] = _ALWAYS,
    local: Callable[[PluginRuntime, CycleState, Pod, *Args], Answer[Raw]],
    sends: tuple[str, ...],
    answer: Any,
    unset: Code | None = Code.SUCCESS,
    full: frozenset[Code] | None = None,
    join: Callable[[Sequence[Raw]], Raw] | None = None,
    check: Callable[[Checker, Call[*Args, Raw, Out], Cycle, Raw, *Args], Out],
) -> Call[*Args, Raw, Out]:
    """Return the row of a step of the scheduling cycle, within the cycle's budget."""
    return Call(
        rpc=rpc or point.kube_name,
        point=point,
        keys=keys or keys_of(point),
        pure=pure,
        budgeted=True,
        after_outbox=after_outbox,
        codes=codes,
        local=local,
        sends=sends,
        answer=answer,
        unset=unset,
        full=full,
        join=join,
        check=check,
    )


def _binding(
    point: ExtensionPoint,
    rpc: str = "",
    *,
    keys: tuple[str, ...] = (),
    in_rounds: bool = False,
    codes: frozenset[Code] = _ALWAYS,
    local: Callable[[PluginRuntime, CycleState, Pod, *Args], Answer[Raw]],
    sends: tuple[str, ...],
    answer: Any,
    unset: Code | None = Code.SUCCESS,
    full: frozenset[Code] | None = None,
    check: Callable[[Checker, Call[*Args, Raw, Out], Cycle, Raw, *Args], Out],
) -> Call[*Args, Raw, Out]:
    """Return the row of a step of the binding cycle. Steps of other pods may run at the same time."""
    return Call(
        rpc=rpc or point.kube_name,
        point=point,
        keys=keys or keys_of(point),
        lane=Lane.BINDING,
        in_rounds=in_rounds,
        codes=codes,
        local=local,
        sends=sends,
        answer=answer,
        unset=unset,
        full=full,
        check=check,
    )


def _told(
    point: ExtensionPoint,
    rpc: str = "",
    *,
    keys: tuple[str, ...] = (),
    local: Callable[[PluginRuntime, CycleState, Pod, *Args], Answer[None]],
) -> Call[*Args, None, None]:
    """Return the row of a call without an answer, which the outbox sends to a served plugin
    (`served.sender`).
    """
    return Call(
        rpc=rpc or point.kube_name,
        point=point,
        keys=keys or keys_of(point),
        lane=Lane.OUTBOX,
        local=local,
        check=lambda checker, call, cycle, answer, *args: None,
    )


# --- the queue -----------------------------------------------------------------------------------------

PRE_ENQUEUE: Final[Call[Sequence[QueuedPod], list[Status], list[Status]]] = _queue(
    _POINT.PRE_ENQUEUE,
    codes=VERDICT_CODES,
    each=zip,
    local=PluginRuntime.pre_enqueue,
    sends=("pods",),
    answer=list,
    check=lambda checker, call, answer, pods: checker.pre_enqueue(call, answer, len(pods)),
    check_one=Checker.status,
)
SORT_KEYS: Final[Call[Sequence[QueuedPod], list[bytes], list[bytes]]] = _queue(
    _POINT.QUEUE_SORT,
    "SortKeys",
    pure=True,
    stateless=True,
    each=zip,
    local=PluginRuntime.sort_key,
    sends=("pods",),
    answer=list,
    check=lambda checker, call, answer, pods: checker.sort_keys(call, answer, len(pods)),
    check_one=Checker.sort_key,
)


def _hint(runtime: PluginRuntime, event: ClusterEvent, pod: Pod) -> Answer[HintAnswer]:
    return runtime.queueing_hint(event, pod)


QUEUEING_HINTS: Final[Call[ClusterEvent, Sequence[Pod], list[HintAnswer], list[HintAnswer]]] = _queue(
    _POINT.FILTER,
    "QueueingHints",
    keys=("queueingHints",),
    each=lambda event, pods: [(event, pod) for pod in pods],
    local=_hint,
    sends=("event", "pods"),
    answer=NoHint,
    check=lambda checker, call, answer, event, pods: checker.queueing_hints(call, answer, len(pods)),
    check_one=lambda checker, call, answer: answer,
)

# --- the scheduling cycle ------------------------------------------------------------------------------

PRE_FILTER: Final[Call[NodeTable, PreFilterResult, PreFilterResult]] = _cycle(
    _POINT.PRE_FILTER,
    pure=True,
    codes=(VERDICT_CODES | {Code.SKIP}) - {Code.PENDING},
    local=PluginRuntime.pre_filter,
    sends=("nodes",),
    answer=PreFilterResult,
    full=_SKIPS,
    check=lambda checker, call, cycle, answer, nodes: checker.pre_filter(call, answer, len(nodes)),
)
FILTER: Final[Call[NodeTable, FilterResult, FilterResult]] = _cycle(
    _POINT.FILTER,
    pure=True,
    codes=VERDICT_CODES,
    # In process there is no round trip to save, so Score is called when scores are due.
    local=PluginRuntime.filter,
    sends=("nodes",),
    answer=FilterResult,
    check=lambda checker, call, cycle, answer, nodes: checker.filter(call, answer, len(nodes)),
)
SIMULATE_FILTER: Final[Call[Scenarios, Verdicts, Verdicts]] = _cycle(
    _POINT.FILTER,
    "SimulateFilter",
    keys=("simulateFilter", "filter"),
    pure=True,
    codes=VERDICT_CODES,
    local=PluginRuntime.filter_scenarios,
    sends=("scenarios",),
    answer=Verdicts,
    join=lambda parts: Verdicts.of([status for part in parts for status in part.to_list()]),
    check=lambda checker, call, cycle, answer, scenarios: checker.verdicts(call, answer, len(scenarios)),
)
POST_FILTER: Final[Call[NodeRejections, PostFilterResult, PostFilterResult]] = _cycle(
    _POINT.POST_FILTER,
    codes=VERDICT_CODES,
    local=PluginRuntime.post_filter,
    sends=("rejections",),
    answer=PostFilterResult,
    unset=Code.UNSCHEDULABLE,
    check=lambda checker, call, cycle, answer, rejections: checker.post_filter(call, answer, cycle.pod),
)
PRE_SCORE: Final[Call[NodeTable, Status | PreScored, Status | PreScored]] = _cycle(
    _POINT.PRE_SCORE,
    pure=True,
    codes=_ALWAYS | {Code.SKIP},
    local=PluginRuntime.pre_score,
    sends=("nodes",),
    answer=PreScored,
    full=_DONE,
    check=lambda checker, call, cycle, answer, nodes: checker.pre_score(call, answer, nodes),
)
SCORE: Final[Call[NodeTable, Scores | Status, Scores | Status]] = _cycle(
    _POINT.SCORE,
    pure=True,
    local=PluginRuntime.score,
    sends=("nodes",),
    answer=np.ndarray,
    # A Status is the plugin's own error.
    check=lambda checker, call, cycle, answer, nodes: (
        checker.status(call, answer)
        if isinstance(answer, Status)
        else checker.raw_scores(call, answer, len(nodes))
    ),
)
NORMALIZE_SCORE: Final[Call[Scores, NodeTable, Scores | Status, Scores | Status]] = _cycle(
    _POINT.NORMALIZE_SCORE,
    pure=True,
    local=PluginRuntime.normalize,
    sends=("scores", "nodes"),
    answer=np.ndarray,
    check=lambda checker, call, cycle, answer, scores, nodes: (
        checker.status(call, answer)
        if isinstance(answer, Status)
        else checker.raw_scores(call, answer, len(nodes))
    ),
)
RESERVE: Final[Call[str, Reserved, Reserved]] = _cycle(
    _POINT.RESERVE,
    after_outbox=True,
    codes=VERDICT_CODES | {Code.SKIP},
    local=reserve,
    sends=("node_name",),
    answer=Reserved,
    unset=None,
    full=_DONE,
    check=lambda checker, call, cycle, answer, node_name: checker.reserve(call, answer),
)
PERMIT: Final[Call[str, PermitResult | None, PermitResult]] = _cycle(
    _POINT.PERMIT,
    codes=VERDICT_CODES | {Code.WAIT},
    local=PluginRuntime.permit,
    sends=("node_name",),
    answer=PermitResult,
    unset=None,
    check=lambda checker, call, cycle, answer, node_name: checker.permit(call, answer),
)

# --- the binding cycle ---------------------------------------------------------------------------------

# Unreserve is called even if the budget is spent.
UNRESERVE: Final[Call[str, str, None, None]] = _told(
    _POINT.RESERVE,
    "Unreserve",
    keys=("unreserve",),
    local=lambda runtime, state, pod, node_name, reason: runtime.unreserve(state, pod, node_name),
)
PRE_BIND_PRE_FLIGHT: Final[Call[str, PreFlightResult, PreFlightResult]] = _binding(
    _POINT.PRE_BIND,
    "PreBindPreFlight",
    keys=("preBindPreFlight", "preBind"),
    codes=_ALWAYS | {Code.SKIP},
    local=PluginRuntime.pre_bind_pre_flight,
    sends=("node_name",),
    answer=PreFlightResult,
    check=lambda checker, call, cycle, answer, node_name: checker.pre_bind_pre_flight(call, answer),
)
PRE_BIND: Final[Call[str, Sequence[PatchResult], PreBindResult | None, PreBindResult]] = _binding(
    _POINT.PRE_BIND,
    in_rounds=True,
    codes=VERDICT_CODES,
    local=PluginRuntime.pre_bind,
    sends=("node_name", "patched"),
    answer=PreBindResult,
    unset=None,
    full=_DONE,
    check=lambda checker, call, cycle, answer, node_name, patched: checker.pre_bind(call, answer, cycle.pod),
)
BIND: Final[Call[str, BindResult | None, BindResult]] = _binding(
    _POINT.BIND,
    codes=VERDICT_CODES | {Code.SKIP},
    local=PluginRuntime.bind,
    sends=("node_name",),
    answer=BindResult,
    unset=None,
    check=lambda checker, call, cycle, answer, node_name: checker.bind(call, answer),
)
POST_BIND: Final[Call[str, None, None]] = _told(
    _POINT.POST_BIND,
    local=PluginRuntime.post_bind,
)
# The relay does not make this call: `Transport.end_cycle` puts it into the outbox.
END_CYCLES: Final[Call[None, None]] = _told(
    _POINT.POST_BIND,
    "EndCycles",
    local=lambda runtime, state, pod: None,
)

CALLS: Final[tuple[AnyCall, ...]] = (
    PRE_ENQUEUE,
    SORT_KEYS,
    QUEUEING_HINTS,
    PRE_FILTER,
    FILTER,
    SIMULATE_FILTER,
    POST_FILTER,
    PRE_SCORE,
    SCORE,
    NORMALIZE_SCORE,
    RESERVE,
    UNRESERVE,
    PERMIT,
    *GROUP_CALLS,
    PRE_BIND_PRE_FLIGHT,
    PRE_BIND,
    BIND,
    POST_BIND,
    END_CYCLES,
)
