"""An answer of a plugin -> the same, spoilt: fields, lengths, enums, bits and bytes.

    raw = spoilt(honest_message, random.Random(seed))

What is random comes from the `random.Random` that is given: Hypothesis' own shrinks, a seeded one repeats.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

_INTEGERS: Final = (
    0,
    1,
    -1,
    2,
    7,
    99,
    1000,
    2**15,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**53,
    2**63 - 1,
    -(2**63),
)
_TEXTS: Final = (
    "",
    " ",
    "n0",
    "n1",
    "nobody",
    "Demo/",
    "Demo/key",
    "\x00",
    "ä\u2028\U0001f600",
    "x" * 300,
    "y" * 20_000,
    "pods",
    "secrets",
    "status",
    "5",
)
_BYTES: Final = (
    b"",
    b"\x00",
    b"\x01",
    b"\xff",
    b"\xff" * 64,
    b"\x80" * 11,
    b"k" * 5000,
    b"\x00" * 100_000,
    b"{}",
    b"[]",
    b"null",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"spec": NaN}',
    b'{"metadata": {"annotations": {"n": 1e999}}}',
    b'{"metadata": 5}',
    b'{"metadata": {"annotations": {"a": "\\ud800"}}}',
    b'{"metadata": {"labels": {"\\u0000": {"deep": [1, 2]}}}}',
    b'{"spec": {"nodeName": "n1"}}',
    b'{"status": {"conditions": 5}}',
    b'{"metadata": {"uid": "another"}}',
    b"\xef\xbb\xbf{}",
    b'{"a": "\xff"}',
)
_COUNTS: Final = (0, 1, 2, 65, 300)
_INTEGRAL: Final = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_ENUM: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


def spoilt(honest: Any, rng: random.Random) -> bytes:
    """Return the bytes of a message, after one to three mutations of its fields, of its bytes, or of both."""
    message = type(honest)()
    message.CopyFrom(honest)
    kind = rng.randrange(3)
    if kind != 1:
        for _ in range(rng.randint(1, 3)):
            _spoil_field(message, rng)
    raw: bytes = message.SerializeToString()
    if kind != 0:
        raw = rng.choice(_ON_BYTES)(raw, rng)
    return raw


# --- fields ------------------------------------------------------------------------------------------


def _spoil_field(message: Any, rng: random.Random) -> None:
    """Change one field of the message or of one inside it."""
    target = rng.choice(list(_inside(message)))
    fields = target.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(fields)
    if rng.randrange(4) == 0:
        target.ClearField(field.name)
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        _spoil_map(target, field, rng)
    elif field.is_repeated:
        _spoil_list(target, field, rng)
    elif field.message_type is not None:
        getattr(target, field.name).SetInParent()
    else:
        setattr(target, field.name, _value(field, rng))


def _inside(message: Any) -> Iterator[Any]:
    """Yield the message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for item in value if field.is_repeated else (value,):
            yield from _inside(item)


def _spoil_list(target: Any, field: FieldDescriptor, rng: random.Random) -> None:
    items = getattr(target, field.name)
    kind = rng.randrange(4)
    if kind == 0 and len(items):
        del items[rng.randrange(len(items)) :]
    elif kind == 1 and len(items):
        items.extend([items[rng.randrange(len(items))]] * rng.choice(_COUNTS))
    elif field.message_type is not None:
        for _ in range(rng.choice(_COUNTS)):
            items.add()
    elif kind == 2 and len(items):
        items[rng.randrange(len(items))] = _value(field, rng)
    else:
        items.extend([_value(field, rng)] * rng.choice(_COUNTS))


def _spoil_map(target: Any, field: FieldDescriptor, rng: random.Random) -> None:
    entry: Any = field.message_type
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    entries = getattr(target, field.name)
    key = rng.choice([_value(key_field, rng), "filter", "score", "permit", "preBind"])
    if value_field.message_type is None:
        entries[key] = _value(value_field, rng)
        return
    for inner in value_field.message_type.fields:
        if inner.message_type is None and not inner.is_repeated:
            setattr(entries[key], inner.name, _value(inner, rng))


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    if field.type in _INTEGRAL:
        lowest, highest = _INTEGRAL[field.type]
        known = [number for number in _INTEGERS if lowest <= number <= highest]
        return rng.choice([*known, highest, rng.randint(lowest, highest)])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool(rng.randrange(2))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice(_BYTES)
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(_TEXTS)
    raise ValueError(f"{field.full_name}: the contract has no field of this type yet: say how to spoil it")


# --- bytes -------------------------------------------------------------------------------------------


def _flipped(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw or b"\x00")
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncated(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _inserted(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))) + raw[at:]


def _cut_out(raw: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(raw) + 1)
    return raw[:begin] + raw[begin + rng.randint(1, 8) :]


def _twice(raw: bytes, _rng: random.Random) -> bytes:
    return raw + raw


def _noise(_raw: bytes, rng: random.Random) -> bytes:
    return bytes(rng.randrange(256) for _ in range(rng.randint(0, 40)))


def _unknown_field(raw: bytes, _rng: random.Random) -> bytes:
    return raw + b"\xfa\x3f\x03abc"  # number 1023, three bytes


_ON_BYTES: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _flipped,
    _truncated,
    _inserted,
    _cut_out,
    _twice,
    _noise,
    _unknown_field,
)
