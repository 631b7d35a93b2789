"""`Snapshot`: the state of the cluster that one cycle reads, copied from the cache row by row.

The scheduler updates the snapshot with the changes at the start of a cycle (and while idle). The cache does
not change it until the cycle releases it. The cycle of a pod group places members on it, and takes pods away
from it, on trial (`assume`, `remove`); `revert` and the release undo these steps. Plugins read it as
`NodeTable`, and `ChangeLog` the changes.
Source: kube-scheduler `backend/cache/snapshot.go` and `cache.go` (UpdateSnapshot), v1.37.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from berth_sdk import chance
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage, ObjectStore, PodTable, StateVersion
from berth_sdk.tables.node_columns import changed_usage
from numpy.typing import NDArray

from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.objects import ObjectStores
from berth_host.cache.pod_groups import Member, MemberState, SnapshotGroups
from berth_host.cache.row_log import RowLog
from berth_host.errors.state import InvariantError


@dataclass(frozen=True, slots=True)
class _Step:
    """One trial step: a pod that came to a slot (`came`) or left it, and the slot as it was before.

    `assumed`: True if the pod counts as assumed on the slot. `member`: its record and state in its group
    before the step; None: it was no member.
    """

    came: bool
    pod: Pod
    slot: int
    pods: Sequence[Pod]
    usage: NodeUsage
    assumed: bool
    member: Member | None


_ON_TRIAL: Final = -1
"""The incarnation of a node that the cache does not have."""
_EPOCHS: Final = 2**53 - 1
"""The number of possible epochs; a decoder that uses floating point numbers reads each one exactly."""


class Snapshot:
    """One set of columns, changed in place by `update`, and never while a cycle holds it.

    `epoch`: random, so that generations of another host or of another term as leader are not taken for this
    one's. `groups`: the pod groups. `confirmed_generation`: returns the oldest version that a copy of the
    snapshot may have; None: there are no copies. A removed node's slot is used again only after all copies
    have a newer version.
    """

    def __init__(self, objects: ObjectStores | None = None) -> None:
        self.epoch = _new_epoch()
        self.generation = 0
        self.columns = NodeColumns()
        self.pods = PodTable()
        self.columns.pods = self.pods
        self.groups = SnapshotGroups()
        self.log = RowLog()
        self.confirmed_generation: Callable[[], int] | None = None
        self._live_objects = objects
        self._objects: dict[str, ObjectStore] = {}
        self._names: list[str] = []
        self._order: NDArray[np.intp] | None = None
        self._held = False
        self._on_release: list[Callable[[], None]] = []
        self._copied = 0
        """The generation of the cache up to which `update` copied it. A trial step leaves it behind
        `generation`.
        """
        self._generations = Generations()
        self._steps: list[_Step] = []
        self._steps_of: dict[str, list[_Step]] = {}
        """The steps of each pod, by its uid."""
        self._new_nodes: list[int] = []
        """The slots of the nodes of `put_new_node`."""

    # --- reading -----------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Begin a new epoch, for a new term: every copy must be sent whole again.

        Raises InvariantError if the snapshot is held.
        """
        if self._held:
            raise InvariantError(f"the snapshot is held by a cycle at {self.version}: its epoch cannot end")
        self.epoch = _new_epoch()

    @property
    def copied_generation(self) -> int:
        """The generation of the cache of which this is a copy, whatever was tried on it since."""
        return self._copied

    @property
    def version(self) -> StateVersion:
        """The epoch and the generation."""
        return StateVersion(self.epoch, self.generation)

    @property
    def nodes(self) -> NodeTable:
        """The table of all nodes; the same object until the snapshot changes."""
        return NodeTable.of(self.columns)

    def has_node(self, node_name: str) -> bool:
        """Return True if the snapshot has this node."""
        return node_name in self.columns.index_of

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """Return the pod with this uid on that node; None if it is not there."""
        slot = self.columns.index_of.get(node_name)
        if slot is None:
            return None
        return next((pod for pod in self.pods.on_node(slot) if pod.uid == uid), None)

    def pod_on_some_node(self, uid: str) -> Pod | None:
        """Return the pod with this uid; None if it is on no node."""
        row = self.pods.position(uid)
        return None if row is None else self.pods.pod(row)

    def preemption_priority(self, pod: Pod) -> int:
        """Return the priority that decides whether the pod may be preempted: that of its root group."""
        return self.groups.eviction_priority(pod)

    def evicted_with(self, pod: Pod) -> str:
        """Return the key of the group that leaves as a whole when the pod is preempted; "" for none."""
        key = ""
        for group in self.groups.known_path(pod.group_key):
            key = group.key if group.disrupts_all else key
        return key

    @property
    def order(self) -> NDArray[np.intp]:
        """Positions in `nodes` in the order in which kube-scheduler visits them (intp[n]).

        Recomputed only when nodes are added or removed: a node that changed its zone keeps its place until
        then.
        """
        if self._order is None:
            slots = np.fromiter((self.columns.index_of[name] for name in self._names), dtype=np.intp)
            self._order = np.searchsorted(self.columns.live_slots(), slots)
            self._order.flags.writeable = False
        return self._order

    def objects_of_kind(self, kind: str) -> ObjectStore:
        """Return the objects of a kind in this version."""
        store = self._objects.get(kind)
        if store is None:
            store = self._objects[kind] = ObjectStore()
        return store

    # --- holding -----------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while a cycle reads the snapshot."""
        return self._held

    def hold(self) -> None:
        """Hold the snapshot for a cycle: `update` raises until `release`. Raises InvariantError if held."""
        if self._held:
            raise InvariantError("the snapshot is held by a cycle, so a second one cannot hold it")
        self._held = True

    def release(self) -> None:
        """Revert all trial steps, drop the nodes of `put_new_node` and release the snapshot, at the end of a
        cycle; has no effect if it is not held.
        """
        self.revert(0)
        self.drop_new_nodes()
        self._held = False
        waiting, self._on_release = self._on_release, []
        for act in waiting:
            act()

    def when_released(self, act: Callable[[], None]) -> None:
        """Call `act` once while no cycle holds the snapshot: now, or at the next `release`."""
        if self._held:
            self._on_release.append(act)
        else:
            act()

    # --- updating ----------------------------------------------------------------------------

    def update(self, cache: Cache) -> None:
        """Apply the changes of the cache and the object stores. Raises InvariantError if held."""
        if self._held:
            raise InvariantError(f"the snapshot is held by a cycle at {self.version}, so it cannot move")
        target = cache.generations.last
        if target == self._copied:
            return
        tried = self.generation > self._copied
        if tried and target == self.generation:
            if not self._is_behind(cache):
                self._copied = target
                return
            # Copies at this version, which a trial made, must see what is copied now as newer.
            target = cache.generations.next()
        self._generations = cache.generations
        columns = self.columns
        if columns.has_freed:
            columns.reclaim(None if self.confirmed_generation is None else self.confirmed_generation())
        columns.begin_update()
        # The cache may have changed before the last trial step, whose generation is then the newer one.
        stamp = target if tried else None
        new: list[NodeInfo] = []
        moved = False
        for info in cache.changed_since(self._copied):
            if info.name in columns.index_of:
                moved = moved or info.node is None
                self._copy(info, cache, target, stamp or info.generation)
            elif info.node is not None:
                new.append(info)
        # New nodes in the order of their addition, so that slots do not depend on the nodes' pods.
        for info in sorted(new, key=lambda info: info.born) if new else ():
            self._copy(info, cache, target, stamp or info.generation)
            moved = True
        if len(columns.index_of) != cache.node_count:
            self._drop_vanished(cache, target)
            moved = True
        if moved:
            self._names = cache.node_tree.names()
            self._order = None
            if len(columns) != cache.node_count or len(self._names) != len(columns):
                raise InvariantError(
                    f"the cache has {cache.node_count} nodes and {len(self._names)} in its order,"
                    f" the snapshot {len(columns)}"
                )
        objects = self._live_objects
        if objects is not None and objects.changed_at > self._copied:
            self._update_objects(objects, target, stamp)
        self.groups.update(cache.groups, self._copied)
        self.generation = self._copied = target

    def _is_behind(self, cache: Cache) -> bool:
        """Return True if the cache, its groups or the objects changed after they were copied."""
        objects = self._live_objects
        return (
            bool(cache.changed_since(self._copied))
            or len(self.columns) != cache.node_count
            or bool(cache.groups.changed.since(self._copied) != [])
            or (objects is not None and objects.changed_at > self._copied)
        )

    def _copy(self, info: NodeInfo, cache: Cache, target: int, generation: int) -> None:
        columns, log = self.columns, self.log
        slot = columns.index_of.get(info.name)
        if slot is not None and (info.node is None or log.row(slot).incarnation != info.born):
            self._drop(slot, target)
            slot = None
        if info.node is None:
            return
        is_new = slot is None
        if slot is None:
            slot = columns.add(info.node)
            log.add(slot, info.born, generation)
        row = log.row(slot)
        if info.node_generation > self._copied and not is_new:
            old = columns.nodes[slot]
            if old is not info.node:
                columns.set_node(slot, info.node)
                row.object = generation
                if old is None or not same_summary(old, info.node):
                    row.summary = generation
        if info.usage_generation > self._copied or is_new:
            self._set_pods(slot, info.pods, info.usage(), cache.assumed_uids, generation)
        else:
            columns.touch(slot, generation)
        log.moved.add(target, slot)

    def _set_pods(
        self, slot: int, pods: Sequence[Pod], usage: NodeUsage, assumed: Collection[str], generation: int
    ) -> None:
        """Write a row whose pods changed, in one step: the readers of the table see one move of the row."""
        columns, old = self.columns, self.columns.usages[slot]
        is_changed = usage is not old and usage != old
        if is_changed:
            self.log.row(slot).usage = generation
        for uid in self.pods.set_node_pods(slot, pods, assumed, generation):
            self.log.removed_pods.add(generation, (slot, uid))
        columns.touch(slot, generation, usage if is_changed else None)

    def _drop(self, slot: int, target: int) -> None:
        self.columns.remove(slot, target)
        self.log.remove(slot, target)
        self._order = None

    def _drop_vanished(self, cache: Cache, target: int) -> None:
        for name, slot in list(self.columns.index_of.items()):
            info = cache.node_info(name)
            if info is None or info.node is None:
                self._drop(slot, target)

    # --- trial steps ---------------------------------------------------------------------------

    def mark(self) -> int:
        """Return the present place for a later `revert`: the number of trial steps so far."""
        return len(self._steps)

    def assume(self, pod: Pod) -> None:
        """Place a pod on `pod.node_name` on trial, as an assumed pod.

        Raises InvariantError if no cycle holds the snapshot, if it lacks the node, or has the pod already.
        """
        slot = self.columns.index_of.get(pod.node_name)
        if slot is None or self.pods.position(pod.uid) is not None:
            why = (
                "is in the snapshot already"
                if slot is not None
                else f"names {pod.node_name!r}, no node of it"
            )
            raise InvariantError(f"pod {pod.key} ({pod.uid}) {why}, so it cannot be assumed")
        # A member that was deleted since the pop counts in its group no more.
        member = (pod, MemberState.ASSUMED) if self.groups.member(pod) is not None else None
        self._take_step(pod, slot, came=True, assumed=True, member=member)

    def forget(self, uid: str) -> None:
        """Undo `assume` of one pod. Raises InvariantError if the pod was not assumed on trial."""
        steps = self._steps
        if steps and steps[-1].came and steps[-1].pod.uid == uid:
            self.revert(len(steps) - 1)
            return
        step = self._last_step(uid)
        if step is None or not step.came:
            raise InvariantError(f"pod {uid} was not assumed on trial, so it cannot be forgotten")
        self._take_step(step.pod, step.slot, came=False, assumed=True, member=step.member)

    def remove(self, uid: str) -> Pod:
        """Take a pod off its node on trial, and return it.

        Raises InvariantError if no cycle holds the snapshot, or if no node has the pod.
        """
        row = self.pods.position(uid)
        if row is None:
            raise InvariantError(f"pod {uid} is on no node of the snapshot, so it cannot be removed")
        slot = int(self.pods.node_index[row])
        pod = self.pods.pod(row)
        self._take_step(pod, slot, came=False, assumed=self.pods.is_assumed(uid), member=None)
        return pod

    def restore(self, uid: str) -> Pod:
        """Bring a removed pod back to its node, and return it. Raises InvariantError if it is not removed."""
        steps = self._steps
        step = self._last_step(uid)
        if step is None or step.came:
            raise InvariantError(f"pod {uid} was not removed on trial, so it cannot be restored")
        if step is steps[-1]:
            self.revert(len(steps) - 1)
        else:
            self._take_step(step.pod, step.slot, came=True, assumed=step.assumed, member=step.member)
        return step.pod

    def revert(self, mark: int) -> None:
        """Undo the trial steps after `mark`, newest first."""
        undone = self._steps[mark:]
        if not undone:
            return
        del self._steps[mark:]
        for step in reversed(undone):
            of_pod = self._steps_of[step.pod.uid]
            of_pod.pop()
            if not of_pod:
                del self._steps_of[step.pod.uid]
        generation = self._generations.next()
        first = {step.slot: step for step in reversed(undone)}
        left = {(step.slot, step.pod.uid): step.assumed for step in reversed(undone) if not step.came}
        for slot, step in first.items():
            uids = (pod.uid for pod in step.pods)
            assumed = {uid for uid in uids if left.get((slot, uid), self.pods.is_assumed(uid))}
            self._write_trial(slot, step.pods, step.usage, assumed, generation)
        if self._steps:
            for step in reversed(undone):
                self.groups.set_member(step.pod, step.member)
        else:
            self.groups.revert_all()
        self.generation = generation

    @contextmanager
    def with_node(self, node: Node, pods: Sequence[Pod] = ()) -> Iterator[None]:
        """Have one more node, with these pods, for the length of the block, or until `drop_new_nodes`.

        Trial steps of the block must be reverted in it. Raises InvariantError as `put_new_node` does.
        """
        self.put_new_node(node, pods)
        try:
            yield
        finally:
            self.drop_new_nodes()

    def put_new_node(self, node: Node, pods: Sequence[Pod] = ()) -> int:
        """Add a node on trial, with these pods, until `drop_new_nodes` or the release. Return its slot.

        Served plugins get the node by a delta, as they get every other one. Raises InvariantError if no cycle
        holds the snapshot, or if the snapshot has the node or one of the pods.
        """
        columns = self.columns
        known = [pod.key for pod in pods if self.pods.position(pod.uid) is not None]
        if not self._held or known or node.name in columns.index_of:
            why = (
                "no cycle holds the snapshot"
                if not self._held
                else "the snapshot has it, or its pods, already"
            )
            raise InvariantError(f"node {node.name} cannot come on trial: {why}")
        if columns.has_freed:
            columns.reclaim(None if self.confirmed_generation is None else self.confirmed_generation())
        generation = self._generations.next()
        slot = columns.add(node)
        self.log.add(slot, _ON_TRIAL, generation)
        self._write_trial(slot, pods, changed_usage(NodeUsage(), (), pods), (), generation)
        self._order = None
        self._new_nodes.append(slot)
        self.generation = generation
        return slot

    def drop_new_nodes(self) -> None:
        """Drop the nodes of `put_new_node` and `with_node`, also while a block still runs."""
        while self._new_nodes:
            generation = self._generations.next()
            self._drop(self._new_nodes.pop(), generation)
            self.generation = generation

    def _last_step(self, uid: str) -> _Step | None:
        of_pod = self._steps_of.get(uid)
        return of_pod[-1] if of_pod else None

    def _take_step(self, pod: Pod, slot: int, *, came: bool, assumed: bool, member: Member | None) -> None:
        """Change a slot by one pod. `member`: the pod's record and state in its group afterwards."""
        if not self._held:
            raise InvariantError(f"no cycle holds the snapshot, so pod {pod.key} cannot move in it")
        before, usage = self.pods.pods_of(slot), self.columns.usages[slot]
        known = self.groups.member(pod)
        step = _Step(came, pod, slot, before, usage, assumed, known)
        self._steps.append(step)
        self._steps_of.setdefault(pod.uid, []).append(step)
        after = [*before, pod] if came else _without(before, pod.uid)
        usage = changed_usage(usage, () if came else (pod,), (pod,) if came else ())
        here = {one.uid for one in after if self.pods.is_assumed(one.uid)}
        if came and assumed:
            here.add(pod.uid)
        generation = self._generations.next()
        self._write_trial(slot, after, usage, here, generation)
        if known != member:
            self.groups.set_member(pod, member)
        self.generation = generation

    def _write_trial(
        self, slot: int, pods: Sequence[Pod], usage: NodeUsage, assumed: Collection[str], generation: int
    ) -> None:
        self._set_pods(slot, pods, usage, assumed, generation)
        self.log.moved.add(generation, slot)

    # --- objects of other kinds ----------------------------------------------------------------

    def _update_objects(self, objects: ObjectStores, target: int, stamp: int | None) -> None:
        """Copy the changed objects. `stamp`: the generation that they get; None: their own."""
        for kind, live in objects.by_kind():
            mine = self.objects_of_kind(kind)
            removed = live.removed.since(self._copied)
            if removed is None:
                gone = [item.ref for item in mine.changed_since(0)]
            else:
                gone = [ref for _, ref in removed]
            for ref in gone:
                if live.find(ref.namespace, ref.name) is None:
                    mine.remove(ref.namespace, ref.name, target)
            for item in live.changed_since(self._copied):
                mine.put(item.ref, item.object, stamp or item.generation)


def _without(pods: Sequence[Pod], uid: str) -> list[Pod]:
    """Return the pods without one, in whose place the last pod comes, as `NodeInfo` does it."""
    left = list(pods)
    last = left.pop()
    if last.uid != uid:
        left[next(at for at, pod in enumerate(left) if pod.uid == uid)] = last
    return left


def same_summary(old: Node, new: Node) -> bool:
    """Return True if two states of a Node differ in nothing that a summary has."""
    return (
        old.labels == new.labels
        and old.annotations == new.annotations
        and old.taints == new.taints
        and old.unschedulable == new.unschedulable
        and old.allocatable == new.allocatable
        and old.images == new.images
        and old.declared_features == new.declared_features
    )


def _new_epoch() -> int:
    return chance.below(_EPOCHS) + 1
