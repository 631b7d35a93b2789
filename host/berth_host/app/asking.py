"""A manifest of a pod, as a user writes it -> the pod as the API server would store it, for a question.

Called by `Host.ask_fit`. A pod that is asked about passes the defaults and checks of the embedded cluster, as
the API server's would change the answer: tolerations, priorities of the system's classes, requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from berth_sdk.pod import Pod

from berth_host.errors.cluster import ClusterError
from berth_host.errors.endpoints import QuestionError
from berth_host.model.clock import Clock, ManualClock

_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")


def pod_of(manifest: Mapping[str, Any], clock: Clock) -> Pod:
    """Return the pod, without a node, under a uid of its own. Raises QuestionError with every problem.

    A pod of a cluster may be given as it is: its node, its status and its times are left out.
    """
    # Here, as a host that is never asked needs no embedded cluster.
    from berth_host.cluster.memory.admission.gatekeeping import Gatekeeping
    from berth_host.cluster.memory.server import ApiServer

    if (manifest.get("apiVersion"), manifest.get("kind")) != ("v1", "Pod"):
        raise QuestionError("the question must be a Pod: an object with apiVersion: v1 and kind: Pod")
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise QuestionError("the pod needs metadata and spec, each of them a map")
    kept = {name: metadata[name] for name in _KEPT if name in metadata}
    if "name" not in kept and isinstance(metadata.get("generateName"), str):
        kept["name"] = f"{metadata['generateName']}x"
    written = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", **kept},
        "spec": {name: value for name, value in spec.items() if name != "nodeName"},
    }
    server = ApiServer(ManualClock(clock.now_s()), Gatekeeping())
    try:
        stored = server.create(written)
    except ClusterError as err:
        cure = ""
        if "PriorityClass" in str(err):
            cure = "; classes of the cluster are not read here: give spec.priority, the value of the class"
        raise QuestionError(f"{err}{cure}") from err
    return replace(Pod.from_object(stored), uid=str(uuid.uuid4()))
