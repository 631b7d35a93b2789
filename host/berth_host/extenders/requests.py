"""The bodies of requests to extenders, with the field names and nulls of kube-scheduler.

Nodes are encoded once and kept until their objects change, so that a request with all nodes costs little more
than copying its bytes. Called by `extenders`.
Source: `k8s.io/kube-scheduler/extender/v1/types.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

import numpy as np
import orjson
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.model.compact_json import json_bytes

_LEFT_OUT: Final = frozenset({"kind", "apiVersion"})
"""An object in a request has neither, as in a list of the API server."""


_MOST_JOINED: Final = 4
"""Filter and prioritize of two extenders ask about four sets of nodes. Each may take tens of megabytes."""


class Bodies:
    """Makes the bodies of requests. One for all extenders, which then share the encoded nodes."""

    def __init__(self) -> None:
        self._names = _Column(lambda node: orjson.dumps(node.name), lambda nodes: nodes.names_identity)
        self._nodes = _Column(_node_bytes, lambda nodes: nodes.node_version)
        self._pod: tuple[Pod, bytes] | None = None

    def about_nodes(self, pod: Pod, nodes: NodeTable, rows: NDArray[np.intp], *, by_name: bool) -> bytes:
        """Return the ExtenderArgs of filter and prioritize about the nodes in `rows`.

        `by_name`: the extender has a copy of the nodes, and gets their names.
        """
        slots = nodes.slots.take(rows)
        head = b'{"Pod":' + self.pod(pod)
        if by_name:
            return b'%b,"Nodes":null,"NodeNames":[%b]}' % (head, self._names.joined(nodes, slots))
        listed = self._nodes.joined(nodes, slots)
        return b'%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (head, listed)

    def about_victims(
        self, pod: Pod, victims: Mapping[str, tuple[Sequence[Pod], int]], *, by_uid: bool
    ) -> bytes:
        """Return the ExtenderPreemptionArgs. `victims`: the pods and the number of broken budgets, by node.

        `by_uid`: the extender has a copy of the pods, and gets their uids.
        """
        parts = []
        for name, (pods, violations) in victims.items():
            listed = b",".join(
                b'{"UID":%b}' % orjson.dumps(victim.uid) if by_uid else _victim_bytes(victim)
                for victim in pods
            )
            pods_json = b"[%b]" % listed if pods else b"null"
            parts.append(
                b'%b:{"Pods":%b,"NumPDBViolations":%d}' % (orjson.dumps(name), pods_json, violations)
            )
        by_node = b"{%b}" % b",".join(parts)
        full, meta = (b"null", by_node) if by_uid else (by_node, b"null")
        return b'{"Pod":%b,"NodeNameToVictims":%b,"NodeNameToMetaVictims":%b}' % (self.pod(pod), full, meta)

    def binding(self, pod: Pod, node_name: str) -> bytes:
        """Return the ExtenderBindingArgs."""
        return orjson.dumps(
            {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node_name}
        )

    def pod(self, pod: Pod) -> bytes:
        """Return a pod as JSON. The calls of one attempt share the bytes."""
        kept = self._pod
        if kept is None or kept[0] is not pod:
            kept = self._pod = (pod, _object_bytes(pod.object))
        return kept[1]


class _Column:
    """One piece of JSON for each node of a snapshot, by slot; made anew for nodes that changed.

    The pieces of the latest requests are kept joined: most pods have the same nodes as the pod before.
    """

    def __init__(self, encode: Callable[[Node], bytes], version: Callable[[NodeTable], Hashable]) -> None:
        """Make an empty column. `version`: returns a value that changes when a piece may have changed."""
        self._encode = encode
        self._version = version
        self._seen: Hashable = None
        self._of: NDArray[np.object_] = np.zeros(0, dtype=np.object_)
        self._pieces: NDArray[np.object_] = np.zeros(0, dtype=np.object_)
        self._joined: dict[bytes, bytes] = {}

    def joined(self, nodes: NodeTable, slots: NDArray[np.intp]) -> bytes:
        """Return the pieces of the nodes in `slots`, with commas between them."""
        version = self._version(nodes)
        if self._seen != version:
            self._seen = version
            self._joined.clear()
        key = slots.tobytes()
        joined = self._joined.get(key)
        if joined is None:
            if len(self._joined) >= _MOST_JOINED:
                del self._joined[next(iter(self._joined))]
            joined = self._joined[key] = b",".join(self._pieces_of(nodes, slots))
        return joined

    def _pieces_of(self, nodes: NodeTable, slots: NDArray[np.intp]) -> list[bytes]:
        count = nodes.slot_count
        if len(self._of) < count:
            more = np.full(count - len(self._of), None, dtype=np.object_)
            self._of = np.concatenate([self._of, more])
            self._pieces = np.concatenate([self._pieces, more])
        records = nodes.columns.nodes
        for slot in slots.tolist():
            node = records[slot]
            if self._of[slot] is not node:
                self._of[slot], self._pieces[slot] = node, self._encode(node)
        pieces: list[bytes] = self._pieces.take(slots).tolist()
        return pieces


def _victim_bytes(pod: Pod) -> bytes:
    encoded = _object_bytes(pod.object)
    if pod.object is None or not pod.object.is_parsed or pod.object.get("spec.nodeName"):
        return encoded
    # An assumed pod: the object is older than its place. Objects of pods that the API server shows on a node
    # are kept as bytes alone.
    whole = dict(pod.object.parsed)
    whole["spec"] = {**whole["spec"], "nodeName": pod.node_name}
    return _object_bytes(KubeObject("v1", "Pod", parsed=whole))


def _node_bytes(node: Node) -> bytes:
    return (
        _object_bytes(node.object)
        if node.object is not None
        else orjson.dumps({"metadata": {"name": node.name}})
    )


def _object_bytes(item: KubeObject | None) -> bytes:
    if item is None:
        return b"null"
    was_parsed = item.is_parsed
    encoded = json_bytes({key: value for key, value in item.parsed.items() if key not in _LEFT_OUT})
    if not was_parsed:
        item.release()
    return encoded
