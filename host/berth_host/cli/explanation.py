"""A finished simulation and a pod -> why it is where it is, as an `explain.Explanation`.

Called by `why`. The missing resources are computed from the cluster as it is at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.cli.simulation import Finished
from berth_host.explain.diagnosis import Diagnosis
from berth_host.explain.explanation import Explanation, explanation_of, rejected_nodes, too_small_nodes
from berth_host.explain.nearest_fit import Shortage, shortages


def explain(done: Finished, key: str) -> Explanation:
    """Everything about the pod `namespace/name`, which must be in the input."""
    node = next((item.node for item in done.report.placements if item.pod == key), "")
    pending = next((item for item in done.report.pending if item.pod == key), None)
    diagnosis = done.host.diagnoses.find(key)
    message = pending.message if pending else _placed_text(node, diagnosis)
    return explanation_of(key, node, message, diagnosis, _nearest(done, key, diagnosis) if pending else ())


def _placed_text(node: str, diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return f"was on {node} in the input already"
    return f"placed on {node}"


def _nearest(done: Finished, key: str, diagnosis: Diagnosis | None) -> Sequence[Shortage]:
    namespace, _, name = key.partition("/")
    stored = done.server.get("pods", ObjectRef(namespace=namespace, name=name))
    too_small = too_small_nodes(rejected_nodes(diagnosis))
    if stored is None or not too_small:
        return []
    nodes = [Node.from_object(obj) for obj in done.server.list("nodes") if obj.ref.name in too_small]
    pods = [Pod.from_object(obj) for obj in done.server.list("pods") if obj.get("spec.nodeName")]
    return shortages(Pod.from_object(stored), nodes, pods)
