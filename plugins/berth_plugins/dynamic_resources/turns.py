"""`Turns`: one pod at a time writes a claim, and enters the pods that wait for their turn.

The pods of a gang that share a claim are bound at the same time, and each write of the claim is conditional
on its version: of N writes at once only one succeeds. So the pods take turns. The pod whose turn it is writes
the others into `reservedFor` too, which makes two or three writes of N.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.kube_object import KubeObject

Json = dict[str, Any]
TURN_S: Final = 10.0
"""The time, in seconds, after which a turn is over even without an answer. Two writers at once do no harm:
the API server refuses one of them.
"""


@dataclass(slots=True)
class _Turn:
    """The turns for one claim. `writer`: the cycle that writes now; "" for none. `waiting`: the other
    consumers by cycle. `newest`: the claim after the last write; None: not known.
    """

    writer: str = ""
    since_s: float = 0.0
    waiting: dict[str, Json] = field(default_factory=dict)
    newest: KubeObject | None = None


class Turns:
    """The turns for all claims, by uid. Calls of the binding cycle come from several threads."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s`: monotonic seconds."""
        self._now_s = now_s
        self._turns: dict[str, _Turn] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._turns)

    def take(self, uid: str, holder: str, consumer: Json) -> bool:
        """Return True if the cycle may write the claim now. False: it waits, and another one may enter it."""
        with self._lock:
            turn = self._turns.setdefault(uid, _Turn())
            now_s = self._now_s()
            if turn.writer not in ("", holder) and now_s < turn.since_s + TURN_S:
                turn.waiting[holder] = consumer
                return False
            turn.writer, turn.since_s = holder, now_s
            turn.waiting.pop(holder, None)
            return True

    def waiting(self, uid: str) -> Mapping[str, Json]:
        """Return the consumers that wait for their turn, by cycle."""
        with self._lock:
            turn = self._turns.get(uid)
            return {} if turn is None else dict(turn.waiting)

    def newest(self, claim: KubeObject) -> KubeObject:
        """Return the claim as the last turn left it, if that is newer than `claim`."""
        with self._lock:
            turn = self._turns.get(claim.ref.uid)
            known = None if turn is None else turn.newest
            return known if known is not None and _version(known) > _version(claim) else claim

    def end(self, uid: str, holder: str, claim: KubeObject | None = None) -> None:
        """End the cycle's turn, or its wait for one. `claim`: as the API server answered the write."""
        with self._lock:
            turn = self._turns.get(uid)
            if turn is None:
                return
            turn.waiting.pop(holder, None)
            if turn.writer == holder:
                turn.writer = ""
                turn.newest = claim or turn.newest
            if not turn.writer and not turn.waiting:
                del self._turns[uid]


def _version(claim: KubeObject) -> int:
    version = claim.ref.resource_version
    return int(version) if version.isdecimal() else 0
