"""`Reservations`: what a plugin holds for pods between Reserve and the end of their cycles.

A plugin that gives out something (seats, licences, ports) adds up two lists: what the pods on nodes use, and
what it has promised to pods that are not bound yet. The two overlap: a snapshot shows a pod on its node from
its Reserve on, long before the pod has the annotation that names its seat. This class adds the lists up.

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.seats = Reservations(handle, lambda pod: pod.annotations.get(SEAT))

    def reserve(self, state, pod, node_name):
        seat = self.seats.take(state, pod, node_name, lambda used: min(ALL - set(used), default=None))
        return Status.unschedulable("no seat is free") if seat is None else Status.success()

    def unreserve(self, state, pod, node_name):
        self.seats.give_back(state)

    def post_bind(self, state, pod, node_name):
        self.seats.give_back(state)

    def reconcile(self, live):
        return self.seats.take_over(live)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar, overload

from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation

T = TypeVar("T")
D = TypeVar("D")


class Reservation(NamedTuple, Generic[T]):
    """A value that one cycle holds. `pod`: on the node of its Reserve. After a restart of the plugin, it has
    only name, namespace, uid and node.
    """

    value: T
    pod: Pod


class Reservations(Generic[T]):
    """The reservations of one plugin instance, by cycle id. Any thread may call any method.

    A value says what a pod uses: the number of a seat, the names of some GPUs, an amount. `read` finds the
    value of a pod on a node. While a cycle holds a value for the pod, that value counts instead. So a pod on
    a node and its reservation count once, by uid.

    A reservation ends with `give_back` in `post_bind` and in `unreserve`, and with a list of `take_over` that
    lacks it. Where PostBind is not enabled for the plugin, the reservation ends with the cycle of the bound
    pod. The host ends a bound pod's cycle once every snapshot in use shows the pod as it was bound. From then
    on `read` finds the value. A snapshot that shows the pod does not end a reservation by itself.

    The plugin declares `Need.nodes()`, and in `Need.pods` what `read` reads. Its PreBind writes the value to
    the pod, unless `read` finds it in what the pod has anyway. Instances of several profiles do not see each
    other's reservations before their pods are bound.

    A plugin has one `Reservations`, and sets no `state.token` itself: the token is the value. A plugin that
    gives out two kinds of thing holds both in one value, such as a list of both.
    """

    def __init__(
        self,
        handle: Handle,
        read: Callable[[Pod], T | None] | None = None,
        *,
        per_node: bool = False,
        dump: Callable[[T], bytes] = lambda value: json.dumps(value).encode(),
        load: Callable[[bytes], T] = json.loads,
    ) -> None:
        """`read`: returns the value of a pod on a node, None for a pod that uses nothing. No `read`: pods use
        nothing from the end of their cycle on, and no snapshot is read. `per_node` True: only pods on the
        same node compete, as for GPUs.

        `dump`, `load`: a value as the cycle's token, of at most 4096 bytes, and back; JSON by default. `load`
        raises ValueError for a token that it cannot read.
        """
        self._handle = handle
        self._read = read
        self._per_node = per_node
        self._dump = dump
        self._load = load
        self._lock = threading.Lock()
        self._held: dict[str, Reservation[T]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, cycle_id: object) -> bool:
        return cycle_id in self._held

    def __getitem__(self, cycle_id: str) -> Reservation[T]:
        """Return what a cycle holds. Raises KeyError for a cycle that holds nothing."""
        return self._held[cycle_id]

    @overload
    def get(self, cycle_id: str) -> Reservation[T] | None: ...
    @overload
    def get(self, cycle_id: str, default: D) -> Reservation[T] | D: ...
    def get(self, cycle_id: str, default: D | None = None) -> Reservation[T] | D | None:
        """Return what a cycle holds, or `default`."""
        return self._held.get(cycle_id, default)

    def items(self) -> list[tuple[str, Reservation[T]]]:
        """Return (cycle id, what the cycle holds) of all cycles that hold something."""
        with self._lock:
            return list(self._held.items())

    def used(self, node_name: str = "") -> list[T]:
        """Return the values in use, one for each pod. For `filter`, and for what shows them.

        A pod counts once more for a reservation of an earlier attempt that is not given back yet.
        `node_name`: the node, with `per_node`. Raises the errors of `handle.snapshot`.
        """
        on_nodes = self._on_nodes(node_name)
        with self._lock:
            return self._used(on_nodes, node_name)

    def take(
        self, state: CycleState, pod: Pod, node_name: str, choose: Callable[[list[T]], T | None]
    ) -> T | None:
        """Hold a value for the pod of this cycle, and write it to `state.token`. For `reserve`.

        `choose`: gets the values in use, and returns a free one; None: nothing is free, and nothing is held.
        Calls of `choose` never overlap. It must not call the handle or these reservations. Returns the value;
        the same one again for a cycle that holds one. Raises ValueError if the cycle holds a value on another
        node, and the errors of `handle.snapshot` and of `choose`.
        """
        on_nodes = self._on_nodes(node_name)
        with self._lock:
            known = self._held.get(state.cycle_id)
            if known is not None:
                if known.pod.node_name != node_name:
                    raise ValueError(
                        f"the cycle of {pod.key} holds {known.value!r} on {known.pod.node_name}, and not on"
                        f" {node_name}: call take in reserve alone, which gets the chosen node; filter reads"
                        " used"
                    )
                return known.value
            value = choose(self._used(on_nodes, node_name))
            if value is not None:
                state.token = self._dump(value)
                self._hold(state, value, pod, node_name)
        return value

    def give_back(self, state: CycleState) -> T | None:
        """End the reservation of a cycle. For `unreserve` and `post_bind`.

        Returns the value; None: the cycle held nothing, or holds nothing any more.
        """
        with self._lock:
            ended = self._held.pop(state.cycle_id, None)
        return None if ended is None else ended.value

    def take_over(self, live: Iterable[LiveReservation]) -> list[LiveReservation]:
        """Hold what the cycles in `live` hold, by their tokens, and nothing else. For `reconcile`.

        A cycle without a token holds nothing. Returns the reservations whose token `load` cannot read, for
        `reconcile` to return. Raises other errors of `load`; what is held is then as before.
        """
        lost: list[LiveReservation] = []
        with self._lock:
            kept: dict[str, Reservation[T]] = {}
            loaded: list[tuple[LiveReservation, T]] = []
            for one in live:
                known = self._held.get(one.state.cycle_id)
                if known is not None:
                    kept[one.state.cycle_id] = known
                elif one.state.token is not None:
                    try:
                        loaded.append((one, self._load(one.state.token)))
                    except ValueError:
                        lost.append(one)
            self._held = kept
            for one, value in loaded:
                self._hold(one.state, value, one.pod, one.node_name)
        return lost

    def _hold(self, state: CycleState, value: T, pod: Pod, node_name: str) -> None:
        self._held[state.cycle_id] = Reservation(value, pod.on_node(node_name))
        # A plugin whose PostBind is not enabled hears of a bound pod in no other way. An instance that a new
        # configuration replaced gets the last calls of its cycles, which the next instance has taken over.
        state.at_end(lambda: self.give_back(state))

    def _on_nodes(self, node_name: str) -> dict[str, T]:
        """Return the value of each pod on the nodes that count, by uid."""
        found: dict[str, T] = {}
        if self._read is None:
            return found
        nodes = self._handle.snapshot()
        node = nodes.node_named(node_name) if self._per_node else None
        for view in nodes if not self._per_node else () if node is None else (node,):
            for pod in view.pods:
                value = self._read(pod)
                if value is not None:
                    found[pod.uid] = value
        return found

    def _used(self, on_nodes: Mapping[str, T], node_name: str) -> list[T]:
        held = [one for one in self._held.values() if not self._per_node or one.pod.node_name == node_name]
        promised = {one.pod.uid for one in held}
        bound = [value for uid, value in on_nodes.items() if uid not in promised]
        return bound + [one.value for one in held]
