"""`ObjectStores`: every object that the watches showed, as of this moment.

Written by the event handlers; read by the failure handler ("is the pod still there?"), by
`handle.objects` in process, and by the snapshot's update.
Source: client-go informer stores as kube-scheduler uses them (`eventhandlers.go`, listers), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore

from berth_host.cache.generations import Generations
from berth_host.cache.resources import kind_of
from berth_host.model.compact_json import compact_json


class ObjectStores:
    """Pods by key and uid, nodes by name, all else by kind, namespace and name.

    Pods and nodes are kept as records. Every call is safe to repeat: putting replaces, removing an unknown
    object returns None.
    """

    def __init__(self, generations: Generations | None = None) -> None:
        self.generations = generations if generations is not None else Generations()
        self._pods: dict[str, Pod] = {}
        self._pods_by_uid: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._kinds: dict[str, ObjectStore] = {}
        self._told_of_leaving: list[Callable[[str], None]] = []
        self.changed_at = 0
        """The generation at which an object that is neither pod nor node changed last."""

    # --- pods --------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> Pod | None:
        """Store a pod; returns the pod that had its name, which may have another uid.

        Of a pod on a node the JSON bytes are kept and the parsed form is let go: there are many, and
        no code reads more than their record.
        """
        old = self._pods.get(pod.key)
        if old is not None and old.uid != pod.uid:
            self._pods_by_uid.pop(old.uid, None)
        if pod.node_name and pod.object is not None:
            pod.object.release(compact_json)
        self._pods[pod.key] = pod
        self._pods_by_uid[pod.uid] = pod
        if old is not None and old.uid != pod.uid:
            self._leaves(old.uid)
        if pod.terminating:
            self._leaves(pod.uid)
        return old

    def remove_pod(self, pod: Pod) -> Pod | None:
        """Drop the pod with this name and uid; a younger one of the same name stays."""
        known = self._pods.get(pod.key)
        if known is None or (pod.uid and known.uid != pod.uid):
            return None
        del self._pods[pod.key]
        self._pods_by_uid.pop(known.uid, None)
        self._leaves(known.uid)
        return known

    def on_leaving(self, told: Callable[[str], None]) -> None:
        """Call `told` with the uid of every pod that is gone or has begun to leave, from now on."""
        self._told_of_leaving.append(told)

    def _leaves(self, uid: str) -> None:
        for told in self._told_of_leaving:
            told(uid)

    def pod(self, key: str) -> Pod | None:
        """The pod called `namespace/name`, or None."""
        return self._pods.get(key)

    def pod_by_uid(self, uid: str) -> Pod | None:
        """The pod with `uid`, or None."""
        return self._pods_by_uid.get(uid)

    def pods(self) -> Iterator[Pod]:
        """All pods, bound or not, oldest first."""
        return iter(self._pods.values())

    # --- nodes -------------------------------------------------------------------------------

    def put_node(self, node: Node) -> Node | None:
        """Store a node; returns the node that had its name."""
        old = self._nodes.get(node.name)
        self._nodes[node.name] = node
        return old

    def remove_node(self, name: str) -> Node | None:
        """Drop a node; None if there was none."""
        return self._nodes.pop(name, None)

    def node(self, name: str) -> Node | None:
        """The node called `name`, or None."""
        return self._nodes.get(name)

    def nodes(self) -> Iterator[Node]:
        """All nodes."""
        return iter(self._nodes.values())

    # --- all other kinds ------------------------------------------------------------------------

    def put(self, kind: str, item: KubeObject) -> KubeObject | None:
        """Store an object of `kind` (as the watch names it); returns the object that had its name."""
        store = self.of_kind(kind)
        ref = item.ref
        old = store.get(ref.name, ref.namespace)
        self.changed_at = self.generations.next()
        store.put(ref, item, self.changed_at)
        return old

    def remove(self, kind: str, ref: ObjectRef) -> KubeObject | None:
        """Drop an object; None if there was none."""
        store = self.of_kind(kind)
        if store.find(ref.namespace, ref.name) is None:
            return None
        self.changed_at = self.generations.next()
        old = store.remove(ref.namespace, ref.name, self.changed_at)
        return None if old is None else old.object

    def get(self, kind: str, name: str, namespace: str = "") -> KubeObject | None:
        """One object, or None."""
        return self.of_kind(kind).get(name, namespace)

    def of_kind(self, kind: str) -> ObjectStore:
        """The store of a kind, empty before its first object; a reader may keep it."""
        store = self._kinds.get(kind)
        if store is None:
            store = self._kinds[kind] = ObjectStore()
        return store

    def by_kind(self) -> Iterable[tuple[str, ObjectStore]]:
        """Every kind that was seen, with its store."""
        return self._kinds.items()

    def of_resource(self, resource: str) -> ObjectStore:
        """The store of a resource as `Need` spells it: `storage.k8s.io/csinodes`."""
        return self.of_kind(kind_of(resource))
