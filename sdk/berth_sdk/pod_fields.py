"""The fields of a pod that a plugin's answers follow from: the contract's PodField, and how to read each.

A plugin declares them in `Plugin.sign_fields`. In the plugin's own process the fields are the signature
(`runtime`). The host of a served plugin tells waiting pods apart by these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from berth_sdk.pod import Pod
from berth_sdk.signature import spec_wishes, wishes
from berth_sdk.spec_reads import is_token_volume

Read: TypeAlias = Callable[[Pod], Hashable]


class PodField(Enum):
    """The fields; the numbers are the contract's. Fields of the whole pod are empty where the plugin does not
    get the whole pod.
    """

    NAMESPACE = 1
    """metadata.namespace."""
    LABELS = 2
    """metadata.labels, all of them."""
    ANNOTATIONS = 3
    """metadata.annotations, all of them."""
    OWNER = 4
    """The controller that made the pod."""
    PRIORITY = 5
    """spec.priority, and whether the pod may preempt."""
    REQUESTS = 6
    """The sum of the containers' requests, with overhead and defaults."""
    NODE_SELECTOR = 7
    """spec.nodeSelector."""
    AFFINITY = 8
    """spec.affinity as it is written: node affinity and pod affinity."""
    TOPOLOGY_SPREAD = 9
    """spec.topologySpreadConstraints as they are written."""
    TOLERATIONS = 10
    """spec.tolerations."""
    NODE_NAME = 11
    """spec.nodeName: the only node that the pod accepts."""
    NOMINATED_NODE = 12
    """status.nominatedNodeName."""
    SCHEDULING_GATES = 13
    """Names of the gates that are still closed."""
    HOST_PORTS = 14
    """Ports of the node that the containers claim."""
    IMAGES = 15
    """The images of the containers, init containers and image volumes."""
    VOLUMES = 16
    """spec.volumes, and the PersistentVolumeClaims of the volumes, generated ones included."""
    RESOURCE_CLAIMS = 17
    """spec.resourceClaims, and the claims made for the pod."""
    SCHEDULER_NAME = 18
    """spec.schedulerName."""
    SPEC = 19
    """All of the spec but the node."""


ALL_FIELDS: Final = tuple(PodField)
"""All of a pod's wishes (`berth_sdk.signature.wishes`)."""


def _items(values: Mapping[str, object]) -> Hashable:
    # Sorted: a map that came over the wire has no order.
    return tuple(sorted(values.items()))


def _requests(pod: Pod) -> Hashable:
    return _items(pod.requests), _items(pod.non_zero_requests), _items(pod.score_requests)


def _volumes(pod: Pod) -> Hashable:
    volumes = [one for one in pod.spec.get("volumes") or () if not is_token_volume(one)]
    return repr(volumes), pod.claims


def _written(key: str) -> Read:
    """Return a function that reads the spec's value of `key` as text. A missing value differs from an empty
    one.
    """

    def read(pod: Pod) -> Hashable:
        written = pod.spec.get(key)
        return "" if written is None else repr(written)

    return read


_claims_written = _written("resourceClaims")
_READ: Final[Mapping[PodField, Read]] = {
    PodField.NAMESPACE: lambda pod: pod.namespace,
    PodField.LABELS: lambda pod: _items(pod.labels),
    PodField.ANNOTATIONS: lambda pod: _items(pod.annotations),
    PodField.OWNER: lambda pod: pod.owner,
    PodField.PRIORITY: lambda pod: (pod.priority, pod.never_preempts),
    PodField.REQUESTS: _requests,
    PodField.NODE_SELECTOR: lambda pod: (_items(pod.node_selector), pod.spec.get("nodeSelector") is None),
    PodField.AFFINITY: _written("affinity"),
    PodField.TOPOLOGY_SPREAD: _written("topologySpreadConstraints"),
    PodField.TOLERATIONS: lambda pod: pod.tolerations,
    PodField.NODE_NAME: lambda pod: pod.node_name,
    PodField.NOMINATED_NODE: lambda pod: pod.nominated_node,
    PodField.SCHEDULING_GATES: lambda pod: pod.scheduling_gates,
    PodField.HOST_PORTS: lambda pod: pod.host_ports,
    PodField.IMAGES: lambda pod: pod.images,
    PodField.VOLUMES: _volumes,
    PodField.RESOURCE_CLAIMS: lambda pod: (_claims_written(pod), pod.generated_claims),
    PodField.SCHEDULER_NAME: lambda pod: pod.scheduler_name,
    PodField.SPEC: spec_wishes,
}
_BESIDE_SPEC: Final = frozenset(
    {
        PodField.NAMESPACE,
        PodField.LABELS,
        PodField.ANNOTATIONS,
        PodField.OWNER,
        PodField.NODE_NAME,
        PodField.NOMINATED_NODE,
        PodField.VOLUMES,
        PodField.RESOURCE_CLAIMS,
    }
)
"""The fields in which two pods with the same spec may differ. The spec's node name is one of them."""


def are_of_spec(fields: Iterable[PodField]) -> bool:
    """Return True if pods with equal specs are equal in all of `fields`."""
    return _BESIDE_SPEC.isdisjoint(fields)


def signing(fields: Iterable[PodField]) -> Read:
    """Return a function that returns equal values for pods that are equal in all of `fields`.

    >>> sign = signing([PodField.NAMESPACE, PodField.REQUESTS])
    >>> sign(Pod(name="web-1", labels={"n": "1"})) == sign(Pod(name="web-2", labels={"n": "2"}))
    True
    >>> sign(Pod(name="web-1")) == sign(Pod(name="web-1", requests={"cpu": 500}))
    False
    """
    chosen = frozenset(fields)
    if len(chosen) == len(ALL_FIELDS):
        return wishes
    reads = [read for field, read in _READ.items() if field in chosen]
    if len(reads) == 1:
        return reads[0]
    return lambda pod: tuple([read(pod) for read in reads])
