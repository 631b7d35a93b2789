"""The devices reserved for a claim, and their form in the cycle's token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


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


def encode(reserved: list[Reserved]) -> bytes:
    """Return the text for the token that the host keeps."""
    rows = [
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
        for one in reserved
    ]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(token: bytes | None) -> list[Reserved] | None:
    """Read the text of `encode`. None for any other text."""
    try:
        rows = json.loads(token or b"")
        return [Reserved(*row) for row in rows]
    except (ValueError, TypeError):
        return None
