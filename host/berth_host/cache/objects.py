"""`ObjectStores`: every object that the watches have shown, in its newest version.

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
from berth_host.model.compact_json import compact_json
from berth_host.model.resources import kind_of


class ObjectStores:
    """The objects: pods by key and uid, nodes by name, all others by kind, namespace and name.

    Pods and nodes are stored as records. Every call may be repeated: `put` replaces, removing an unknown
    object returns None.
    """

    def __init__(self, generations: Generations | None = None) -> None:
        self.generations = generations if generations is not None else Generations()
        self._pods: dict[str, Pod] = {}
        self._pods_by_uid: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._kinds: dict[str, ObjectStore] = {}
        self._told_of_leaving: list[Callable[[str], None]] = []
        self._unreadable: dict[tuple[str, str], ObjectRef] = {}
        self.changed_at = 0
        """The generation of the last change of an object that is neither pod nor node."""

    # --- pods --------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> Pod | None:
        """Store a pod; return the pod that had its name, which may have another uid.

        Of a pod on a node only the JSON bytes are kept, not the parsed form: there are many such pods, and
        code reads only their records.
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
        """Remove the pod with this name and uid; a newer one of the same name stays."""
        known = self._pods.get(pod.key)
        if known is None or (pod.uid and known.uid != pod.uid):
            return None
        del self._pods[pod.key]
        self._pods_by_uid.pop(known.uid, None)
        self._leaves(known.uid)
        return known

    def on_leaving(self, told: Callable[[str], None]) -> None:
        """Call `told` with the uid of every pod that is deleted or starts terminating, from now on."""
        self._told_of_leaving.append(told)

    def _leaves(self, uid: str) -> None:
        for told in self._told_of_leaving:
            told(uid)

    def pod(self, key: str) -> Pod | None:
        """Return the pod called `namespace/name`, or None."""
        return self._pods.get(key)

    def pod_by_uid(self, uid: str) -> Pod | None:
        """Return the pod with `uid`, or None."""
        return self._pods_by_uid.get(uid)

    def pods(self) -> Iterator[Pod]:
        """Return all pods, bound or not, oldest first."""
        return iter(self._pods.values())

    # --- nodes -------------------------------------------------------------------------------

    def put_node(self, node: Node) -> Node | None:
        """Store a node; return the node that had its name, or None."""
        old = self._nodes.get(node.name)
        self._nodes[node.name] = node
        return old

    def remove_node(self, name: str) -> Node | None:
        """Remove and return a node; None if there was none."""
        return self._nodes.pop(name, None)

    def node(self, name: str) -> Node | None:
        """Return the node called `name`, or None."""
        return self._nodes.get(name)

    def nodes(self) -> Iterator[Node]:
        """Return all nodes."""
        return iter(self._nodes.values())

    # --- what cannot be read ----------------------------------------------------------------------

    def put_unreadable(self, kind: str, ref: ObjectRef) -> None:
        """Take note of a version of an object that cannot be read; the version before it stays stored."""
        self._unreadable[kind, ref.key] = ref

    def remove_unreadable(self, kind: str, ref: ObjectRef) -> None:
        """Forget that an object cannot be read: it was read, or it is gone."""
        self._unreadable.pop((kind, ref.key), None)

    def unreadable(self, kind: str, ref: ObjectRef) -> ObjectRef | None:
        """Return the newest version of an object, if it cannot be read; else None."""
        return self._unreadable.get((kind, ref.key))

    # --- all other kinds ------------------------------------------------------------------------

    def put(self, kind: str, item: KubeObject) -> KubeObject | None:
        """Store an object of `kind`, as the watch names it; return the object that had its name, or None."""
        store = self.of_kind(kind)
        ref = item.ref
        old = store.get(ref.name, ref.namespace)
        self.changed_at = self.generations.next()
        store.put(ref, item, self.changed_at)
        return old

    def remove(self, kind: str, ref: ObjectRef) -> KubeObject | None:
        """Remove and return an object; None if there was none."""
        store = self.of_kind(kind)
        if store.find(ref.namespace, ref.name) is None:
            return None
        self.changed_at = self.generations.next()
        old = store.remove(ref.namespace, ref.name, self.changed_at)
        return None if old is None else old.object

    def get(self, kind: str, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        return self.of_kind(kind).get(name, namespace)

    def of_kind(self, kind: str) -> ObjectStore:
        """Return the store of a kind, empty before its first object; callers may keep it."""
        store = self._kinds.get(kind)
        if store is None:
            store = self._kinds[kind] = ObjectStore()
        return store

    def by_kind(self) -> Iterable[tuple[str, ObjectStore]]:
        """Return every kind that was stored or requested, with its store."""
        return self._kinds.items()

    def of_resource(self, resource: str) -> ObjectStore:
        """Return the store of a resource as `Need` spells it: `storage.k8s.io/csinodes`."""
        return self.of_kind(kind_of(resource))
