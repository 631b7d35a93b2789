"""One changed condition of a pod -> a strategic merge patch of its status, and the call that sends it.

Called by `pod_status` and `victim_calls`. The patch holds only the changed fields, so it
overwrites no field of other writers and needs no resourceVersion. Source: kube-scheduler `util/utils.go`
(PatchPodStatus), `pkg/api/v1/pod/util.go` (UpdatePodCondition); apimachinery
`util/strategicpatch/patch.go` (CreateTwoWayMergePatch), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_host.cluster.port import ClusterCalls
from berth_host.cycle.repeating import repeated
from berth_host.errors.cluster import ConflictError, TimedOutError, UnavailableError
from berth_host.model.patch_type import PatchType

_COMPARED: Final = ("status", "reason", "message", "lastProbeTime", "lastTransitionTime")
Json = dict[str, Any]


def condition_patch(
    conditions: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], now: str
) -> Json | None:
    """Return the status patch that puts `wanted` into `conditions`, by its `type`; None if nothing changes.

    `wanted` has no times: the transition time is `now` if the status changes, else the old one.
    """
    old = next((item for item in conditions if item.get("type") == wanted["type"]), None)
    new: Json = {"lastProbeTime": None, **{key: value for key, value in wanted.items() if value}}
    if old is None or old.get("status") != wanted["status"]:
        new["lastTransitionTime"] = now
    else:
        new["lastTransitionTime"] = old.get("lastTransitionTime")
    if old is None:
        changed = new
    elif all(old.get(key) == new.get(key) for key in _COMPARED):
        return None
    else:
        changed = {key: new.get(key) for key in {**old, **new} if old.get(key) != new.get(key)}
        changed["type"] = wanted["type"]
    if not conditions:
        return {"conditions": [changed]}
    order = [{"type": item.get("type")} for item in conditions]
    if old is None:
        order.append({"type": wanted["type"]})
    return {"$setElementOrder/conditions": order, "conditions": [changed]}


async def patch_status(
    cluster: ClusterCalls, ref: ObjectRef, status: Mapping[str, Any], *, resource: str = "pods"
) -> KubeObject:
    """Send a status patch, up to TRIES times where a repetition may help; return the changed object.

    Raises ClusterError.
    """
    return await repeated(
        lambda: cluster.patch(
            resource, ref, {"status": status}, patch_type=PatchType.STRATEGIC, subresource="status"
        ),
        lambda err: isinstance(err, (ConflictError, UnavailableError)) and not isinstance(err, TimedOutError),
    )
