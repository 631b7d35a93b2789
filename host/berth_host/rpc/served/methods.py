"""`Method`: a call of the contract as `InstanceLink.ask` makes it, path and reply. A column of `rpc.calls`.

Requests are serialised once by the link, which checks and counts their bytes, so channels get bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.wire.frames import NUMBERS
from berth_sdk.wire.scores import Scored, take_field

R = TypeVar("R")
QUEUE: Final[Any] = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
SCHEDULING: Final[Any] = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]


@dataclass(frozen=True, slots=True)
class Method(Generic[R]):
    """One call. `path`: `/berth.plugin.v1.SchedulingService/Filter`; `read`: bytes -> its reply; `number`:
    in frames; None for a call that never travels in them.
    """

    path: str
    read: Callable[[bytes], R]
    number: int | None = None


def plain(service: Any, name: str, reply: type[R]) -> Method[R]:
    """The service's call `name`."""
    method = service.methods_by_name[name]
    from_string: Callable[[bytes], R] = reply.FromString  # type: ignore[attr-defined]  # every message has it
    number = NUMBERS.get(name) if service is SCHEDULING else None
    return Method(f"/{service.full_name}/{method.name}", from_string, number)


def scored(service: Any, name: str, reply: type[R], field: str) -> Method[Scored[R]]:
    """A reply with scores in `field`, which are kept as bytes; None: it has none."""
    whole = plain(service, name, reply)
    number: int = reply.DESCRIPTOR.fields_by_name[field].number  # type: ignore[attr-defined]  # it is a message

    def read(raw: bytes) -> Scored[R]:
        rest, scores = take_field(raw, number)
        message: Any = whole.read(rest)
        if scores is None and message.HasField(field):
            scores = getattr(message, field).SerializeToString()
        return Scored(message, number, scores)

    return Method(whole.path, read, whole.number)
