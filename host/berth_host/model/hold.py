"""`Hold`: the room that is kept for one group of pods, as nominations of its members.

Made by `groups.gang_holds`, kept by the queue's nominator, read by the cycles and by `explain`.
Source: EASY backfilling (Lifka, "The ANL/IBM SP Scheduling System", 1995).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.pod import Pod

DEADLINE: Final = "activeDeadlineSeconds"
"""The field of a pod's spec that says how long the pod may run: the kubelet ends the pod after it."""


def deadline_s(pod: Pod) -> float | None:
    """Return for how many seconds a pod may run; None if the pod declares no end."""
    value = pod.spec.get(DEADLINE)
    return float(value) if isinstance(value, int | float) else None


@dataclass(slots=True, eq=False, kw_only=True)
class Hold:
    """The nodes that are kept for a group without room. Times are Unix seconds.

    - `key`, `uid`: of the root group. `group_keys`: the keys of all groups of its tree that have pods.
    - `priority`: the group's. `preempts_lower`: the group may evict pods of lower priority.
    - `nodes`: the node that each member is nominated to, by the pod's uid.
    - `since_s`, `until_s`: when the hold began, and when it ends at the latest.
    - `waits_for`: the pods that must leave before the group fits, by uid, with their expected ends; None: the
      pod declares no end.
    - `expected_start_s`: when the group fits; None if it is not known, or if one of the pods that must leave
      declares no end.
    - `backfilled`: the number of pods that were let in so far.
    """

    key: str
    uid: str
    group_keys: frozenset[str]
    priority: int
    preempts_lower: bool
    nodes: Mapping[str, str]
    since_s: float
    until_s: float
    waits_for: Mapping[str, float | None] = field(default_factory=dict)
    backfilled: int = 0
    expected_start_s: float | None = field(init=False)

    def __post_init__(self) -> None:
        ends = [end for end in self.waits_for.values() if end is not None]
        self.expected_start_s = max(ends) if ends and len(ends) == len(self.waits_for) else None

    @property
    def node_names(self) -> frozenset[str]:
        """The nodes with held room."""
        return frozenset(self.nodes.values())

    def lets_in(self, pod: Pod, now_s: float) -> bool:
        """Return True if the held room is free for a pod: one of the group, one that ends before the group
        starts, or one that the group may evict.
        """
        if pod.group_key in self.group_keys:
            return True
        if self.preempts_lower and pod.priority < self.priority:
            return True
        start_s, runs_s = self.expected_start_s, deadline_s(pod)
        return start_s is not None and runs_s is not None and now_s + runs_s <= start_s

    def count(self, pod: Pod, node_name: str, now_s: float) -> None:
        """Count a pod that got a node, if it was let in there."""
        if (
            node_name in self.nodes.values()
            and pod.group_key not in self.group_keys
            and self.lets_in(pod, now_s)
        ):
            self.backfilled += 1
