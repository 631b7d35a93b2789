"""`PluginHost`: one plugin on a hand-made cluster, called as a host calls it, in the same process.

For an author's unit tests: no server, no event loop, no berth host. Methods may be plain or async; answers
are read, checked and normalised as the real transports do it.

    host = PluginHost(AvoidSpot, nodes=[make_node("n1", labels={"pool": "spot"}), make_node("n2")])
    attempt = host.attempt(make_pod("web"))
    assert attempt.filter()["n1"].message == "node is a spot node"
    assert attempt.score() == {"n2": 100}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key
from inspect import isawaitable
from typing import Any, Final, TypeVar

from berth_sdk.errors import PluginAnswerError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import Answer
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.serve.lanes import EventLoopThread
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing.attempt import Attempt
from berth_sdk.testing.builders import make_table
from berth_sdk.testing.handle import RecordingHandle

T = TypeVar("T")
_LOOP: Final = EventLoopThread()
"""For `async def` methods; started by the first one, ends with the process."""


class PluginHost:
    """One plugin and the cluster it sees.

    `nodes` and `pods` (on nodes, or not) may be changed between calls with `put_node`, `put_pod` and
    `remove_pod`; `objects` are JSON objects by declared resource. `handle` notes the plugin's calls.

    >>> class First:
    ...     def filter(self, state, pod, node):
    ...         return None if node.name == "n1" else Status.unschedulable("not the first")
    >>> from berth_sdk.testing import make_node, make_pod
    >>> host = PluginHost(First, nodes=[make_node("n1"), make_node("n2")])
    >>> [name for name, status in host.attempt(make_pod("web")).filter().items() if status.is_success]
    ['n1']
    """

    def __init__(
        self,
        plugin: type,
        args: Mapping[str, Any] | None = None,
        *,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        objects: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        """Raises PluginDefinitionError for a class that cannot be called, PluginArgsError for its args."""
        self._nodes = {node.name: node for node in nodes}
        self._pods = {pod.uid: pod for pod in pods}
        self._generation = 0
        self._attempts = 0
        self._stores: dict[str, ObjectStore] = {}
        self.handle = RecordingHandle(self.table, self._stores)
        self.runtime = PluginRuntime(make_plugin(plugin, args or {}, self.handle), handle=self.handle)
        self.handle.plugin = self.runtime.descriptor.name
        self.handle.forget = self.runtime.recalled.forget
        for need in self.runtime.descriptor.needs:
            if need.kind is NeedKind.OBJECT:
                self._stores[need.resource] = ObjectStore()
        for resource, items in (objects or {}).items():
            for item in items:
                self.put_object(resource, item)

    # --- the cluster ---------------------------------------------------------------------------

    def table(self) -> NodeTable:
        """The snapshot as it is now."""
        return make_table(self._nodes.values(), self._pods.values())

    def put_node(self, node: Node) -> None:
        """Add or replace a node."""
        self._nodes[node.name] = node

    def put_pod(self, pod: Pod) -> None:
        """Add or replace a pod; it counts on the node that it names."""
        self._pods[pod.uid] = pod

    def remove_pod(self, pod: Pod) -> None:
        """Take a pod away."""
        self._pods.pop(pod.uid, None)

    def put_object(self, resource: str, item: Mapping[str, Any]) -> KubeObject:
        """Add or replace an object of a declared resource. Raises KeyError for others."""
        self._generation += 1
        kube_object = KubeObject.of(item)
        self._stores[resource].put(kube_object.ref, kube_object, self._generation)
        return kube_object

    def get_object(self, resource: str, name: str, namespace: str = "") -> KubeObject | None:
        """An object of a declared resource, or None."""
        return self._stores[resource].get(name, namespace)

    # --- the queue -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        """May the pod enter the queue?"""
        return self.run(self.runtime.pre_enqueue(QueuedPod(pod=pod)))

    def order(self, pods: Iterable[QueuedPod | Pod]) -> list[Pod]:
        """The pods in the order that the plugin gives them, by key or by comparison."""
        queued = [pod if isinstance(pod, QueuedPod) else QueuedPod(pod=pod) for pod in pods]
        if self.runtime.descriptor.less_only:
            key: Callable[[QueuedPod], Any] = cmp_to_key(self._compared)
        else:
            keys = {id(pod): self.run(self.runtime.sort_key(pod)) for pod in queued}
            key = lambda pod: keys[id(pod)]  # noqa: E731 (one of two ways to order)
        return [item.pod for item in sorted(queued, key=key)]

    def hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """May the event help the pod?"""
        return self.run(self.runtime.queueing_hint(event, pod))

    # --- cycles --------------------------------------------------------------------------------

    def attempt(self, pod: Pod) -> Attempt:
        """One attempt to schedule `pod`, against the cluster as it is now."""
        self._attempts += 1
        return Attempt(self, pod, f"cycle-{self._attempts}")

    def run(self, answer: Answer[T]) -> T:
        """The answer, awaited on a loop of its own where the method is async."""
        return _LOOP.wait_for(answer, _Unending()) if isawaitable(answer) else answer

    def decided(self, point: str, answer: Answer[T | None]) -> T:
        """The answer of a point where a decision is due. Raises PluginAnswerError for None."""
        decision = self.run(answer)
        if decision is None:
            raise PluginAnswerError(
                f"{self.runtime.descriptor.name}.{point} answered None: a decision is due, answer a Status"
            )
        return decision

    def _compared(self, first: QueuedPod, second: QueuedPod) -> int:
        return int(self.runtime.less(second, first)) - int(self.runtime.less(first, second))


class _Unending:
    """A call that is never cancelled."""

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return True
