"""ZonalVolumes: a pod gets a volume that is made for it, in the zone where it will run, before it is bound.

    volume.example.com/size: 10Gi        on the pod: what it wants
    volume.example.com/path: /srv/...    on the pod, before it is bound: the volume that was made

This is dynamic resource binding (KEP-624, "Use Cases"): Filter leaves the zones that have room, PreBind makes
the volume, and Unreserve takes it back when the pod is not bound after all. A volume here is a file in the
folder of its zone, with its blocks allocated. Replace `Zones` to make volumes on a storage system.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from berth_sdk import (
    CycleState,
    DependsOn,
    EventInterest,
    Handle,
    LiveReservation,
    Need,
    NoConcern,
    NodeTable,
    NodeView,
    ObjectPatch,
    PatchResult,
    Plugin,
    PluginArgsError,
    Pod,
    PreBindResult,
    QuantityError,
    Reservations,
    Status,
)
from berth_sdk.quantity import whole_value

SIZE: Final = "volume.example.com/size"
PATH: Final = "volume.example.com/path"
ZONE: Final = "topology.kubernetes.io/zone"


class Promise(NamedTuple):
    """The room that one cycle holds for its pod: `size` bytes in `zone`."""

    zone: str
    size: int


class Zones:
    """The volumes: `<root>/<zone>/<pod uid>`. `capacity`: bytes, by zone. Any thread may call."""

    def __init__(self, root: Path, capacity: Mapping[str, int]) -> None:
        self.root = root
        self.capacity = capacity
        for zone in capacity:
            (root / zone).mkdir(parents=True, exist_ok=True)

    def path(self, zone: str, uid: str) -> Path:
        """Return the path of a pod's volume."""
        return self.root / zone / uid

    def volumes(self, zone: str) -> dict[str, int]:
        """Return the bytes of each volume of a zone, by the uid of its pod."""
        return {item.name: item.stat().st_size for item in (self.root / zone).iterdir()}

    def make(self, promise: Promise, uid: str) -> Path:
        """Make a volume, or keep the one that is there. Raises OSError, with nothing made."""
        path = self.path(promise.zone, uid)
        made = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(made, 0, promise.size)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(made)
        return path

    def remove(self, zone: str, uid: str) -> None:
        """Remove a volume; one that is not there counts as removed."""
        self.path(zone, uid).unlink(missing_ok=True)


class ZonalVolumes(Plugin):
    """Makes volumes. Arguments: `root`, a folder that all zones' nodes can reach; `capacity`, by zone."""

    version = "1.0.0"
    needs = (Need.nodes(), Need.pods(label_prefixes=()))
    # The promises and the files are not in the tables.
    depends_on = DependsOn.OTHER
    events = (EventInterest("Pod", ("delete",)), EventInterest("Node", ("add", "update.labels")))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        capacity = args.get("capacity")
        if not isinstance(capacity, Mapping) or not capacity:
            raise PluginArgsError("capacity: must give each zone's bytes, such as {zone-a: 100Gi}")
        if not args.get("root"):
            raise PluginArgsError("root: must be the folder of the volumes")
        try:
            self._zones = Zones(
                Path(args["root"]), {zone: whole_value(size) for zone, size in capacity.items()}
            )
        except QuantityError as err:
            raise PluginArgsError(f"capacity: {err}") from err
        except OSError as err:
            raise PluginArgsError(f"root: {err}") from err
        # No `read`: the volumes of pods on nodes are on the disk.
        self._promises = Reservations[Promise](handle, load=_promise_of)

    # --- the scheduling cycle ----------------------------------------------------------------------

    def sign(self, pod: Pod, nodes: NodeTable) -> NoConcern | None:
        """Tell the host not to call this plugin about pods that want no volume."""
        return None if SIZE in pod.annotations else NoConcern.CYCLE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Read the size that the pod wants, and how much room each zone has."""
        wanted = pod.annotations.get(SIZE)
        if wanted is None:
            return Status.skip()
        try:
            size = whole_value(wanted)
        except QuantityError as err:
            return Status.unresolvable(f"annotation {SIZE}: {err}")
        if size <= 0:
            return Status.unresolvable(f"annotation {SIZE}: must be above zero, but is {wanted}")
        state.write("size", size)
        state.write("free", self._free(nodes))
        return Status.success()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject a node whose zone has no room for the volume."""
        free = state.read("free").get(node.labels.get(ZONE, ""))
        if free is None:
            return Status.unresolvable("no volumes can be made in the node's zone")
        if free < state.read("size"):
            return Status.unschedulable("the node's zone has too little room for the volume")
        return Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Hold the room. The volume is not made yet: the host may still choose another node."""
        size = state.get("size")
        if size is None:
            return Status.success()
        node = self.handle.snapshot().node_named(node_name)
        zone = node.labels.get(ZONE, "") if node is not None else ""
        if zone not in self._zones.capacity:
            return Status.unschedulable("the node has left its zone")
        self._promises.take(state, pod, node_name, lambda _: Promise(zone, size))
        return Status.success()

    # --- the binding cycle -------------------------------------------------------------------------

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        """Make the volume, and write its path to the pod."""
        held = self._promises.get(state.cycle_id)
        if held is None:
            return Status.success()
        if patched:
            return Status.error(f"the path of the volume could not be written: {patched[0].message}")
        try:
            path = self._zones.make(held.value, pod.uid)
        except OSError as err:
            return Status.unschedulable(f"no volume could be made in {held.value.zone}: {err.strerror}")
        told = ObjectPatch(
            resource="pods", ref=pod.ref, merge_patch={"metadata": {"annotations": {PATH: str(path)}}}
        )
        return PreBindResult(Status.success(), (told,), done_when_applied=True)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Forget the promise: from now on the pod on its node holds the volume."""
        if self._promises.give_back(state) is not None:
            # If the pod was deleted before this call, its event came too early to find room in the zone.
            self.handle.requeue(reason="a volume may be free")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Take the volume back, and the room."""
        promise = self._promises.give_back(state)
        if promise is not None:
            self._zones.remove(promise.zone, pod.uid)

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        """Hold what the cycles of `live` were promised; `_free` removes what belongs to nobody."""
        return self._promises.take_over(live)

    # --- plumbing ----------------------------------------------------------------------------------

    def _free(self, nodes: NodeTable) -> dict[str, int]:
        """Return the free bytes of each zone. Remove the volumes of pods that are neither on a node nor being
        bound: those of deleted pods, and of cycles that ended while this plugin was away.
        """
        promised = {one.pod.uid: one.value for _, one in self._promises.items()}
        return {zone: self._free_in(zone, nodes, promised) for zone in self._zones.capacity}

    def _free_in(self, zone: str, nodes: NodeTable, promised: Mapping[str, Promise]) -> int:
        held = {uid: promise.size for uid, promise in promised.items() if promise.zone == zone}
        for uid, size in self._zones.volumes(zone).items():
            if uid in held:
                continue
            if uid not in promised and nodes.whole.pods.position(uid) is not None:
                held[uid] = size
            else:
                with suppress(OSError):  # it still takes room then, and the next cycle tries again
                    self._zones.remove(zone, uid)
        return self._zones.capacity[zone] - sum(held.values())


def _promise_of(token: bytes) -> Promise:
    """Return the promise in a cycle's token. Raises ValueError for that of another version of the plugin."""
    match json.loads(token):
        case [str(zone), int(size)]:
            return Promise(zone, size)
        case _:
            raise ValueError("no promise in the token")
