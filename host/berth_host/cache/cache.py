"""`Cache`: every node with its pods and totals, as of this moment, reserved pods included.

Watch events (through the event handlers), the scheduling cycle (assume) and binding tasks (forget) write
to it; `Snapshot` takes over the changes at the start of a cycle.
Source: kube-scheduler `backend/cache/cache.go`, v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Set

from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.cache.generations import Generations
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.node_tree import NodeTree
from berth_host.errors.state import CacheError, InvariantError


class Cache:
    """A pod: unknown -assume-> assumed -add_pod-> added -remove_pod-> unknown.

    assumed -forget-> unknown (the bind failed); unknown -add_pod-> added (someone else bound it).
    Assumed pods never expire. Pods are told apart by uid. A step that is not drawn raises CacheError and
    changes nothing; the caller logs it and goes on: a second add of the same pod, an update or removal of an
    unknown pod: these are duplicates or late events.
    """

    def __init__(self, generations: Generations | None = None) -> None:
        self.generations = generations if generations is not None else Generations()
        # Oldest change first, so that a snapshot reads only the tail that is newer than itself.
        self._infos: OrderedDict[str, NodeInfo] = OrderedDict()
        self._pods: dict[str, Pod] = {}
        self._assumed: set[str] = set()
        self._node_count = 0
        self.node_tree = NodeTree()

    # --- reading -----------------------------------------------------------------------------

    @property
    def node_count(self) -> int:
        """Nodes; placeholders do not count."""
        return self._node_count

    @property
    def pod_count(self) -> int:
        """Pods on nodes, assumed ones included."""
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        """Pods that are assumed and not seen bound yet."""
        return len(self._assumed)

    @property
    def assumed_uids(self) -> Set[str]:
        """The uids of the assumed pods, as they are at any moment."""
        return self._assumed

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod is reserved on a node and not seen bound yet."""
        return uid in self._assumed

    def get_pod(self, uid: str) -> Pod | None:
        """The pod as the cache has it, or None."""
        return self._pods.get(uid)

    def node_info(self, name: str) -> NodeInfo | None:
        """The record of a node, placeholders included; read-only for callers."""
        return self._infos.get(name)

    def node_infos(self) -> Iterator[NodeInfo]:
        """All records, placeholders included, the longest unchanged first."""
        return iter(self._infos.values())

    def changed_since(self, generation: int) -> list[NodeInfo]:
        """The records that changed after `generation`, oldest change first."""
        changed: list[NodeInfo] = []
        for info in reversed(self._infos.values()):
            if info.generation <= generation:
                break
            changed.append(info)
        changed.reverse()
        return changed

    # --- pods --------------------------------------------------------------------------------

    def assume(self, pod: Pod) -> None:
        """Reserve: count `pod` (with its chosen `node_name`) on its node before the bind.

        Raises CacheError when the pod is here already.
        """
        _check_identity(pod)
        if pod.uid in self._pods:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is in the cache, so it cannot be assumed")
        self._attach(pod)
        self._assumed.add(pod.uid)

    def forget(self, pod: Pod) -> None:
        """Undo `assume`; a pod that is not here is fine.

        Raises CacheError when the pod was assumed on another node, or is not only assumed.
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

    def forget_if_assumed(self, pod: Pod) -> None:
        """As `forget`, for a pod that the watch may have shown bound meanwhile: that one stays.

        Raises CacheError when the pod is assumed on another node.
        """
        if pod.uid in self._assumed:
            self.forget(pod)

    def add_pod(self, pod: Pod) -> str | None:
        """The watch shows `pod` on a node: confirm an assumed pod, or take it up.

        Answers the node that an assumed pod was reserved on when it is bound to another one (worth a
        warning), else None. Raises CacheError when the pod is confirmed already.
        """
        _check_identity(pod)
        known = self._pods.get(pod.uid)
        if known is None:
            self._attach(pod)
            return None
        if pod.uid not in self._assumed:
            raise CacheError(f"pod {pod.key} ({pod.uid}) is in the cache, so it cannot be added again")
        if known.node_name == pod.node_name:
            self._replace(pod)
            return None
        self._detach(known)
        self._attach(pod)
        return known.node_name

    def update_pod(self, old: Pod, new: Pod) -> None:
        """A bound pod changed. `old` names the pod; the cache's own record is uncounted.

        Raises CacheError for a pod that is not here or only assumed (its add comes first), InvariantError
        for a pod that changed its node, which the API server never does.
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

    def remove_pod(self, pod: Pod) -> None:
        """A pod left its node. `pod` is the last known state, which may not name the node any more.

        Raises CacheError for a pod that is not here, InvariantError when it was bound to another node.
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

    # --- nodes -------------------------------------------------------------------------------

    def add_node(self, node: Node) -> NodeInfo:
        """A node came, or came again; pods that named it before are on it already."""
        info = self._infos.get(node.name)
        if info is None:
            info = self._infos[node.name] = NodeInfo(node.name)
        generation = self._touch(info)
        old = info.node
        if old is None:
            self._node_count += 1
        if old is None or (old.uid and node.uid and old.uid != node.uid):
            info.born = generation
        info.node = node
        info.node_generation = generation
        self.node_tree.put(node)
        return info

    def update_node(self, node: Node) -> NodeInfo:
        """A node changed; an unknown node is added."""
        return self.add_node(node)

    def remove_node(self, name: str) -> None:
        """A node left. Its record stays as a placeholder while pods name it: their removal may come late.

        Raises CacheError for a node that is not here.
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

    def _attach(self, pod: Pod) -> None:
        info = self._infos.get(pod.node_name)
        if info is None:
            info = self._infos[pod.node_name] = NodeInfo(pod.node_name)
        info.add_pod(pod)
        info.usage_generation = self._touch(info)
        self._pods[pod.uid] = pod

    def _replace(self, pod: Pod) -> None:
        """A newer record of a pod that is on the same node; it is not only assumed any more."""
        info = self._infos.get(pod.node_name)
        if info is None or info.replace_pod(pod) is None:
            raise InvariantError(f"pod {pod.key} ({pod.uid}) is not on {pod.node_name!r}, where it was put")
        info.usage_generation = self._touch(info)
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


def _check_identity(pod: Pod) -> None:
    if not pod.uid:
        raise CacheError(f"pod {pod.key} has no uid")
    if not pod.node_name:
        raise CacheError(f"pod {pod.key} ({pod.uid}) names no node")
