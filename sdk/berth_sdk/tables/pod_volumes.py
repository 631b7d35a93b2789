"""`PodVolumes`: the pods with storage on each node, updated by the changed slots.

For plugins that judge a node by the volumes in use on it. Read through `NodeTable.pod_volumes`; each set of
columns has one. A pod without volumes that name storage (see `berth_sdk.pod_volume`) is read once, when it is
added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from berth_sdk.pod import Pod
from berth_sdk.tables.slot_follower import Moved, SlotFollower
from berth_sdk.tables.slot_log import SlotLog

if TYPE_CHECKING:
    from berth_sdk.tables.node_columns import NodeColumns


class PodVolumes:
    """The pods with storage by slot (`NodeTable.slots`).

    Needs the pods' objects: a served plugin declares `Need.pod_objects()`. Raises ValueError where the pods
    are not known.
    """

    def __init__(self, columns: NodeColumns) -> None:
        self._nodes = columns
        self._on_slot: dict[int, tuple[Pod, ...]] = {}
        # PodTable's own lists, which never change: the same list has the same pods.
        self._seen: dict[int, Sequence[Pod]] = {}
        self._rows = SlotFollower(Moved.ROW)
        self._moved = SlotLog()

    def on_slot(self, slot: int) -> tuple[Pod, ...]:
        """Return the pods with storage on the slot, in the order of kube-scheduler's NodeInfo."""
        self._catch_up()
        return self._on_slot.get(slot, ())

    def slots(self) -> Iterable[int]:
        """Return the slots that have pods with storage."""
        self._catch_up()
        return self._on_slot.keys()

    @property
    def position(self) -> int:
        """The position of a reader that has read everything."""
        self._catch_up()
        return self._moved.position

    def since(self, position: int) -> list[int] | None:
        """Return the slots whose pods with storage changed after `position`. None: the log no longer has all
        of them.
        """
        self._catch_up()
        return self._moved.since(position)

    def _catch_up(self) -> None:
        pods = self._nodes.pods
        if pods is None:
            raise ValueError("these nodes have no pods: add Need.pod_objects() to `needs`")
        moved = self._rows.moved_in(self._nodes)
        if moved is None:
            self._moved.forget()
            self._on_slot.clear()
            self._seen = {slot: pods.pods_of(slot) for slot in range(self._nodes.capacity)}
            for slot, here in self._seen.items():
                found = tuple(pod for pod in here if pod.volumes)
                if found:
                    self._on_slot[slot] = found
            return
        for slot in moved:
            here = pods.pods_of(slot)
            if self._seen.get(slot) is here:
                continue
            self._seen[slot] = here
            found = tuple(pod for pod in here if pod.volumes)
            before = self._on_slot.get(slot, ())
            if len(found) == len(before) and all(a is b for a, b in zip(found, before, strict=True)):
                continue
            if found:
                self._on_slot[slot] = found
            else:
                del self._on_slot[slot]
            self._moved.add(slot)
