"""`Cache`: every node with its pods and totals now, assumed pods included.

Written by watch events (through the event handlers), the scheduling cycle (assume) and binding tasks
(forget). `Snapshot` applies the changes at the start of a cycle.
Source: kube-scheduler `backend/cache/cache.go`, v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Set

from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.cache.generations import Generations
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.node_tree import NodeTree
from berth_host.cache.pod_groups import PodGroups
from berth_host.cache.room import Overfull
from berth_host.errors.state import CacheError, InvariantError


class Cache:
    """The nodes and pods of the cluster. A pod: unknown -assume-> assumed -add_pod-> added -remove_pod->
    unknown.

    assumed -forget-> unknown (the bind failed); unknown -add_pod-> added (another scheduler bound it).
    Assumed pods never expire. Pods are identified by uid. Any other step raises CacheError and changes
    nothing: a second add of a pod, or an update or removal of an unknown pod. Such steps are duplicates or
    late events; the caller logs the error and continues.
    """

    def __init__(self, generations: Generations | None = None, groups: PodGroups | None = None) -> None:
        self.generations = generations if generations is not None else Generations()
        self.groups = groups if groups is not None else PodGroups(self.generations)
        """The pod groups; without content where the host does not schedule them."""
        # Oldest change first, so that a snapshot reads only the end that is newer than the snapshot.
        self._infos: OrderedDict[str, NodeInfo] = OrderedDict()
        self._pods: dict[str, Pod] = {}
        self._assumed: set[str] = set()
        self._node_count = 0
        self.node_tree = NodeTree()
        self.overfull = Overfull(self)

    # --- reading -----------------------------------------------------------------------------

    @property
    def node_count(self) -> int:
        """The number of nodes, without placeholders."""
        return self._node_count

    @property
    def pod_count(self) -> int:
        """The number of pods on nodes, assumed ones included."""
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        """The number of assumed pods whose binding the watch has not shown yet."""
        return len(self._assumed)

    @property
    def assumed_uids(self) -> Set[str]:
        """A live view of the uids of the assumed pods."""
        return self._assumed

    def is_assumed(self, uid: str) -> bool:
        """Return True if the pod is assumed and the watch has not shown its binding yet."""
        return uid in self._assumed

    def get_pod(self, uid: str) -> Pod | None:
        """Return the cache's record of a pod, or None."""
        return self._pods.get(uid)

    def node_info(self, name: str) -> NodeInfo | None:
        """Return the record of a node or placeholder, or None; callers must not change it."""
        return self._infos.get(name)

    def node_infos(self) -> Iterator[NodeInfo]:
        """Return all records, placeholders included, oldest change first."""
        return iter(self._infos.values())

    def changed_since(self, generation: int) -> list[NodeInfo]:
        """Return the records that changed after `generation`, oldest change first."""
        changed: list[NodeInfo] = []
        for info in reversed(self._infos.values()):
            if info.generation <= generation:
                break
            changed.append(info)
        changed.reverse()
        return changed

    # --- pods --------------------------------------------------------------------------------

    def assume(self, pod: Pod) -> None:
        """Count `pod`, with its chosen `node_name`, on its node before the bind.

        Raises CacheError if the pod is in the cache.
        """
        _check_identity(pod)
        if pod.uid in self._pods:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is in the cache, so it cannot be assumed")
        self._attach(pod)
        self._assumed.add(pod.uid)
        if pod.group_key:
            self.groups.assume(pod)

    def forget(self, pod: Pod) -> None:
        """Undo `assume`; has no effect for an unknown pod.

        Raises CacheError if the pod was assumed on another node, or is bound.
        """
        known = self._pods.get(pod.uid)
        if known is None:
            return
        if known.node_name != pod.node_name:
            raise CacheError(
                f"pod {pod.key} ({pod.uid}) was assumed on {known.node_name!r}, not on {pod.node_name!r}"
            )
        if pod.uid not in self._assumed:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is bound, so it cannot be forgotten")
        self._detach(known)
        info = self._infos.get(known.node_name)
        if info is not None and known.host_ports:
            # The pod may be forgotten because another pod, which stays, has its port.
            info.restore_ports()
        if known.group_key:
            self.groups.forget(known)

    def forget_if_assumed(self, pod: Pod) -> None:
        """Undo `assume` unless the watch has shown the pod as bound meanwhile.

        Raises CacheError if the pod is assumed on another node.
        """
        if pod.uid in self._assumed:
            self.forget(pod)

    def add_pod(self, pod: Pod) -> str | None:
        """Add a pod that the watch shows on a node, or confirm an assumed pod.

        Returns the node on which the pod was assumed if it is bound to another one (worth a warning), else
        None. Raises CacheError if the pod was added before.
        """
        _check_identity(pod)
        known = self._pods.get(pod.uid)
        if known is not None and pod.uid not in self._assumed:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is in the cache, so it cannot be added again")
        if known is not None and known.group_key != pod.group_key:
            self.groups.remove_assigned(known)
        if pod.group_key:
            self.groups.put_assigned(pod)
        if known is None:
            self._attach(pod, by_others=True)
            return None
        if known.node_name == pod.node_name:
            self._replace(pod)
            return None
        self._detach(known)
        self._attach(pod, by_others=True)
        return known.node_name

    def update_pod(self, old: Pod, new: Pod) -> None:
        """Replace a bound pod. `old` identifies the pod; the totals lose the cache's own record of it.

        Raises CacheError for an unknown or assumed pod (its add must come first), and InvariantError for a
        pod that changed its node, which the API server never allows.
        """
        _check_identity(new)
        known = self._pods.get(old.uid)
        if known is None:
            raise CacheError(f"pod {old.key} ({old.uid}) is not in the cache, so it cannot be updated")
        if old.uid in self._assumed:
            raise CacheError(f"pod {old.key} ({old.uid}) is assumed; it is added before it is updated")
        if known.node_name != new.node_name or known.uid != new.uid:
            raise InvariantError(
                f"pod {old.key} ({old.uid}) is on {known.node_name!r} in the cache,"
                f" updated as {new.uid} on {new.node_name!r}"
            )
        self._replace(new)
        if known.group_key != new.group_key:
            self.groups.remove_assigned(known)
        if new.group_key:
            self.groups.put_assigned(new)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod from its node. `pod`: its last known state, which need not name the node.

        Raises CacheError for an unknown pod, and InvariantError if it was bound to another node.
        """
        known = self._pods.get(pod.uid)
        if known is None:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is not in the cache, so it cannot be removed")
        if pod.node_name and pod.node_name != known.node_name and pod.uid not in self._assumed:
            raise InvariantError(
                f"pod {pod.key} ({pod.uid}) is on {known.node_name!r} in the cache,"
                f" removed from {pod.node_name!r}"
            )
        self._detach(known)
        if known.group_key:
            self.groups.remove_assigned(known)

    # --- nodes -------------------------------------------------------------------------------

    def add_node(self, node: Node) -> NodeInfo:
        """Add or replace a node; pods that were added to a placeholder of its name stay on it."""
        info = self._infos.get(node.name)
        if info is None:
            info = self._infos[node.name] = NodeInfo(node.name)
        generation = self._touch(info)
        old = info.node
        if old is None:
            self._node_count += 1
        if old is None or (old.uid and node.uid and old.uid != node.uid):
            info.born = generation
        if old is not None and _has_less(node.allocatable, old.allocatable):
            info.taken_generation = generation
        info.node = node
        info.node_generation = generation
        self.node_tree.put(node)
        return info

    def update_node(self, node: Node) -> NodeInfo:
        """Replace a node; an unknown node is added."""
        return self.add_node(node)

    def remove_node(self, name: str) -> None:
        """Remove a node. Its record stays as a placeholder while it has pods, whose removal may come late.

        Raises CacheError for an unknown node.
        """
        info = self._infos.get(name)
        if info is None or info.node is None:
            raise CacheError(f"node {name} is not in the cache, so it cannot be removed")
        info.node = None
        self.node_tree.remove(name)
        self._node_count -= 1
        info.node_generation = self._touch(info)
        self._drop_if_empty(info)

    # --- plumbing ----------------------------------------------------------------------------

    def _attach(self, pod: Pod, *, by_others: bool = False) -> None:
        info = self._infos.get(pod.node_name)
        if info is None:
            info = self._infos[pod.node_name] = NodeInfo(pod.node_name)
        info.add_pod(pod)
        info.usage_generation = self._touch(info)
        if by_others:
            info.taken_generation = info.generation
        self._pods[pod.uid] = pod

    def _replace(self, pod: Pod) -> None:
        """Store a newer record of a pod on the same node, and end its being assumed."""
        info = self._infos.get(pod.node_name)
        old = None if info is None else info.replace_pod(pod)
        if info is None or old is None:
            raise InvariantError(f"pod {pod.key} ({pod.uid}) is not on {pod.node_name!r}, where it was put")
        info.usage_generation = self._touch(info)
        if old.requests != pod.requests and _has_less(old.requests, pod.requests):
            info.taken_generation = info.generation
        self._pods[pod.uid] = pod
        self._assumed.discard(pod.uid)

    def _detach(self, pod: Pod) -> None:
        info = self._infos.get(pod.node_name)
        if info is None or info.remove_pod(pod.uid) is None:
            raise InvariantError(f"pod {pod.key} ({pod.uid}) is not on {pod.node_name!r}, where it was put")
        info.usage_generation = self._touch(info)
        del self._pods[pod.uid]
        self._assumed.discard(pod.uid)
        self._drop_if_empty(info)

    def _touch(self, info: NodeInfo) -> int:
        info.generation = self.generations.next()
        self._infos.move_to_end(info.name)
        return info.generation

    def _drop_if_empty(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            del self._infos[info.name]


def _has_less(amounts: Mapping[str, int], than: Mapping[str, int]) -> bool:
    """Return True if any amount of `than` is higher than the same one of `amounts`."""
    return any(amount > amounts.get(name, 0) for name, amount in than.items())


def _check_identity(pod: Pod) -> None:
    if not pod.uid:
        raise CacheError(f"pod {pod.key} has no uid")
    if not pod.node_name:
        raise CacheError(f"pod {pod.key} ({pod.uid}) names no node")
