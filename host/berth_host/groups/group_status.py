"""Writes an attempt's result on the group: the condition PodGroupInitiallyScheduled.

Called by the cycle of a group. The condition never goes back from True, as in kube-scheduler: it says that
one cycle found places. A write that still fails after the tries of `status_patch` is logged. While the API
server is away it is sent again, until a later outcome replaces it: a group whose members are all bound has no
later attempt that would write. kube-scheduler drops such a write. Since 1.38 a CompositePodGroup has such a
condition, CompositePodGroupInitiallyScheduled, and a condition that is True never changes.
Source: kube-scheduler `schedule_one_podgroup.go` (updatePodGroupCondition) and `util/utils.go`
(PatchPodGroupStatus), v1.37; updateInitiallyScheduledCondition, v1.38; `meta/v1` (Condition).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Any, Final

from berth_sdk.pod_group import POD_GROUP, PodGroup
from berth_sdk.rfc3339 import format_time

from berth_host.cluster.port import ClusterCalls
from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.cycle.ordered_writes import OrderedWrites
from berth_host.cycle.pod_status import cut_message, is_newer
from berth_host.cycle.status_patch import Json, patch_status
from berth_host.errors.cluster import ClusterError, UnavailableError
from berth_host.log import get_logger
from berth_host.model.clock import Clock

log = get_logger()
POD_GROUPS: Final = "scheduling.k8s.io/podgroups"
COMPOSITE_POD_GROUPS: Final = "scheduling.k8s.io/compositepodgroups"
REMEMBERED: Final = 1024
"""The number of written groups that are kept, by uid. The oldest are dropped first."""
FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 10.0
"""The pauses while the API server is away, in seconds of real time: the first one, and the longest."""
_COMPARED: Final = ("status", "reason", "message", "observedGeneration")


class GroupStatusWriter:
    """The writer of the conditions of groups. Sends nothing if nothing has changed.

    Results are written in the background (`pending_count`), in order per group. `rules`: those of the version
    that is followed.
    """

    def __init__(self, cluster: ClusterCalls, clock: Clock, rules: HostRules = RULES_1_37) -> None:
        self._cluster = cluster
        self._rules = rules
        self._clock = clock
        self._writes = OrderedWrites(POD_GROUPS)
        self._written: OrderedDict[str, PodGroup] = OrderedDict()
        self._wanted: dict[str, Json] = {}
        """The latest condition of each group with pending writes, by uid."""

    @property
    def pending_count(self) -> int:
        """The number of groups with pending writes."""
        return len(self._writes)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` (real time), then cancel the other writes.

        Returns True if everything was written.
        """
        return await self._writes.flush(timeout_s)

    def attempted(self, group: PodGroup, *, placed: bool, reason: str, message: str) -> None:
        """Write the outcome of an attempt in the background. `group`: as the attempt saw it.

        `placed`: True if the attempt found places for the group. `reason`, `message`: those of the condition.
        Has no effect on groups of kinds that have no such condition.
        """
        judges_trees = self._rules.judges_group_trees
        if group.kind != POD_GROUP and not (group.is_composite and judges_trees):
            return
        if judges_trees and _had_its_places(self._newest(group)):
            return
        wanted: Json = {
            "type": group.condition_type,
            "status": "True" if placed else "False",
            "reason": reason,
            "message": cut_message(message),
            "observedGeneration": group.generation,
        }
        if condition_patch(self._newest(group), wanted, "") is not None or group.uid in self._writes:
            self._wanted[group.uid] = wanted
            self._writes.add(group.uid, partial(self._write, group, wanted))

    async def _write(self, group: PodGroup, wanted: Json) -> None:
        """Write a condition after the earlier writes, again and again while the API server is away."""
        pause_s = 0.0
        while not pause_s or self._wanted.get(group.uid) is wanted:
            try:
                await self._patch(group, wanted)
                break
            except UnavailableError as err:
                if not pause_s:
                    log.warning("group.status_refused", group=group.key, problem=str(err))
            except ClusterError as err:
                log.warning("group.status_refused", group=group.key, problem=str(err))
                break
            pause_s = min(2 * pause_s or FIRST_PAUSE_S, MAX_PAUSE_S)
            await asyncio.sleep(pause_s)
        if self._wanted.get(group.uid) is wanted:
            del self._wanted[group.uid]

    async def _patch(self, group: PodGroup, wanted: Json) -> None:
        """Patch the difference from the group's status. Raises ClusterError."""
        patch = condition_patch(self._newest(group), wanted, format_time(self._clock.now_s()))
        if patch is None:
            return
        resource = COMPOSITE_POD_GROUPS if group.is_composite else POD_GROUPS
        written = await patch_status(self._cluster, group.ref, patch, resource=resource)
        self._written.pop(group.uid, None)
        self._written[group.uid] = PodGroup.of(written)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    def _newest(self, group: PodGroup) -> PodGroup:
        """Return the group as this writer left it, unless the watch has shown that version or a later one."""
        ours = self._written.get(group.uid)
        return group if ours is None or is_newer(group.resource_version, ours.resource_version) else ours


def _had_its_places(group: PodGroup) -> bool:
    condition = group.condition(group.condition_type)
    return condition is not None and condition.status == "True"


def condition_patch(group: PodGroup, wanted: Json, now: str) -> dict[str, Any] | None:
    """Return the status patch that puts `wanted` into the group's conditions; None if nothing changes.

    Nothing changes from True to False. `wanted` has no time: the transition time is `now` if the status
    changes.
    """
    conditions = [] if group.object is None else group.object.get("status.conditions", [])
    old = next((item for item in conditions if item.get("type") == wanted["type"]), None)
    if old is None:
        changed = {**wanted, "lastTransitionTime": now}
    elif old.get("status") == "True" != wanted["status"]:
        return None
    else:
        changed = {key: wanted[key] for key in _COMPARED if old.get(key) != wanted[key]}
        if not changed:
            return None
        changed["type"] = wanted["type"]
        if "status" in changed:
            changed["lastTransitionTime"] = now
    if not conditions:
        return {"conditions": [changed]}
    order = [{"type": item.get("type")} for item in conditions]
    if old is None:
        order.append({"type": wanted["type"]})
    return {"$setElementOrder/conditions": order, "conditions": [changed]}
