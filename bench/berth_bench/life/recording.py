"""`Recording`: what the page showed at each moment of a life: the answers of `/berth/v1`.

Filled by `life` between two steps, served by `watched`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from berth_host.app import Host
from berth_host.endpoints.pages import PREFIX, QUEUE_MOST, Answers
from berth_host.endpoints.request_response import Answer, Request, failure

MOST_MOMENTS: Final = 1000
"""The most moments of a recording, about."""
AT: Final = "answeredAt"
Value: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Process:
    host: Host
    is_connected: bool = True
    is_leading: bool = True


class Recording:
    """The recording of one life. `moments_s`: the virtual seconds of its moments. `every_s`: the least time
    between two moments.
    """

    def __init__(self, days: float) -> None:
        self.moments_s: list[float] = []
        self.every_s = 86400.0 * days / MOST_MOMENTS
        self._at: list[str] = []
        self._values: dict[str, tuple[list[int], list[Value | Answer]]] = {}
        """By path: the moments at which the answer changed, and the answers without their time."""
        self._queued: set[str] = set()

    async def add(self, host: Host, now_s: float) -> None:
        """Record a moment, unless the last one was less than `every_s` ago."""
        if self.moments_s and now_s - self.moments_s[-1] < self.every_s:
            return
        self.moments_s.append(now_s)
        self._at.append("")
        answers = Answers(_Process(host))
        await self._record(answers, "queue", {"limit": (str(QUEUE_MOST),)})
        for path in ("nodes", "plugins", "podgroups"):
            await self._record(answers, path)
        queued = {info.pod.key for info in host.queue.pods()}
        # A pod that has left the queue is recorded once more: its view says what became of it.
        for key in sorted(queued | self._queued):
            await self._record(answers, f"pods/{key}")
        self._queued = queued

    def value(self, path: str, moment: int) -> Value | Answer:
        """Return the answer below `/berth/v1/` at a moment: the newest one that was recorded until then."""
        changed, values = self._values.get(path, ([], []))
        place = bisect_right(changed, moment)
        if not place:
            return failure(404, "NotFound", f"this life has no record of {path} at this moment")
        value = values[place - 1]
        return value if isinstance(value, Answer) else {**value, AT: self._at[moment]}

    async def _record(
        self, answers: Answers, path: str, query: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        answer = await answers.answer(Request(method="GET", path=f"{PREFIX}{path}", query=query or {}))
        value: Value | Answer = answer
        if answer.status == 200:
            found: Value = json.loads(answer.body)
            self._at[-1] = found.pop(AT, self._at[-1])
            value = found
        changed, values = self._values.setdefault(path, ([], []))
        if not values or values[-1] != value:
            changed.append(len(self.moments_s) - 1)
            values.append(value)
