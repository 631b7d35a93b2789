"""The devices reserved for a claim, and their form in the cycle's token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.json.objects import finish, found, marks, put_back
from berth_sdk.json.scanner import ITEMS, Paths, cut
from berth_sdk.json.writer import write_json

Json = dict[str, Any]
MAX_TOKEN_BYTES: Final = 4096
_OPAQUE: Final[Paths] = {
    ITEMS: {ITEMS: {b"devices": {b"config": {ITEMS: {b"opaque": {b"parameters": "opaque"}}}}}}
}
"""The places in the token of parameters, which are written to the claim as their owner wrote them."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The devices reserved for one claim. `allocation` None: the claim had one before.

    `requests` (None: the claim exists) and `mappings`: of a claim that is made for extended resources.
    `group`: the key of the root group whose members share the allocation; "" for none. `consumer`: the group
    that the claim is reserved for instead of the pod; None: the pod.
    """

    namespace: str
    name: str
    uid: str
    allocation: Json | None
    requests: Sequence[Json] | None = None
    mappings: Sequence[Json] = ()
    group: str = ""
    consumer: Json | None = None


def encode(reserved: Sequence[Reserved]) -> bytes | None:
    """Return the text for the token that the host keeps. None: the text would be too long for a token."""
    rows: list[bytes] = []
    left = MAX_TOKEN_BYTES - 1
    for one in reserved:
        row = write_json(
            [
                one.namespace,
                one.name,
                one.uid,
                one.allocation,
                one.requests,
                one.mappings,
                one.group,
                one.consumer,
            ]
        )
        left -= len(row) + 1
        if left < 0:
            # The other rows are not written: a pod may have tens of thousands of claims.
            return None
        rows.append(row)
    return b"[%b]" % b",".join(rows)


def decode(token: bytes | None) -> list[Reserved] | None:
    """Read the text of `encode`. None for any other text."""
    try:
        return [Reserved(*row) for row in _rows(token or b"")]
    except (ValueError, TypeError):
        return None


def _rows(token: bytes) -> Any:
    if b'"parameters"' not in token:
        return json.loads(token)
    held = finish(found(token, _OPAQUE))
    rows = json.loads(cut(token, held, marks(len(held))))
    put_back(rows, _OPAQUE, [token[span.start : span.end] for span in held])
    return rows
