"""Plays steps on the embedded cluster, whose validation is the judge."""

from __future__ import annotations

import json
from typing import Any

from berth_host.errors.cluster import ClusterError
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.kinds import kind_of
from berth_sim.cluster.server import ApiServer
from support.fuzzed.objects import Step
from support.fuzzed.trees import encoded


def is_admitted(server: ApiServer, step: Step) -> bool:
    """Do a step on an embedded cluster; return False if the cluster refuses it, or Python cannot read it."""
    kind = kind_of({"kind": step["kind"]})
    if kind is None:
        return False
    ref = ObjectRef(name=step["name"], namespace="default" if kind.namespaced else "")
    try:
        body: Any = json.loads(encoded(step["body"]).decode(errors="replace")) if "body" in step else None
        if step["do"] == "create":
            server.create(body)
        elif step["do"] == "delete":
            server.delete(kind.resource, ref, grace_period_s=0)
        else:
            server.patch(kind.resource, ref, body, subresource="status" if step["do"] == "status" else "")
    except (ClusterError, ValueError, RecursionError):
        return False
    return True
