"""The contract's calls that stand for a decision, as `InstanceLink.ask` makes them: path and reply.

Requests are serialised once by the link, which checks and counts their bytes, so channels get bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.wire.scores import Scored, take_field
from berth_sdk.wire.stream import NUMBERS

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Method(Generic[R]):
    """One call. `path`: `/berth.plugin.v1.SchedulingService/Filter`; `read`: bytes -> its reply; `number`:
    on a stream, None: it never travels on one.
    """

    path: str
    read: Callable[[bytes], R]
    number: int | None = None


def _method(service: Any, name: str, reply: type[R]) -> Method[R]:
    method = service.methods_by_name[name]
    from_string: Callable[[bytes], R] = reply.FromString  # type: ignore[attr-defined]  # every message has it
    number = NUMBERS.get(name) if service is _SCHEDULING else None
    return Method(f"/{service.full_name}/{method.name}", from_string, number)


def _scored(service: Any, name: str, reply: type[R], field: str) -> Method[Scored[R]]:
    """A reply with scores in `field`, which are kept as bytes; None: it has none."""
    whole = _method(service, name, reply)
    number: int = reply.DESCRIPTOR.fields_by_name[field].number  # type: ignore[attr-defined]  # it is a message

    def read(raw: bytes) -> Scored[R]:
        rest, scores = take_field(raw, number)
        message: Any = whole.read(rest)
        if scores is None and message.HasField(field):
            scores = getattr(message, field).SerializeToString()
        return Scored(message, number, scores)

    return Method(whole.path, read, whole.number)


_QUEUE: Final[Any] = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
_SCHEDULING: Final[Any] = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]

PRE_ENQUEUE: Final = _method(_QUEUE, "PreEnqueue", queue_pb2.PreEnqueueResponse)
SORT_KEYS: Final = _method(_QUEUE, "SortKeys", queue_pb2.SortKeysResponse)
QUEUEING_HINTS: Final = _method(_QUEUE, "QueueingHints", queue_pb2.QueueingHintsResponse)
PRE_FILTER: Final = _scored(_SCHEDULING, "PreFilter", scheduling_pb2.PreFilterResponse, "eager_scores")
FILTER: Final = _scored(_SCHEDULING, "Filter", scheduling_pb2.FilterResponse, "eager_scores")
SIMULATE_FILTER: Final = _method(_SCHEDULING, "SimulateFilter", scheduling_pb2.SimulateFilterResponse)
POST_FILTER: Final = _method(_SCHEDULING, "PostFilter", scheduling_pb2.PostFilterResponse)
PRE_SCORE: Final = _scored(_SCHEDULING, "PreScore", scheduling_pb2.PreScoreResponse, "eager_scores")
SCORE: Final = _scored(_SCHEDULING, "Score", scheduling_pb2.ScoreResponse, "scores")
NORMALIZE_SCORE: Final = _scored(
    _SCHEDULING, "NormalizeScore", scheduling_pb2.NormalizeScoreResponse, "scores"
)
RESERVE: Final = _method(_SCHEDULING, "Reserve", scheduling_pb2.ReserveResponse)
UNRESERVE: Final = _method(_SCHEDULING, "Unreserve", scheduling_pb2.UnreserveResponse)
PERMIT: Final = _method(_SCHEDULING, "Permit", scheduling_pb2.PermitResponse)
PRE_BIND_PRE_FLIGHT: Final = _method(_SCHEDULING, "PreBindPreFlight", scheduling_pb2.PreBindPreFlightResponse)
PRE_BIND: Final = _method(_SCHEDULING, "PreBind", scheduling_pb2.PreBindResponse)
BIND: Final = _method(_SCHEDULING, "Bind", scheduling_pb2.BindResponse)
POST_BIND: Final = _method(_SCHEDULING, "PostBind", scheduling_pb2.PostBindResponse)
END_CYCLES: Final = _method(_SCHEDULING, "EndCycles", scheduling_pb2.EndCyclesResponse)
