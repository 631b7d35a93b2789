"""One scheduling attempt's data: a private store per plugin, and shared keys by declaration.

Made by the host at the start of a cycle and by the SDK's server at its first call; lives until
PostBind or the end of Unreserve. Source: KEP-624 CycleState; kube-scheduler
`framework/cycle_state.go`; plugins in other processes cannot reach into each other's data, so each
has a store of its own and publishes the values that others may read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from berth_sdk.errors import BerthError, UndeclaredError
from berth_sdk.pod import Pod

T = TypeVar("T")
PODS_TO_ACTIVATE: Final = "pods-to-activate"
"""The published key under which a plugin names pods for `CycleState.activate`."""


def read_pods_to_activate(value: bytes) -> list[str]:
    """The pods (`namespace/name`) named by a plugin; nonsense names no pod."""
    try:
        names = json.loads(value)
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class StateNotFoundError(BerthError, KeyError):
    """Nothing is stored under this key in this cycle. Attribute: key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"cycle state has no {key!r}: was it written earlier in this cycle?")

    def __str__(self) -> str:
        return str(self.args[0])


@runtime_checkable
class Cloneable(Protocol):
    """A stored value that must be copied for a what-if; other values are shared between the copies."""

    def clone(self) -> Cloneable:
        """A copy that can change without changing this one."""
        ...


class SharedState:
    """The published values of one cycle, `<plugin>/<key>` -> bytes. Kept by the host."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, bytes] | None = None) -> None:
        self.values: dict[str, bytes] = dict(values or {})


class CycleState:
    """One plugin's view of one cycle.

    `cycle_id` is also the reservation's id. `token` (at most 4 KiB) is echoed by the host in every
    later call of the cycle and survives a restart of the plugin. Not valid after the cycle.

    >>> state = CycleState("cycle-1", plugin="Demo")
    >>> state.write("lights", 3)
    >>> state.read("lights")
    3
    """

    __slots__ = (
        "_published",
        "_shared",
        "_store",
        "_token",
        "cycle_id",
        "plugin",
        "pod_deleted",
        "readable",
        "signature",
        "signed_at",
        "writes",
    )

    def __init__(self, cycle_id: str, *, plugin: str = "", shared: SharedState | None = None) -> None:
        self.cycle_id = cycle_id
        self.plugin = plugin
        self.writes = 0
        """Counts the writes, publications and deletions."""
        self._token: bytes | None = None
        self._store: dict[str, Any] = {}
        self._shared = shared if shared is not None else SharedState()
        self._published: set[str] = set()
        self.readable: Collection[str] | None = None
        """The shared keys that the plugin declared; None: any may be read, as outside of a call."""
        self.signature: Hashable = None
        """The answer of the plugin's `sign` in this cycle; None: it was not asked in this process."""
        self.pod_deleted = False
        """True in the last round of PreBind of a pod that was deleted between two rounds. The pod is not
        bound then; an ERROR is what its owner reads."""
        self.signed_at: Hashable = None
        """The versions of the declared objects when the pod was signed; None: it was not."""

    @property
    def token(self) -> bytes | None:
        """The token that the host echoes in every later call; None: not set."""
        return self._token

    @token.setter
    def token(self, value: bytes | None) -> None:
        self._token = value
        self.writes += 1

    def read(self, key: str) -> Any:
        """The value that this plugin wrote. Raises StateNotFoundError."""
        try:
            return self._store[key]
        except KeyError:
            raise StateNotFoundError(key) from None

    def get(self, key: str, default: Any = None) -> Any:
        """The value that this plugin wrote, or `default`."""
        return self._store.get(key, default)

    def get_or_make(self, key: str, make: Callable[[], T]) -> T:
        """The value under `key`, made and kept at the first call."""
        if key not in self._store:
            self._store[key] = make()
            self.writes += 1
        value: T = self._store[key]
        return value

    def write(self, key: str, value: Any) -> None:
        """Keep a value for this plugin's later calls in this cycle."""
        self._store[key] = value
        self.writes += 1

    def delete(self, key: str) -> None:
        """Forget a value; a missing one is fine."""
        self._store.pop(key, None)
        self.writes += 1

    def publish(self, key: str, value: bytes) -> None:
        """Let other plugins read `value` as `<this plugin>/<key>`, if they declare it."""
        full = f"{self.plugin}/{key}"
        self._shared.values[full] = value
        self._published.add(full)
        self.writes += 1

    def activate(self, *pods: Pod) -> None:
        """Move these pods to activeQ when this cycle has succeeded (kube-scheduler: pods-to-activate).

        The host looks at the end of the scheduling cycle, and again at the end of the binding cycle.
        """
        wanted = read_pods_to_activate(self._shared.values.get(f"{self.plugin}/{PODS_TO_ACTIVATE}", b"[]"))
        wanted.extend(pod.key for pod in pods)
        self.publish(PODS_TO_ACTIVATE, json.dumps(wanted).encode())

    def unpublish(self, key: str) -> None:
        """Take a published value back."""
        full = f"{self.plugin}/{key}"
        self._shared.values.pop(full, None)
        self._published.add(full)
        self.writes += 1

    def read_shared(self, key: str) -> bytes:
        """A value published as `<plugin>/<key>`. Raises StateNotFoundError.

        A plugin declares the keys of others that it reads in `reads_shared`: UndeclaredError for the rest.
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
        """The values published (None: taken back) since the last call; for the transports."""
        if not self._published:
            return {}
        taken = {key: self._shared.values.get(key) for key in self._published}
        self._published.clear()
        return taken

    @property
    def is_private(self) -> bool:
        """Nothing was published and there is no token: only the plugin knows the state."""
        return self._token is None and not self._published

    def inherit(self, other: CycleState) -> None:
        """Begin with the values of `other`, the store of an equal pod's cycle."""
        self._store.update(other._store)

    def clone(self) -> CycleState:
        """A copy for a what-if: values with a `clone` method are copied, other values are shared."""
        copy = CycleState(self.cycle_id, plugin=self.plugin, shared=SharedState(self._shared.values))
        copy.token = self.token
        copy.readable = self.readable
        copy._store = {
            key: value.clone() if isinstance(value, Cloneable) else value
            for key, value in self._store.items()
        }
        return copy
