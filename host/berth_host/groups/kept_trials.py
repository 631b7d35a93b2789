"""`KeptTrials`: outcomes of trials of groups in placements, used again while what they follow from holds.

    a trial is kept by    the placement (its name, its nodes) and the signatures of the members, in order
    it holds while        no row of the placement has another content, no declared object has changed, and
                          no pod is nominated to a node of the placement

A kept trial takes the place of PreFilter to Reserve of each member. PlacementFeasible is asked all the same:
its answers follow from the group. A placement that is chosen is tried for good: members need attempts of
their own. What plugins answered at PlacementScore is kept beside the trial (`scores`).
Used by `placements`. One for each profile, made by `schedule_group`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from berth_sdk.extension_points import DependsOn, ExtensionPoint
from berth_sdk.kept.row_contents import Reads, contents_of
from berth_sdk.needs import NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, Placement
from berth_sdk.tables import Moved, SlotFollower
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.cache.snapshot import Snapshot, same_summary
from berth_host.cycle.attempt import Failed
from berth_host.explain.diagnosis import Diagnosis
from berth_host.framework.framework import Framework
from berth_host.rpc.client import PluginClient


class Member(Protocol):
    """A member of a group that is tried (`group_attempt.Member`)."""

    @property
    def pod(self) -> Pod:
        """The pod."""
        ...


MOST_PLACEMENTS: Final = 4096
MOST_BY_PLACEMENT: Final = 8
_TRIED_AT: Final = (
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.PRE_SCORE,
    ExtensionPoint.SCORE,
    ExtensionPoint.RESERVE,
)
"""The points at which a trial asks about a member."""


@dataclass(slots=True, eq=False)
class KeptMember:
    """The outcome of a trial for one member. `node_name`: its node; "" for none.

    `message`, `failed`: why it has none. `unfit`: the record of that attempt.
    """

    node_name: str = ""
    message: str = ""
    failed: Failed | None = None
    unfit: Diagnosis | None = None


@dataclass(slots=True, eq=False)
class KeptTrial:
    """The outcome of one trial. `members`: those that were tried, in order. `stamp`: what it holds for.

    `scores`: raw answers to PlacementScore, by plugin and by what they follow from.
    """

    members: list[KeptMember]
    stamp: Hashable
    scores: dict[Hashable, int] = field(default_factory=dict)
    places_all: bool = field(init=False)
    """True if each of these members got a node."""

    def __post_init__(self) -> None:
        self.places_all = all(one.node_name for one in self.members)

    def placed_of(self, count: int) -> int:
        """Return how many of the first `count` members get a node."""
        if self.places_all:
            return min(count, len(self.members))
        return sum(bool(one.node_name) for one in self.members[:count])

    def assignments(self, members: Sequence[Member]) -> list[Assignment]:
        """Return the nodes that equal members get."""
        found = zip(members, self.members, strict=False)
        return [Assignment(one.pod, kept.node_name) for one, kept in found if kept.node_name]


@dataclass(slots=True, eq=False)
class KeptPlacement:
    """The trials kept about one placement, by the members' signatures. `slots`: its nodes."""

    slots: NDArray[np.intp]
    trials: OrderedDict[Hashable, KeptTrial] = field(default_factory=OrderedDict)


class _RowVersions:
    """A number for the content of each row, by slot: it grows when the content is another one than before.

    A pod that comes on trial and leaves again changes no number, if nobody reads between the two.
    """

    def __init__(self, reads: Reads | None, *, whole_nodes: bool) -> None:
        """Begin. `reads`: the columns of pods that plugins read; None: not declared, so every pod counts.
        `whole_nodes`: some plugin reads more of a Node than its summary.
        """
        self.reads = reads
        self.whole_nodes = whole_nodes
        self._follower = SlotFollower(Moved.ROW)
        self._identity: object = None
        self._names_version = -1
        self._nodes: list[Node | None] = []
        self._contents: list[Hashable] = []
        self.versions: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.of_nodes = 0
        """A number that grows when a Node is another one than before, for plugins that read all Nodes."""
        self._last = 0

    def catch_up(self, snapshot: Snapshot) -> None:
        """Read the rows that moved since the last call."""
        columns = snapshot.columns
        moved = self._follower.moved_in(columns)
        if self._identity is not columns.identity or self._names_version != columns.names_version:
            self._identity, self._names_version = columns.identity, columns.names_version
            self.of_nodes += 1
            moved = None
        more = columns.capacity - len(self._nodes)
        if more > 0:
            self._nodes += [None] * more
            self._contents += [None] * more
            self.versions = extended(self.versions, more)
        slots = columns.live_slots().tolist() if moved is None else moved
        contents = self._contents_of(snapshot, slots)
        for slot, content in zip(slots, contents, strict=True):
            node, before = columns.nodes[slot], self._nodes[slot]
            if node is not before:
                self._nodes[slot] = node
                if before is None or node is None or self.whole_nodes or not same_summary(before, node):
                    self.of_nodes += 1
                    self._contents[slot] = None
            if content != self._contents[slot] or content is None:
                self._contents[slot] = content
                self._last += 1
                self.versions[slot] = self._last

    def _contents_of(self, snapshot: Snapshot, slots: Sequence[int]) -> Sequence[Hashable]:
        columns = snapshot.columns
        if self.reads is not None:
            live = [slot for slot in slots if columns.nodes[slot] is not None]
            numbers = dict(zip(live, contents_of(columns, self.reads).of(columns, live), strict=True))
            return [numbers.get(slot) for slot in slots]
        pods = snapshot.pods
        return [tuple([(pod, pods.is_assumed(pod.uid)) for pod in pods.pods_of(slot)]) for slot in slots]


class KeptTrials:
    """The kept trials of one profile."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._clients: tuple[PluginClient, ...] = tuple(
            {
                one.name: one
                for point in _TRIED_AT
                for one in framework.plugins_at(point)
                if one.answers_at(point)
            }.values()
        )
        self._scoring = framework.plugins_at(ExtensionPoint.PLACEMENT_SCORE)
        self._placements: OrderedDict[tuple[str, bytes], KeptPlacement] = OrderedDict()
        self._rows: _RowVersions | None = None
        self._versions: Hashable = None

    def __len__(self) -> int:
        """Return the number of kept trials."""
        return sum(len(one.trials) for one in self._placements.values())

    def clear(self) -> None:
        """Forget all trials."""
        self._placements.clear()

    # --- what can be kept ------------------------------------------------------------------------------

    def signed(self, pods: Sequence[Pod], snapshot: Snapshot) -> tuple[Hashable, ...] | None:
        """Return the joint signature of members, in the order in which they are tried.

        None: a trial of them is not kept, as a plugin is asked about one of them whose answers follow from
        more than single rows, or are not declared.
        """
        keys: list[Hashable] = []
        for pod in pods:
            key = (
                None
                if pod.nominated_node
                else self._framework.row_signature(self._clients, pod, snapshot.nodes)
            )
            if key is None:
                return None
            keys.append(key)
        return tuple(keys)

    @property
    def is_sound(self) -> bool:
        """False while a plugin fails: the answer of a failure policy may stand for its own."""
        return not any(client.is_failing for client in self._clients)

    @property
    def has_same_objects(self) -> bool:
        """True if no object that plugins read beside the rows has changed since `catch_up`."""
        return self._framework.versions_of_rows() == self._versions

    @property
    def asks_about_group_alone(self) -> bool:
        """True if PlacementFeasible can be asked without the members in the snapshot: none of its plugins
        reads the cluster's state.
        """
        at = self._framework.plugins_at(ExtensionPoint.PLACEMENT_FEASIBLE)
        return not any(client.descriptor.keeps_state for client in at)

    # --- the trials ------------------------------------------------------------------------------------

    def of(self, placement: Placement) -> KeptPlacement:
        """Return the kept trials about a placement."""
        slots = placement.nodes.slots
        key = placement.name, slots.tobytes()
        known = self._placements.get(key)
        if known is None:
            known = self._placements[key] = KeptPlacement(slots)
            if len(self._placements) > MOST_PLACEMENTS:
                self._placements.popitem(last=False)
        else:
            self._placements.move_to_end(key)
        return known

    def catch_up(self, snapshot: Snapshot) -> None:
        """Read what has changed. Call it before `stamps`, on a snapshot without trial steps."""
        reads, whole_nodes = self._read_by_plugins()
        rows = self._rows
        if rows is None or (rows.reads, rows.whole_nodes) != (reads, whole_nodes):
            self.clear()
            rows = self._rows = _RowVersions(reads, whole_nodes=whole_nodes)
        rows.catch_up(snapshot)
        self._versions = self._framework.versions_of_rows()

    def _read_by_plugins(self) -> tuple[Reads | None, bool]:
        """Return what `_RowVersions` compares. A served plugin declares it anew with each instance."""
        reads: Reads | None = frozenset()
        whole_nodes = False
        for client in (*self._clients, *self._scoring):
            descriptor = client.descriptor
            whole_nodes = whole_nodes or any(one.kind is NeedKind.NODE_OBJECT for one in descriptor.needs)
            if descriptor.depends_on is DependsOn.ROW:
                one = descriptor.reads
                reads = None if one is None or reads is None else reads | one
        return reads, whole_nodes

    def stamps(self, placements: Sequence[KeptPlacement]) -> list[Hashable]:
        """Return for each placement what a trial in it follows from beside the members."""
        rows = self._rows
        if rows is None or not placements:
            return []
        starts = np.cumsum([0, *[len(one.slots) for one in placements[:-1]]])
        together = rows.versions.take(np.concatenate([one.slots for one in placements]))
        if len(together) == 0:
            return [None] * len(placements)
        sums = np.add.reduceat(together, starts).tolist()
        return [(total, rows.of_nodes, self._versions) for total in sums]

    @staticmethod
    def found(kept: KeptPlacement, signed: Hashable, stamp: Hashable) -> KeptTrial | None:
        """Return the trial of equal members, if it holds."""
        trial = kept.trials.get(signed)
        if trial is None or stamp is None:
            return None
        if trial.stamp != stamp:
            del kept.trials[signed]
            return None
        kept.trials.move_to_end(signed)
        return trial

    @staticmethod
    def keep(kept: KeptPlacement, signed: Hashable, trial: KeptTrial) -> None:
        """Keep a trial."""
        if trial.stamp is None:
            return
        kept.trials[signed] = trial
        if len(kept.trials) > MOST_BY_PLACEMENT:
            kept.trials.popitem(last=False)
