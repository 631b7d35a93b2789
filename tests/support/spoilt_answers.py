"""A good answer of an HTTP extender -> a bad one: its JSON, its bytes, its head, or the connection.

Everything random comes from the `random.Random` that is given, so one seed gives the same answers again.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable
from typing import Any, Final

from support.raw_http import answer

_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    1e300,
    "",
    "n0",
    "n1",
    "nobody",
    "\x00",
    "\ud800",
    "ü\u2028\U0001f600",
    "x" * 5000,
    [],
    {},
    [None],
    ["n0", "n0"],
    {"metadata": {"name": "n0"}},
    {"Pods": [], "NumPDBViolations": 0},
    {"Pods": [{"UID": "nobody"}]},
    {"Host": "n1", "Score": 10},
)
_KEYS: Final = (
    "Nodes",
    "NodeNames",
    "FailedNodes",
    "FailedAndUnresolvableNodes",
    "Error",
    "Host",
    "n1",
    "zz",
)
_STATUSES: Final = (
    100,
    101,
    201,
    204,
    206,
    300,
    302,
    304,
    307,
    400,
    401,
    403,
    404,
    409,
    418,
    429,
    500,
    502,
    503,
    599,
)
_HEADS: Final = (
    b"",
    b"garbage\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n{}",
    b"HTTP/1.1 2000 OK\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n{}",
    b"\x00" * 100,
    b"\x16\x03\x01\x00\x05hello",
)
_BODIES: Final = (
    b"",
    b" ",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"{}{}",
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'{"Error": "\xff"}',
    b"\xef\xbb\xbf{}",
    b"NaN",
    b'[{"Score": 1e999}]',
    b'{"NodeNames": ["n0", "n0", "n0"]}',
    b'{"NodeNameToMetaVictims": {"n0": null}}',
)


def spoilt(honest: Any, rng: random.Random) -> bytes | None:
    """Return the bytes of a bad answer; None: the connection is closed without an answer."""
    return rng.choice(_WAYS)(honest, rng)


def _of_another_shape(honest: Any, rng: random.Random) -> bytes:
    value = copy.deepcopy(honest)
    for _ in range(rng.randint(1, 3)):
        value = _changed(value, rng)
    return answer(json.dumps(value))


def _changed(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one change, somewhere inside."""
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = list(value)
    elif isinstance(value, list):
        inside = list(range(len(value)))
    if not inside or rng.random() < 0.15:
        return copy.deepcopy(rng.choice(_VALUES))
    key = rng.choice(inside)
    how = rng.randrange(5)
    if how == 0:
        del value[key]
    elif how == 1 and isinstance(value, dict):
        value[rng.choice((str(key).upper(), str(key).lower(), rng.choice(_KEYS)))] = value.pop(key)
    elif how == 1:
        value.append(copy.deepcopy(value[key]))
    elif how == 2 and isinstance(value, dict):
        value[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_VALUES))
    else:
        value[key] = _changed(value[key], rng)
    return value


def _with_other_bytes(honest: Any, rng: random.Random) -> bytes:
    body = bytearray(json.dumps(honest).encode())
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(body) + 1)
        end = min(len(body), place + rng.choice((0, 1, 1, 4, 30)))
        body[place:end] = rng.choice(
            (b"", b'"', b"{", b"]", b",", b":", b"\\u", b"\xff", b"1e5", b"null", rng.randbytes(3))
        )
    return answer(bytes(body))


def _of_random_bytes(_: Any, rng: random.Random) -> bytes:
    return answer(rng.randbytes(rng.choice((1, 10, 1000))))


def _of_a_known_body(_: Any, rng: random.Random) -> bytes:
    return answer(rng.choice(_BODIES))


def _with_another_status(honest: Any, rng: random.Random) -> bytes:
    return answer(json.dumps(honest), rng.choice(_STATUSES))


def _with_a_broken_head(_: Any, rng: random.Random) -> bytes:
    return rng.choice(_HEADS)


def _cut_off(honest: Any, rng: random.Random) -> bytes | None:
    whole = answer(json.dumps(honest))
    return whole[: rng.randrange(len(whole))] or None


def _packed_and_broken(honest: Any, rng: random.Random) -> bytes:
    packed = bytearray(gzip.compress(json.dumps(honest).encode(), mtime=0))
    packed[rng.randrange(len(packed))] ^= 0xFF
    return answer(bytes(packed), Content_Encoding="gzip")


_WAYS: Final[tuple[Callable[[Any, random.Random], bytes | None], ...]] = (
    _of_another_shape,
    _of_another_shape,
    _of_another_shape,
    _with_other_bytes,
    _with_other_bytes,
    _of_random_bytes,
    _of_a_known_body,
    _with_another_status,
    _with_a_broken_head,
    _cut_off,
    _packed_and_broken,
)
