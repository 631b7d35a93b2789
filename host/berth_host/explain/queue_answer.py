"""The queue of a running host as JSON: the pods that wait, by part and by reason, in the order asked for.

Read by `GET /berth/v1/queue`, `kubectl berth queue` and the page.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from berth_sdk.rfc3339 import format_micro_time

from berth_host.explain.diagnosis import NO_REASON
from berth_host.explain.explanation import circle_text
from berth_host.explain.pod_state import AnsweringHost, retry_at_s
from berth_host.queue.counts import GATED
from berth_host.queue.group_entries import Aside
from berth_host.queue.places import Place
from berth_host.queue.queued_pod import QueuedEntity, QueuedPodInfo

PARTS: Final = (
    Place.ACTIVE.value,
    Place.BACKOFF.value,
    Place.POOL.value,
    GATED,
    *(aside.value for aside in Aside),
)
"""The parts of the queue, in the order of the answer."""
QUEUE_LAST: Final = 10_000_000
"""The most pods that one answer leaves out before the first one that it lists."""
REASONS_SHOWN: Final = 100
"""The most reasons in one answer: texts of errors may name the pod, so that each pod has its own."""
ROWS_PER_TURN: Final = 250
"""The number of rows to make before other tasks of the loop run, so that scheduling continues."""
_UNTRIED: Final = ("", "not tried yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuery:
    """The pods to list, at most `limit`, after the first `offset`.

    `part`: one of PARTS. `reason`: a plugin, the text of a reason, or both as `PLUGIN: TEXT`. `contains`: a
    part of the pod's key or of `PLUGIN: TEXT`, in capital or small letters; "" in each: all pods. `order`:
    one of ORDERS.
    """

    limit: int
    offset: int = 0
    part: str = ""
    reason: str = ""
    contains: str = ""
    order: str = "oldest"


class _Waiting(NamedTuple):
    """A pod of the queue."""

    created_at_s: float
    key: str
    part: str
    reason: tuple[str, str]
    info: QueuedPodInfo
    entity: QueuedEntity | None

    def matches(self, query: QueueQuery) -> bool:
        """Return True if the reason and the text of the query, where it has them, are those of the pod."""
        if query.reason and query.reason not in (*self.reason, _said(*self.reason)):
            return False
        words = query.contains.lower()
        return not words or words in self.key.lower() or words in _said(*self.reason).lower()


def _said(plugin: str, text: str) -> str:
    return f"{plugin}: {text}" if plugin else text


# Keys of two pods differ at each moment.
ORDERS: Final[Mapping[str, Callable[[_Waiting], tuple[Any, ...]]]] = {
    "oldest": lambda one: (one.created_at_s, one.key),
    "newest": lambda one: (-one.created_at_s, one.key),
    "attempts": lambda one: (-one.info.attempts, one.key),
    "priority": lambda one: (-one.info.priority, one.created_at_s, one.key),
    "name": lambda one: (one.key,),
}
"""The orders of the list, by their names in the question."""


async def queue_answer(host: AnsweringHost, query: QueueQuery) -> dict[str, Any]:
    """Return the answer: numbers of all pods of the queue, and the pods that `query` names.

    The pods of `part` are counted by reason, all pods by part. Numbers, parts and reasons are of one moment;
    other tasks of the loop run between the rows of many pods.
    """
    parts, reasons = dict.fromkeys(PARTS, 0), Counter[tuple[str, str]]()
    chosen: list[_Waiting] = []
    for one in _waiting(host):
        parts[one.part] += 1
        if query.part and one.part != query.part:
            continue
        reasons[one.reason] += 1
        if one.matches(query):
            chosen.append(one)
    listed = heapq.nsmallest(query.offset + query.limit, chosen, key=ORDERS[query.order])[query.offset :]
    answered_at_s = host.clock.now_s()
    rows = []
    for number, one in enumerate(listed, start=1):
        rows.append(_row(host, one))
        if number % ROWS_PER_TURN == 0:
            await asyncio.sleep(0)
    most = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return {
        "parts": parts,
        "reasons": [
            {"plugin": plugin or None, "text": text, "pods": count}
            for (plugin, text), count in most[:REASONS_SHOWN]
        ],
        "reasonCount": len(reasons),
        "matching": len(chosen),
        "offset": query.offset,
        "pods": rows,
        "answeredAt": format_micro_time(answered_at_s),
    }


def _waiting(host: AnsweringHost) -> Iterator[_Waiting]:
    for part, entity in host.queue.counts.entries():
        gate = _gate(entity) if entity.is_gated else None
        for info in entity.pods():
            yield _one(part, gate or info.cause or _UNTRIED, info, entity)
    for which in Aside:
        for info in host.queue.groups.aside(which):
            missing = host.queue.groups.forest.missing_above(info.pod.group_key)
            text = f"waits for {missing}" if missing else f"waits for the cycle of {info.pod.group_key}"
            if circle := host.queue.groups.forest.circle_above(info.pod.group_key):
                text = circle_text(circle)
            yield _one(which.value, ("", text), info, None)


def _one(part: str, reason: tuple[str, str], info: QueuedPodInfo, entity: QueuedEntity | None) -> _Waiting:
    created_at_s = info.pod.created_at_s
    if created_at_s is None:
        created_at_s = info.timestamp_us / 1e6
    return _Waiting(created_at_s, info.key, part, reason, info, entity)


def _gate(entity: QueuedEntity) -> tuple[str, str]:
    """Return the plugin that gates the entity, and its message or the names of the scheduling gates."""
    gates = {gate for info in entity.pods() for gate in info.pod.scheduling_gates}
    if gates:
        return entity.gating_plugin, f"scheduling gates: {', '.join(sorted(gates))}"
    return entity.gating_plugin, entity.gating_message or NO_REASON


def _row(host: AnsweringHost, one: _Waiting) -> dict[str, Any]:
    info, entity = one.info, one.entity
    retry_s = None
    if entity is not None and one.part in _PLACES:
        retry_s = retry_at_s(host.queue, _PLACES[one.part], entity)
    plugin, text = one.reason
    return {
        "key": one.key,
        "uid": info.uid,
        "schedulerName": info.pod.scheduler_name,
        "group": info.pod.group_key or None,
        "priority": info.priority,
        "part": one.part,
        "reason": {"plugin": plugin or None, "text": text},
        "nominatedNode": host.queue.nominator.node_of(info.uid) or None,
        "attempts": info.attempts,
        "created": format_micro_time(one.created_at_s),
        "since": format_micro_time(info.timestamp_us / 1e6),
        "retryAt": None if retry_s is None else format_micro_time(retry_s),
    }


_PLACES: Final = {place.value: place for place in Place}
