"""`CycleState`: the data of one scheduling cycle, a private store per plugin and shared keys by declaration.

The host makes a state at the start of a cycle, the SDK's server at the first call of a cycle. A state lives
until PostBind, or until the end of Unreserve. Plugins in different processes cannot read each other's data.
So each plugin has a store of its own and publishes the values that other plugins may read.

Source: KEP-624 CycleState; kube-scheduler `framework/cycle_state.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from berth_sdk.errors import BerthError, UndeclaredError
from berth_sdk.pod import Pod

T = TypeVar("T")
PODS_TO_ACTIVATE: Final = "pods-to-activate"
"""The published key under which a plugin lists pods for `CycleState.activate`."""


def read_pods_to_activate(value: bytes) -> list[str]:
    """Return the pods (`namespace/name`) that a plugin listed. Empty for malformed values."""
    try:
        names = json.loads(value)
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class StateNotFoundError(BerthError, KeyError):
    """The cycle's state has no value under this key. Attribute: key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the cycle's state has no {key!r}: write it earlier in the cycle, or use `get`")

    def __str__(self) -> str:
        return str(self.args[0])


@runtime_checkable
class Cloneable(Protocol):
    """A stored value that must be copied for a what-if question. Other values are shared between the
    copies.
    """

    def clone(self) -> Cloneable:
        """Return a copy that can change without changing this value."""
        ...


class SharedState:
    """The published values of one cycle, `<plugin>/<key>` -> bytes. Kept by the host."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        self.values: dict[str, bytes] = dict(values or {})


@dataclass(frozen=True, slots=True)
class TrialRef:
    """The trial of a group's cycle that a reservation belongs to.

    - `group`: the key of the pod's group. `placement`: the name of the placement that is tried; "" for all
      nodes.
    - `number`: the trial's number in the group's cycle, from 1.
    - `tentative`: True while the group's cycle tries. False: the host has chosen, and will bind the pod.
    """

    group: str
    placement: str
    number: int
    tentative: bool


class CycleState:
    """One plugin's view of one cycle.

    `cycle_id` is also the reservation's id. The host returns `token` (at most 4 KiB) in every later call of
    the cycle, also after a restart of the plugin. The state is not valid after the cycle.

    In a group's cycle there are three states: of the group (`GroupState`), of each placement that is tried
    (`PlacementState`), and of each pod in each placement. `placement` and `group` of a pod's state reach the
    other two.

    >>> state = CycleState("cycle-1", plugin="Demo")
    >>> state.write("lights", 3)
    >>> state.read("lights")
    3
    """

    __slots__ = (
        "_at_end",
        "_published",
        "_shared",
        "_store",
        "_token",
        "cycle_id",
        "parent",
        "plugin",
        "pod_deleted",
        "readable",
        "signature",
        "signed_at",
        "trial",
        "writes",
    )

    def __init__(self, cycle_id: str, *, plugin: str = "", shared: SharedState | None = None) -> None:
        self.cycle_id = cycle_id
        self.plugin = plugin
        self.parent: CycleState | None = None
        """The state that this state belongs to: of a pod in a group's cycle, that of the placement; of a
        placement, that of the group. None: there is no such state.
        """
        self.trial: TrialRef | None = None
        """The trial that the Reserve or Unreserve of a pod in a group's cycle belongs to. None: the pod is
        scheduled by itself, or the host has not chosen a node yet.
        """
        self.writes = 0
        """The number of writes, publications and deletions."""
        self._token: bytes | None = None
        self._store: dict[str, Any] = {}
        self._shared = shared if shared is not None else SharedState()
        self._published: set[str] = set()
        self._at_end: list[Callable[[], object]] | None = None
        self.readable: Collection[str] | None = None
        """The shared keys that the plugin declared. None: the plugin may read any key, as outside of a call.
        """
        self.signature: Hashable = None
        """The value that the plugin's `sign` returned in this cycle. None: this process did not call `sign`.
        """
        self.pod_deleted = False
        """True in the last round of PreBind for a pod that was deleted between two rounds. The pod will not
        be bound. An ERROR that PreBind returns then becomes an Event of the pod.
        """
        self.signed_at: Hashable = None
        """The versions of the declared objects when the pod was signed. None: the pod was not signed."""

    @property
    def token(self) -> bytes | None:
        """The token that the host returns in every later call. None: not set."""
        return self._token

    @token.setter
    def token(self, value: bytes | None) -> None:
        self._token = value
        self.writes += 1

    @property
    def placement(self) -> CycleState | None:
        """The state of the placement that this state belongs to; None outside of a group's cycle."""
        return self._above(PlacementState)

    @property
    def group(self) -> CycleState | None:
        """The state of the group's cycle that this state belongs to; None outside of a group's cycle."""
        return self._above(GroupState)

    def _above(self, kind: type[CycleState]) -> CycleState | None:
        state = self.parent
        while state is not None and not isinstance(state, kind):
            state = state.parent
        return state

    @property
    def has_values(self) -> bool:
        """True if a plugin has written a value that is not removed."""
        return bool(self._store)

    def read(self, key: str) -> Any:
        """Return the value that this plugin wrote. Raises StateNotFoundError."""
        try:
            return self._store[key]
        except KeyError:
            raise StateNotFoundError(key) from None

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value that this plugin wrote, or `default`."""
        return self._store.get(key, default)

    def get_or_make(self, key: str, make: Callable[[], T]) -> T:
        """Return the value under `key`. The first call makes and stores the value."""
        if key not in self._store:
            self._store[key] = make()
            self.writes += 1
        value: T = self._store[key]
        return value

    def write(self, key: str, value: Any) -> None:
        """Store a value for this plugin's later calls in this cycle."""
        self._store[key] = value
        self.writes += 1

    def delete(self, key: str) -> None:
        """Delete a value. A missing key has no effect."""
        self._store.pop(key, None)
        self.writes += 1

    def publish(self, key: str, value: bytes) -> None:
        """Let other plugins read `value` as `<this plugin>/<key>`, if they declare the key."""
        full = f"{self.plugin}/{key}"
        self._shared.values[full] = value
        self._published.add(full)
        self.writes += 1

    def activate(self, *pods: Pod) -> None:
        """Move these pods to activeQ when this cycle has succeeded (kube-scheduler: pods-to-activate).

        The host reads the list at the end of the scheduling cycle, and again at the end of the binding cycle.
        """
        wanted = read_pods_to_activate(self._shared.values.get(f"{self.plugin}/{PODS_TO_ACTIVATE}", b"[]"))
        wanted.extend(pod.key for pod in pods)
        self.publish(PODS_TO_ACTIVATE, json.dumps(wanted).encode())

    def unpublish(self, key: str) -> None:
        """Withdraw a published value."""
        full = f"{self.plugin}/{key}"
        self._shared.values.pop(full, None)
        self._published.add(full)
        self.writes += 1

    def at_end(self, call: Callable[[], object]) -> None:
        """Call `call` once when a reservation has ended, on any thread: after Unreserve, or for a bound pod.

        For a bound pod, the call comes when every snapshot in use shows the pod as it was bound, after
        PostBind where the plugin has it. `call` must neither block nor raise.
        """
        self._at_end = [*(self._at_end or ()), call]

    @property
    def awaits_end(self) -> bool:
        """True if `at_end` was called and `was_ended` was not."""
        return self._at_end is not None

    def was_ended(self) -> None:
        """Make the calls of `at_end`. The SDK calls it after Unreserve, the transports for a bound pod."""
        calls, self._at_end = self._at_end, None
        for call in calls or ():
            call()

    def read_shared(self, key: str) -> bytes:
        """Return the value published as `<plugin>/<key>`.

        Raises StateNotFoundError if no plugin published the key, and UndeclaredError for another plugin's key
        that `reads_shared` does not list.
        """
        if self.readable is not None and key not in self.readable and not key.startswith(f"{self.plugin}/"):
            raise UndeclaredError(
                f"the shared value {key!r}", key, self.plugin, cure=f"add {key!r} to `reads_shared`"
            )
        try:
            return self._shared.values[key]
        except KeyError:
            raise StateNotFoundError(key) from None

    def take_published(self) -> dict[str, bytes | None]:
        """Return the values published since the last call (None: withdrawn). For the transports."""
        if not self._published:
            return {}
        taken = {key: self._shared.values.get(key) for key in self._published}
        self._published.clear()
        return taken

    @property
    def is_private(self) -> bool:
        """True when the plugin alone has the state: no published value and no token."""
        return self._token is None and not self._published

    def inherit(self, other: CycleState) -> None:
        """Copy the values of `other`, the state of an equal pod's cycle."""
        self._store.update(other._store)

    def clone(self) -> CycleState:
        """Return a copy for a what-if question. Values with a `clone` method are copied, other values are
        shared.
        """
        copy = CycleState(self.cycle_id, plugin=self.plugin, shared=SharedState(self._shared.values))
        copy.token = self.token
        copy.readable = self.readable
        copy.parent, copy.trial = self.parent, self.trial
        copy._store = {
            key: value.clone() if isinstance(value, Cloneable) else value
            for key, value in self._store.items()
        }
        return copy


class PlacementState(CycleState):
    """One plugin's view of one placement that a group's cycle tries."""

    __slots__ = ()


class GroupState(CycleState):
    """One plugin's view of a group's cycle."""

    __slots__ = ()
