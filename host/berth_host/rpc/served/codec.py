"""`CallCodec`: one row of the table of calls as requests and replies of the contract, derived from both.

The request is written from the arguments that the row names and the fields of its message
(`requests.FIELDS`). The reply is read into the row's answer by the kinds of its fields (`replies.READERS`).
A row that does not fit its messages raises TypeError at import. Used by `GrpcTransport` and `LinkSender`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from berth_sdk.results import MAX_PATCHES
from berth_sdk.status import Verdicts
from berth_sdk.wire.codec import CONTEXT, RPCS, SCORES, Layout, Rpc
from berth_sdk.wire.frames import NUMBERS
from berth_sdk.wire.scores import Scored, take_field
from google.protobuf.descriptor import FieldDescriptor

from berth_host.attempt.call_record import CycleRecord
from berth_host.rpc.call import AnyCall, Lane
from berth_host.rpc.calls import CALLS
from berth_host.rpc.group_checks import MAX_STEPS
from berth_host.rpc.hint_answer import NO_HINT, HintAnswer, NoHint
from berth_host.rpc.served.link import Method
from berth_host.rpc.served.replies import READERS, ReplyReader
from berth_host.rpc.served.requests import FIELDS, Asking, Field, RequestWriter, Written

MAX_LISTED: Final = 20_000
"""The most entries of a list: more than the pods of any request, or of a node."""
_Put: TypeAlias = Callable[[Any, str, Any], None]
_LIMITS: Final = {"ObjectPatch": MAX_PATCHES, "FeasibleRun": MAX_STEPS}
_ENVELOPE: Final = frozenset({CONTEXT, "version", "delta"})
"""The fields that the transport fills: the cycle's context, and the state of a batch."""


class CallCodec:
    """The codec of one row. Attributes: call, method."""

    def __init__(self, call: AnyCall) -> None:
        """Derive the codec of a row. Raises TypeError if the row does not fit its messages."""
        self.call = call
        rpc = RPCS[call.rpc]
        self._request = rpc.request
        self.method: Method[Any] = _method(rpc)
        self._fields: tuple[tuple[str, Field, _Put], ...] = ()
        self._layout: Layout[Any] | None = None
        self._read: Callable[[ReplyReader, Any, bytes | None], Any] = self._read_record
        if call.lane is not Lane.OUTBOX:
            self._fields = tuple(_fields(rpc))
            self._derive_answer(call.answer, rpc)

    def _derive_answer(self, answer: Any, rpc: Rpc) -> None:
        fields = rpc.reply.DESCRIPTOR.fields
        self._listed = next((field.name for field in fields if field.is_repeated), "")
        if answer is list:
            self._read = self._read_list
        elif answer is NoHint:
            self._read = self._read_hints
        elif answer is Verdicts:
            self._read = self._read_statuses
        elif answer is np.ndarray:
            self._read = self._read_scores
        else:
            self._layout = Layout(answer, rpc.reply)

    # --- the request -----------------------------------------------------------------------------------

    def write(self, writer: RequestWriter, cycle: CycleRecord | None, args: Sequence[Any]) -> Written:
        """Return the request. `cycle` None: a batch of the queue."""
        written = Written(self._request())
        asking = Asking(writer, cycle, dict(zip(self.call.sends, args, strict=True)), written)
        message = written.message
        for name, field, put in self._fields:
            put(message, name, field(asking))
        return written

    def write_parts(self, writer: RequestWriter, cycle: CycleRecord, args: Sequence[Any]) -> list[Written]:
        """Return the requests of a call that may be too large for one; they count as one call."""
        ((name, field, _),) = self._fields
        whole = field(Asking(writer, cycle, dict(zip(self.call.sends, args, strict=True)), Written(None)))
        return [Written(self._request(**{name: run}), count=len(run)) for run in writer.link.in_runs(whole)]

    # --- the reply ---------------------------------------------------------------------------------------

    def read(self, reader: ReplyReader, reply: Any) -> Any:
        """Return the raw answer. `reply`: the message, or the message and its scores. Raises
        PluginProtocolError.
        """
        if type(reply) is Scored:
            return self._read(reader, reply.message, reply.scores)
        return self._read(reader, reply, None)

    def _read_record(self, reader: ReplyReader, message: Any, scores: bytes | None) -> Any:
        call, layout = self.call, self._layout
        assert layout is not None
        status = reader.decided(message.ctx, call.unset)
        if status is None:
            return layout.record(status=None) if layout.is_status_optional else None
        if not layout.has_own_status and not status.is_success:
            whole = Verdicts.all(len(reader.candidates), status)
            return layout.record(whole, **layout.plain(message))
        if call.full is not None and status.code not in call.full:
            return layout.record(status=status)
        for part in layout.lists:
            count = len(getattr(message, part.field))
            reader.bound(count, _LIMITS.get(part.kind, MAX_LISTED), part.field)
        found = layout.decode(_KINDS, reader, message)
        if scores is not None and layout.scores is not None:
            found[layout.scores.attribute] = reader.scores(scores)
        return layout.record(status=status, **found) if layout.has_own_status else layout.record(**found)

    def _read_list(self, reader: ReplyReader, message: Any, _scores: bytes | None) -> list[Any]:
        """Return one answer for each pod of a batch."""
        items = getattr(message, self._listed)
        reader.bound(len(items), MAX_LISTED, self._listed)
        field = message.DESCRIPTOR.fields_by_name[self._listed]
        if field.message_type is None:
            return list(items)
        read = READERS[field.message_type.name]
        return [read(reader, item) for item in items]

    def _read_hints(self, reader: ReplyReader, message: Any, scores: bytes | None) -> list[HintAnswer]:
        """Return one hint for each pod of a batch."""
        hints: list[HintAnswer] = self._read_list(reader, message, scores)
        reader.bound(len(message.errors), len(hints), "errors")
        for place in message.errors:
            if place >= len(hints):
                reader.violation(f"errors names pod {place} of {len(hints)}")
            hints[place] = NO_HINT
        return hints

    def _read_statuses(self, reader: ReplyReader, message: Any, _scores: bytes | None) -> Verdicts:
        """Return one verdict for each scenario."""
        status, count = reader.status(message.ctx), reader.count
        if not status.is_success:
            return Verdicts.all(count, status)
        items = getattr(message, self._listed)
        if len(items) != count:
            reader.violation(f"answered {len(items)} statuses for {count}")
        read = READERS["PluginStatus"]
        return Verdicts.of([read(reader, item) for item in items])

    def _read_scores(self, reader: ReplyReader, message: Any, scores: bytes | None) -> Any:
        """Return one score per candidate, or the Status with which the plugin reports its own error."""
        status = reader.status(message.ctx)
        return reader.scores(scores or b"") if status.is_success else status


def _fields(rpc: Rpc) -> Iterator[tuple[str, Field, _Put]]:
    for field in rpc.request.DESCRIPTOR.fields:
        if field.name in _ENVELOPE:
            continue
        if field.name not in FIELDS:
            raise TypeError(f"{rpc.name}Request.{field.name} has no writer in requests.FIELDS")
        yield field.name, FIELDS[field.name], _put_of(field)


def _put_of(field: FieldDescriptor) -> _Put:
    """Return the function that sets a field of this kind. None leaves a field that has presence unset."""
    if field.is_repeated:
        return _extend
    if field.message_type is not None:
        return _copy
    return _set_if_known if field.has_presence else setattr


def _set_if_known(message: Any, name: str, value: Any) -> None:
    if value is not None:
        setattr(message, name, value)


def _extend(message: Any, name: str, value: Any) -> None:
    getattr(message, name).extend(value)


def _copy(message: Any, name: str, value: Any) -> None:
    if value is not None:
        getattr(message, name).CopyFrom(value)


def _method(rpc: Rpc) -> Method[Any]:
    """Return the method of an RPC. A reply with scores is read as the message and the scores as bytes (None:
    no scores).
    """
    number = NUMBERS.get(rpc.name)
    from_string: Callable[[bytes], Any] = rpc.reply.FromString
    fields = rpc.reply.DESCRIPTOR.fields
    scores = next(
        (field for field in fields if field.message_type and field.message_type.name == SCORES), None
    )
    if scores is None:
        return Method(rpc.path, from_string, number)
    name, own = scores.name, scores.number

    def read(raw: bytes) -> Scored[Any]:
        rest, found = take_field(raw, own)
        message = from_string(rest)
        if found is None and message.HasField(name):
            found = getattr(message, name).SerializeToString()
        return Scored(message, own, found)

    return Method(rpc.path, read, number)


CODECS: Final[Mapping[str, CallCodec]] = MappingProxyType({call.rpc: CallCodec(call) for call in CALLS})
"""The codecs by RPC."""
_KINDS: Final = {
    **READERS,
    # The early answers to later calls. The answer of PreBind is read at PreBind: a fault in it must not
    # fail Reserve.
    "PreBindPreFlightResponse": CODECS["PreBindPreFlight"].read,
    "PreBindResponse": lambda reader, message: (
        lambda: CODECS["PreBind"].read(replace(reader, rpc="PreBind"), message)
    ),
}
"""The readers of all kinds of fields in replies."""
