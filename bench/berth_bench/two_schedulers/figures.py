"""The figures of one case: how many pods two schedulers put on nodes that had no room for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run. `rate`: pods created per second, 0 for all at once.

    `too_many`: pods beyond the room of their nodes; `overfull_nodes`: the nodes that have such pods.
    `sent_back`: pods that berth did not bind, as somebody else had filled their node.
    """

    case: str
    title: str
    rate: float
    nodes: int
    places: int
    pods: int
    bound: int
    too_many: int
    overfull_nodes: int
    sent_back: int

    def as_json(self, command: str) -> dict[str, Any]:
        """Return the figures with the command that made them."""
        return {**asdict(self), "command": command}


def overfull(room: Mapping[str, int], on_nodes: Iterable[str]) -> tuple[int, int]:
    """Return the number of pods beyond the room of their nodes, and the number of these nodes.

    `room`: pods by node. `on_nodes`: the node of each bound pod.
    """
    counts = Counter(on_nodes)
    beyond = [count - room.get(name, 0) for name, count in counts.items() if count > room.get(name, 0)]
    return sum(beyond), len(beyond)
