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
from contextlib import ExitStack
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation

T = TypeVar("T")
D = TypeVar("D")
_HOLDER: Final = "berth_sdk.reservations/"
"""The beginning of the key of a cycle's state under which the `Reservations` of each name is kept."""
_NAMED: Final = b"\x00R\x01"
"""The beginning of a token with named values; its last byte is the version of this layout. For each value
follow the length of the name (1 byte), the name, the length of the value (2 bytes, the high one first), and
the value.
"""
_NAMED_OF_ANY: Final = _NAMED[:2]
_MOST_NAME: Final = 255
_MOST_VALUE: Final = 0xFFFF


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

    A plugin sets no `state.token` itself: the token has the values. A plugin that gives out two kinds of
    thing gives each `Reservations` a name, takes both in `reserve`, and takes them over together with
    `self.seats.take_over(live, self.ports)`.
    """

    def __init__(
        self,
        handle: Handle,
        read: Callable[[Pod], T | None] | None = None,
        *,
        name: str = "",
        per_node: bool = False,
        dump: Callable[[T], bytes] = lambda value: json.dumps(value).encode(),
        load: Callable[[bytes], T] = json.loads,
    ) -> None:
        """`read`: returns the value of a pod on a node, None for a pod that uses nothing. No `read`: pods use
        nothing from the end of their cycle on, and no snapshot is read. `per_node` True: only pods on the
        same node compete, as for GPUs.

        `name`: tells several `Reservations` of a plugin apart, in the token too, so a later version of the
        plugin keeps the name. At most 255 bytes; without a name, the token is the value alone.

        `dump`, `load`: a value as bytes of the cycle's token, which has at most 4096 bytes, and back; JSON by
        default. `load` raises ValueError for bytes that it cannot read.

        Raises ValueError for a name that is too long.
        """
        if len(name.encode()) > _MOST_NAME:
            raise ValueError(f"name: must have at most {_MOST_NAME} bytes, but has {len(name.encode())}")
        self._handle = handle
        self._read = read
        self._name = name
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
        node or in other reservations of this name, and the errors of `handle.snapshot` and of `choose`.
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
                self._claim_name(state)
                state.token = _written(_held_by_others(state) | {self._name: self._dump(value)})
                self._hold(state, value, pod, node_name)
        return value

    def give_back(self, state: CycleState) -> T | None:
        """End the reservation of a cycle, and take its value out of `state.token`. For `unreserve` and
        `post_bind`.

        Returns the value; None: the cycle held nothing, or holds nothing any more.
        """
        with self._lock:
            ended = self._held.pop(state.cycle_id, None)
            if ended is None:
                return None
            # The cycle of a pod that a group's trial placed goes on, and may take less than in the trial.
            key = f"{_HOLDER}{self._name}"
            if state.get(key) is self:
                state.delete(key)
            if state.token is not None:
                state.token = _without_value(state.token, self._name)
        return ended.value

    def take_over(self, live: Iterable[LiveReservation], *others: Reservations[Any]) -> list[LiveReservation]:
        """Hold what the cycles in `live` hold, by their tokens, and nothing else. For `reconcile`.

        `others`: the plugin's other `Reservations`, which do the same. A cycle of which one cannot read its
        value is held by none. A cycle without a value holds nothing. Returns the reservations that cannot be
        read, for `reconcile` to return. Raises other errors of `load`; what is held is then as before.
        """
        listed = list(live)
        every = (self, *others)
        with ExitStack() as locks:
            for one in sorted(every, key=id):
                locks.enter_context(one._lock)
            read = [one._read_tokens(listed) for one in every]
            lost = set[str]().union(*(unread for _, unread in read))
            for one, (values, _) in zip(every, read, strict=True):
                one._hold_alone([item for item in listed if item.state.cycle_id not in lost], values)
        return [item for item in listed if item.state.cycle_id in lost]

    def _read_tokens(self, live: Iterable[LiveReservation]) -> tuple[dict[str, T], set[str]]:
        """Return the values of cycles that are not known here, and the cycles whose value cannot be read."""
        values: dict[str, T] = {}
        lost: set[str] = set()
        for item in live:
            cycle_id = item.state.cycle_id
            if cycle_id in self._held or item.state.token is None:
                continue
            try:
                raw = _values_of(item.state.token).get(self._name)
                if raw is not None:
                    values[cycle_id] = self._load(raw)
            except ValueError:
                lost.add(cycle_id)
        return values, lost

    def _hold_alone(self, live: Iterable[LiveReservation], values: Mapping[str, T]) -> None:
        """Hold what these cycles hold already, and their new values; nothing else."""
        known, self._held = self._held, {}
        for item in live:
            cycle_id = item.state.cycle_id
            if cycle_id in known:
                self._held[cycle_id] = known[cycle_id]
            elif cycle_id in values:
                item.state.write(f"{_HOLDER}{self._name}", self)
                self._hold(item.state, values[cycle_id], item.pod, item.node_name)

    def _claim_name(self, state: CycleState) -> None:
        """Note in the cycle's state that its value of this name is held here. Raises ValueError if another
        `Reservations` of the plugin holds one.
        """
        key = f"{_HOLDER}{self._name}"
        holder = state.get(key)
        if holder is self:
            return
        if holder is not None and holder._handle is self._handle and state.cycle_id in holder:
            named = f"the name {self._name!r}" if self._name else "no name"
            raise ValueError(
                f"two Reservations of this plugin have {named}, so their values would replace each other in"
                " the cycle's token: give each a name of its own, as in Reservations(handle, name='seats')"
            )
        state.write(key, self)

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


def _held_by_others(state: CycleState) -> dict[str, bytes]:
    """Return the values in a cycle's token that a `Reservations` of this process holds for the cycle.

    A process that was restarted after the Unreserve of a group's trial gets the token of the trial with the
    cycle that goes on from it. Nobody holds those values. Raises ValueError for a token that cannot be read.
    """
    values = {} if state.token is None else _values_of(state.token)
    holders = {name: state.get(f"{_HOLDER}{name}") for name in values}
    return {
        name: value
        for name, value in values.items()
        if (holder := holders[name]) is not None and state.cycle_id in holder
    }


def _without_value(token: bytes, name: str) -> bytes | None:
    """Return a token without the value of a name; None: it has no other value. A token that cannot be read
    stays as it is.
    """
    try:
        values = _values_of(token)
    except ValueError:
        return token
    values.pop(name, None)
    return _written(values) if values else None


def _written(values: Mapping[str, bytes]) -> bytes:
    """Return the token of these values, at least one. A value without a name that stands alone is the token.

    Raises ValueError for a value that no token can hold.
    """
    if list(values) == [""] and not values[""].startswith(_NAMED_OF_ANY):
        return values[""]
    parts = [_NAMED]
    for each, held in values.items():
        raw = each.encode()
        if len(held) > _MOST_VALUE:
            raise ValueError(f"the value has {len(held)} bytes; a token has at most 4096")
        parts += [bytes([len(raw)]), raw, len(held).to_bytes(2, "big"), held]
    return b"".join(parts)


def _values_of(token: bytes) -> dict[str, bytes]:
    """Return the values in a token by name. Raises ValueError for a layout of a later version."""
    if not token.startswith(_NAMED_OF_ANY):
        return {"": token}
    if not token.startswith(_NAMED):
        raise ValueError(f"the token has the layout {token[2:3]!r}, and this version reads {_NAMED[2:]!r}")
    values: dict[str, bytes] = {}
    at = len(_NAMED)
    while at < len(token):
        name, at = _part(token, at, 1)
        value, at = _part(token, at, 2)
        values[name.decode()] = value
    return values


def _part(token: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Return the part of a token at an offset, and the offset behind it. `width`: the bytes of its length."""
    begin = at + width
    end = begin + int.from_bytes(token[at:begin], "big")
    if end > len(token):
        raise ValueError("the token ends in the middle of a value")
    return token[begin:end], end
