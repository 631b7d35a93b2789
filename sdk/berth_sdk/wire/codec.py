"""The codec: records of the SDK <-> messages of the contract, derived from both.

`Layout` pairs the fields of a record class with those of a message once, at import, and refuses a class that
does not fit. Plain values (text, numbers, flags) need no code. A value of another kind (`Status`,
`NodeVerdicts`, `Duration`, ...) has one writer and one reader for all calls: `wire.results` writes answers,
and the host reads them. So a new call of the contract whose answer has fields of known kinds needs no code
for its messages, neither in the host nor in the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2

R = TypeVar("R")
Convert = Callable[[Any, Any], Any]
"""(scope, value) -> value. The scope is one side's data about the call."""
CONTEXT: Final = "ctx"
"""The field of a request or reply with the data of the cycle."""
STATUS: Final = "status"
"""The attribute of an answer that is sent in the reply's context."""
SCORES: Final = "Scores"
"""The kind that is encoded outside the message, as bytes (`wire.scores.Scored`)."""


@dataclass(frozen=True, slots=True)
class Part:
    """An attribute and its field. `kind`: the name of the message or enum, "json" for JSON in bytes, or empty
    for a plain value.
    """

    attribute: str
    field: str
    kind: str
    number: int
    is_repeated: bool
    is_message: bool
    is_optional: bool


class Layout(Generic[R]):
    """The parts of a record class and a message.

    Attributes: record, message, parts (without scores), lists (the parts that are lists of messages), scores
    (the part of kind `Scores`, or None), has_own_status (the record has a status), is_status_optional (the
    status may be None).
    """

    def __init__(self, record: type[R], message: type[Any]) -> None:
        """Pair the fields. Raises TypeError for a field without a counterpart."""
        self.record = record
        self.message = message
        hints = get_type_hints(record)
        fields = dict(message.DESCRIPTOR.fields_by_name)
        has_context = fields.pop(CONTEXT, None) is not None
        parts: list[Part] = []
        for item in dataclasses.fields(record):  # type: ignore[arg-type]  # every record is a dataclass
            if not item.init or (item.name == STATUS and has_context):
                continue
            found = next((name for name in _namesakes(item.name) if name in fields), None)
            if found is None:
                raise TypeError(f"{record.__name__}.{item.name} has no field in {message.__name__}")
            parts.append(_part(item.name, fields.pop(found), type(None) in get_args(hints[item.name])))
        if fields:
            raise TypeError(f"{message.__name__}.{min(fields)} has no attribute in {record.__name__}")
        self.parts = tuple(part for part in parts if part.kind != SCORES)
        self.scores = next((part for part in parts if part.kind == SCORES), None)
        self.lists = tuple(part for part in self.parts if part.is_repeated and part.is_message)
        self.has_own_status = STATUS in hints
        self.is_status_optional = type(None) in get_args(hints.get(STATUS))

    def encode(self, writers: Mapping[str, Convert], scope: Any, record: R) -> Any:
        """Return the message without its context and scores. `writers`: by kind."""
        message = self.message()
        for part in self.parts:
            value = getattr(record, part.attribute)
            if value is None:
                continue
            write = writers[part.kind] if part.kind else None
            if part.is_repeated:
                if value:
                    items = value if write is None else [write(scope, item) for item in value]
                    getattr(message, part.field).extend(items)
            elif part.is_message:
                written = value if write is None else write(scope, value)
                if written is None:
                    continue
                target = getattr(message, part.field)
                if part.is_optional:
                    target.SetInParent()  # an empty message differs from an unset field
                target.MergeFrom(written)
            elif value or part.kind:
                setattr(message, part.field, value if write is None else write(scope, value))
        return message

    def decode(self, readers: Mapping[str, Convert], scope: Any, message: Any) -> dict[str, Any]:
        """Return the attributes of the record without status and scores. `readers`: by kind.

        An optional attribute is missing if the message does not set its field.
        """
        found: dict[str, Any] = {}
        for part in self.parts:
            if part.is_optional and part.is_message and not message.HasField(part.field):
                continue
            value = getattr(message, part.field)
            read = readers[part.kind] if part.kind else None
            if part.is_repeated:
                found[part.attribute] = tuple(
                    value if read is None else [read(scope, item) for item in value]
                )
            else:
                found[part.attribute] = value if read is None else read(scope, value)
        return found

    def plain(self, message: Any) -> dict[str, Any]:
        """Return the attributes with plain values."""
        return {part.attribute: getattr(message, part.field) for part in self.parts if not part.kind}


def _namesakes(attribute: str) -> Iterator[str]:
    """Yield the possible names of the field of an attribute."""
    yield attribute
    yield attribute.removesuffix("_s")  # seconds are a Duration or a Timestamp
    yield f"early_{attribute}"  # the answer to a later call
    yield f"{attribute}_json"


def _part(attribute: str, field: FieldDescriptor, is_optional: bool) -> Part:
    message: Descriptor | None = field.message_type
    kind = ""
    if message is not None:
        kind = message.name
    elif field.enum_type is not None:
        kind = field.enum_type.name
    elif field.name.endswith("_json"):
        kind = "json"
    return Part(
        attribute, field.name, kind, field.number, field.is_repeated, message is not None, is_optional
    )


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call of the contract. `path`: of gRPC, `/berth.plugin.v1.SchedulingService/Filter`."""

    name: str
    path: str
    request: type[Any]
    reply: type[Any]


def _rpcs(service: Any) -> Iterator[Rpc]:
    for method in service.methods:
        request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        yield Rpc(method.name, f"/{service.full_name}/{method.name}", request, reply)


SCHEDULING: Final[Any] = scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"]
QUEUE: Final[Any] = queue_pb2.DESCRIPTOR.services_by_name["QueueService"]
RPCS: Final[Mapping[str, Rpc]] = {rpc.name: rpc for service in (SCHEDULING, QUEUE) for rpc in _rpcs(service)}
"""The calls about pods, by name."""
