"""`Preemptor`: a pod or a group for which other pods are evicted. Made by the cycles, read by `evictions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup

POD: Final = "pod"
CLUSTER: Final = "cluster"
"""The place of a group's preemption, in the texts of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """A pod, or a group with those of its members that have no node.

    - `uid`: the pod's, or that of the root of the group's tree. `ref`, `kind`: the same object.
    - `type`: `pod`, `podgroup` or `compositepodgroup`, as kube-scheduler's texts name it.
    - `key`: the name for logs and reports. `pods`: the pods that wait, at least one.
    - `nodes`: the nominated node of each pod, by uid. `place`: the nominated node, or CLUSTER for a group.
    """

    uid: str
    ref: ObjectRef
    kind: str
    type: str
    key: str
    scheduler_name: str
    priority: int
    pods: Sequence[Pod]
    nodes: Mapping[str, str]
    place: str

    @staticmethod
    def of_pod(pod: Pod, node_name: str) -> Preemptor:
        """Return a pod as preemptor; `node_name`: where it is nominated."""
        return Preemptor(
            uid=pod.uid,
            ref=pod.ref,
            kind="Pod",
            type=POD,
            key=pod.key,
            scheduler_name=pod.scheduler_name,
            priority=pod.priority,
            pods=(pod,),
            nodes={pod.uid: node_name},
            place=node_name,
        )

    @staticmethod
    def of_group(root: PodGroup, pods: Sequence[Pod], nodes: Mapping[str, str]) -> Preemptor:
        """Return a group as preemptor. `pods`: its members without a node, at least one."""
        return Preemptor(
            uid=root.uid,
            ref=root.ref,
            kind=root.api_kind,
            type=root.api_kind.lower(),
            key=root.key,
            scheduler_name=pods[0].scheduler_name,
            priority=root.priority_among(pods),
            pods=pods,
            nodes=nodes,
            place=CLUSTER,
        )
