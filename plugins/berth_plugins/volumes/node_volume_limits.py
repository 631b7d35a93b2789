"""NodeVolumeLimits: the number of CSI volumes that a node can attach -> verdict.

Called at PreFilter and Filter. Source: `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`, v1.37.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, DependsOn, NoConcern, Plugin, PodSensitivity
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.pod_volume import EPHEMERAL, PERSISTENT_VOLUME_CLAIM
from berth_sdk.scenarios import Scenarios
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, at_once, in_slices
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.gates import ATTACHED_ONCE, EXACT_HINTS, is_on
from berth_plugins.objects.of_events import as_object, as_pod, holds_place
from berth_plugins.volumes.attached import AttachedVolumes, ClaimMissingError, VolumeNames, VolumesError
from berth_plugins.volumes.csi_migration import IN_TREE
from berth_plugins.volumes.csi_nodes import NO_CSI_NODE, UNLIMITED, CsiNode, CsiNodes
from berth_plugins.volumes.records import (
    ATTACHMENT_EVENT,
    ATTACHMENTS,
    CLAIM_EVENT,
    CLAIMS,
    CLASS_EVENT,
    CLASSES,
    CSI_DRIVER_EVENT,
    CSI_DRIVERS,
    CSI_NODE_EVENT,
    CSI_NODES,
    POD_FIELDS_TO_DROP,
    VOLUME_EVENT,
    VOLUMES,
    Stores,
    names_claim,
    rows_with_storage,
)

REASON: Final = Status.unschedulable("node(s) exceed max volume count")
_NEW: Final = "new volumes"
Names = dict[str, str]


class NodeVolumeLimits(Plugin):
    """Rejects nodes where a CSI driver would have to attach more volumes than it can."""

    pod_sensitivity: PodSensitivity | None = PodSensitivity.NODE
    depends_on: DependsOn | None = DependsOn.TABLE
    needs: Sequence[Need] = (
        Need.whole_pod(("volumes",)),
        Need.nodes(),
        Need.pod_objects(*POD_FIELDS_TO_DROP),
        Need.objects(CLAIMS),
        Need.objects(VOLUMES),
        Need.objects(CLASSES),
        Need.objects(CSI_NODES),
        Need.objects(CSI_DRIVERS),
        Need.objects(ATTACHMENTS),
    )
    events: Sequence[EventInterest] | None = (
        EventInterest(CSI_NODE_EVENT, ("add",)),
        EventInterest(CSI_NODE_EVENT, ("update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(CSI_DRIVER_EVENT, ("update", "delete"), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add",)),
        EventInterest(ASSIGNED_POD, ("add", "delete"), Hint.ASK_PLUGIN),
        EventInterest(CLAIM_EVENT, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(VOLUME_EVENT, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(CLASS_EVENT, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(ATTACHMENT_EVENT, ("add", "update", "delete"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """Read the feature gates, the only arguments. Raises PluginArgsError for a feature gate that
        is neither true nor false.
        """
        super().__init__(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._counts_once = is_on(args, ATTACHED_ONCE, default=True)
        self._scaling = is_on(args, "VolumeLimitScaling", default=True)
        self._stores = Stores(handle)
        self._names = VolumeNames(self._stores)
        self._attached = AttachedVolumes(handle, self._names, self._stores)
        self._csi_nodes = CsiNodes(handle)

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return `NoConcern.CYCLE` without storage that is attached; None with it, for `sign`."""
        return None if any(map(_is_looked_at, pod.volumes)) else NoConcern.CYCLE

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the pod's wishes.

        The uid of a pod with an ephemeral volume is part of the signature: the claim made for the pod names
        the uid, and another pod of the same name has another claim.
        """
        return (wishes(pod), pod.uid) if any(one.source == EPHEMERAL for one in pod.volumes) else wishes(pod)

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP for a pod without claims and without disks that a CSI driver has taken over."""
        return SUCCESS if any(map(_is_looked_at, pod.volumes)) else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts | Status]:
        """Return rejections where a driver's volumes, including this pod's, are more than its limit.

        Unresolvable on all nodes where a claim is missing. ERROR where the volumes of the pod, or of a pod on
        the node, cannot be determined.
        """
        return in_slices(self._filter_nodes(pod, nodes))

    def _filter_nodes(self, pod: Pod, nodes: NodeTable) -> Work[Verdicts | Status]:
        new = yield from self._new_volumes(pod)
        if isinstance(new, Status):
            return new
        if not new:
            return SUCCESS
        self._catch_up(nodes)
        return self._judged(new, nodes)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        """Return the verdicts of Filter, with nodes counted again where pods with storage are removed or
        added.
        """
        nodes, count = scenarios.nodes, len(scenarios)
        new = at_once(self._new_volumes(pod))
        if isinstance(new, Status) or not new:
            return Verdicts.all(count, new if isinstance(new, Status) else SUCCESS)
        self._catch_up(nodes)
        verdicts = self._judged(new, nodes)
        changed = rows_with_storage(scenarios)
        if not changed:
            return verdicts
        statuses = verdicts.to_list()
        for i in changed:
            statuses[i] = self._what_if(new, scenarios.take([i]))
        return Verdicts.of(statuses)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if room appeared, or a missing claim was added.

        Room appears when a limit rises or ends, when a pod or an attachment is deleted, when a volume of this
        pod is attached, or when a volume of this pod, or of a running one, counts differently.
        """
        return self._may_help(event, pod) if self._exact_hints else self._helped_in_1_36(event, pod)

    def _may_help(self, event: ClusterEvent, pod: Pod) -> bool:
        subject = event.old if event.new is None else event.new
        if event.resource == CSI_NODE_EVENT:
            return self._serves_more(event)
        if event.resource == CSI_DRIVER_EVENT:
            asks = event.new is not None and _must_be_installed(as_object(event.new))
            return self._scaling and _must_be_installed(as_object(event.old)) and not asks
        if event.resource == "Pod":
            other = as_pod(subject)
            if event.new is None:
                return holds_place(other) and any(map(_is_looked_at, other.volumes))
            # A volume that is on the node already needs no further attachment.
            return any(map(_is_looked_at, other.volumes))
        if event.resource == CLAIM_EVENT:
            item = as_object(subject)
            return names_claim(pod, item, ephemeral=True) or self._attached.uses_claim(item.ref)
        if event.resource == VOLUME_EVENT:
            return self._is_concerned(pod, "volume", as_object(subject).ref.name)
        if event.resource == CLASS_EVENT:
            return self._is_concerned(pod, "class", as_object(subject).ref.name)
        return self._attachment_helps(event, pod)

    def _attachment_helps(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if an attachment that ended may have made room, or if one began that may be of a volume
        of the pod, which then needs no further room on that node.
        """
        if event.new is None or not self._counts_once:
            return event.old is not None and _may_be_of(as_object(event.old), pod)
        old = None if event.old is None else as_object(event.old)
        if old is not None and old.get("spec") == as_object(event.new).get("spec"):
            return False  # only the attacher's report changed
        return any(one is not None and _may_be_of(one, pod) for one in (old, as_object(event.new)))

    def _serves_more(self, event: ClusterEvent) -> bool:
        """Return True if a limit rose or ended, or a driver that volumes need was installed."""
        before = CsiNode.of(as_object(event.old))
        after = NO_CSI_NODE if event.new is None else CsiNode.of(as_object(event.new))
        if self._scaling and not after.drivers <= before.drivers:
            return True
        return any(after.limits.get(name, UNLIMITED) > limit for name, limit in before.limits.items())

    def _is_concerned(self, pod: Pod, kind: str, name: str) -> bool:
        """Return True if a volume or a class affects a claim of the pod, or a claim that is counted on a
        node.
        """
        if self._attached.uses(kind, name):
            return True
        for volume in pod.volumes:
            claim = self._stores.claims.get(volume.claim, pod.namespace) if volume.has_claim else None
            if claim is not None and name == (claim.volume_name if kind == "volume" else claim.class_name):
                return True
        return False

    @staticmethod
    def _helped_in_1_36(event: ClusterEvent, pod: Pod) -> bool:
        """Return version 1.36's answer."""
        if event.resource == CSI_NODE_EVENT:
            return _limit_rose(as_object(event.old), as_object(event.new))
        if event.resource == "Pod":
            gone = as_pod(event.old)
            return holds_place(gone) and any(map(_is_looked_at, gone.volumes))
        if event.resource == CLAIM_EVENT:
            return names_claim(pod, as_object(event.new), ephemeral=True)
        attacher = as_object(event.old).get("spec.attacher") or ""
        return any(
            volume.source == PERSISTENT_VOLUME_CLAIM
            or (volume.source in IN_TREE and IN_TREE[volume.source].driver == attacher)
            for volume in pod.volumes
        )

    # --- counting ----------------------------------------------------------------------------------

    def _new_volumes(self, pod: Pod) -> Work[Names | Status]:
        try:
            return (yield from self._names.read(pod, is_new=True))
        except ClaimMissingError as err:
            return Status.unresolvable(str(err))
        except VolumesError as err:
            return Status.error(str(err))

    def _catch_up(self, nodes: NodeTable) -> None:
        self._csi_nodes.catch_up(nodes)
        self._attached.catch_up(nodes)

    def _judged(self, new: Names, nodes: NodeTable) -> Verdicts:
        """Return verdicts for the rows as the snapshot has them."""
        verdicts = Verdicts.feasible(len(nodes))
        for driver in self._watched(new):
            missing = ~self._csi_nodes.installed(driver, nodes)
            verdicts = verdicts.otherwise(missing, _not_installed(driver))
        limited = self._csi_nodes.limited(nodes)
        for slot, problem in self._attached.problems.items():
            verdicts = verdicts.otherwise(limited & (nodes.slots == slot), Status.error(problem))
        exceeded = np.zeros(len(nodes), dtype=np.bool_)
        for driver in dict.fromkeys(new.values()):
            limit = self._csi_nodes.limit(driver, nodes)
            if limit is not None:
                uniques = [unique for unique, its in new.items() if its == driver]
                more = self._not_yet_there(uniques, nodes)
                # A driver that attaches nothing more is not checked, however many volumes it has.
                exceeded |= (more > 0) & (self._attached.count(driver, nodes) + more > limit)
        return verdicts.otherwise(exceeded, REASON)

    def _not_yet_there(self, uniques: Sequence[str], nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the number of the volumes that are not on the node yet: no pod there uses them,
        and they are not attached.
        """
        more = np.full(len(nodes), len(uniques), dtype=np.int64)
        for unique in uniques:
            slots = set(self._attached.users(unique))
            if self._counts_once:
                slots.update(self._attached.holders(unique))
            if slots:
                more -= np.isin(nodes.slots, list(slots))
        return more

    def _watched(self, new: Names) -> list[str]:
        """Return the drivers, sorted, that must be installed on the node of their volumes."""
        if not self._scaling:
            return []
        drivers = self.handle.objects(CSI_DRIVERS)
        found = ((driver, drivers.get(driver)) for driver in sorted(set(new.values())))
        return [driver for driver, item in found if item is not None and _must_be_installed(item)]

    def _what_if(self, new: Names, scenario: Scenarios) -> Status:
        """Return the verdict on one node with removed and added pods, counted from its pods."""
        row, removed, added = scenario.nodes, scenario.removed.pods(0), scenario.added.pods(0)
        for driver in self._watched(new):
            if not self._csi_nodes.installed(driver, row)[0]:
                return _not_installed(driver)
        if not self._csi_nodes.limited(row)[0]:
            return SUCCESS
        gone = {pod.uid for pod in removed}
        here = [pod for pod in row.pod_volumes.on_slot(int(row.slots[0])) if pod.uid not in gone]
        used: Names = {}
        try:
            for pod in (*here, *added):
                used |= self._names.of_pod(pod, is_new=False)
        except VolumesError as err:
            return Status.error(str(err))
        counts = Counter(used.values())
        attached = self._attached.attached_to(row.name(0))
        counts.update(driver for unique, driver in attached.items() if unique not in used)
        there = used.keys() | attached.keys() if self._counts_once else used.keys()
        more = Counter(driver for unique, driver in new.items() if unique not in there)
        for driver, count in more.items():
            limit = self._csi_nodes.limit(driver, row)
            if limit is not None and limit[0] != UNLIMITED and counts[driver] + count > limit[0]:
                return REASON
        return SUCCESS


def _may_be_of(attachment: KubeObject, pod: Pod) -> bool:
    """Return True if the attacher of a VolumeAttachment may serve a volume of the pod."""
    attacher = attachment.get("spec.attacher") or ""
    return any(
        volume.has_claim or (volume.source in IN_TREE and IN_TREE[volume.source].driver == attacher)
        for volume in pod.volumes
    )


def _is_looked_at(volume: Any) -> bool:
    return volume.has_claim or volume.source in IN_TREE


def _must_be_installed(driver: KubeObject) -> bool:
    return driver.get("spec.preventPodSchedulingIfMissing") is True


def _not_installed(driver: str) -> Status:
    return Status.unschedulable(f"{driver} CSI driver is not installed on the node")


def _limit_rose(old: KubeObject, new: KubeObject) -> bool:
    before = _limits(old)
    return any(count > before.get(driver, 0) for driver, count in _limits(new).items())


def _limits(item: KubeObject) -> dict[str, int]:
    return {
        str(one.get("name") or ""): (one.get("allocatable") or {}).get("count") or 0
        for one in item.get("spec.drivers") or ()
    }
