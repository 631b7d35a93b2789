"""The inputs that a plugin's kept answers follow from, and whether the answers still hold.

The host and the SDK use the same code.

    of the pod        the signature                                     `Follows.signature`
    of the cluster    the declared part of the tables (`depends_on`)    `StaleSlots`, `NodeColumns.version`
                      the declared objects, the plugin's requeues       `Follows.versions`, `JointVersions`

An answer ends when one of these changes, never after a time. Values by signature are kept in `BySignature`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, NoConcern
from berth_sdk.kept.row_contents import Reads
from berth_sdk.needs import Need, NeedKind
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import ALL_FIELDS, PodField, are_of_spec, signing
from berth_sdk.signature import wishes
from berth_sdk.tables import Moved, NodeTable, SlotFollower
from berth_sdk.tables.node_columns import NodeColumns

V = TypeVar("V")
Sign = Callable[[Pod, NodeTable], Hashable]
BY_ROW: Final = (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES)
"""The parts of the tables for which an answer is kept row by row."""
_LOG: Final = logging.getLogger("berth_sdk.plugin")


class Versioned(Protocol):
    """The objects of one resource, as far as their version: it changes with any of them."""

    @property
    def version(self) -> int:
        """The version of the objects."""
        ...


class ObjectVersions(Protocol):
    """The versions of declared objects: a plugin's handle, or the host's snapshot for a served plugin."""

    def objects(self, resource: str) -> Versioned:
        """Return the objects of a declared resource."""
        ...


def concern(signature: Hashable) -> NoConcern | None:
    """Return the NoConcern in a signature, alone or as the first part of a pair; None: the pod concerns the
    plugin at all points.
    """
    if type(signature) is NoConcern:
        return signature
    if type(signature) is tuple and len(signature) == 2 and type(signature[0]) is NoConcern:
        return signature[0]
    return None


class Follows:
    """The inputs that the answers of one plugin follow from.

    `depends_on`: the part of the tables; None: not declared, so no answers are kept. `sign`: returns the
    plugin's own signature of a pod; None: the signature has all scheduling fields. `sign_spec`: the same, for
    a signature that only depends on the pod's spec. With both, `sign_spec` returns None for a spec that does
    not decide, and `sign` signs the pod. `reads`: the columns of a row; None: not declared.
    """

    def __init__(
        self,
        plugin: str,
        depends_on: DependsOn | None,
        needs: Iterable[Need] = (),
        handle: ObjectVersions | None = None,
        sign: Sign | None = None,
        sign_spec: Callable[[Pod], Hashable] | None = None,
        *,
        reads: Reads | None = None,
    ) -> None:
        """Set the inputs. `handle`: has the plugin's objects; None: these cannot be read."""
        self.plugin = plugin
        self.depends_on = depends_on
        self.reads = reads
        self.sign_spec = sign_spec
        self.sign_rest = None if sign_spec is None else sign
        """Signs the pods for which `sign_spec` returns None; None: `sign_spec` signs all pods."""
        self.sign: Sign | None = sign
        if sign_spec is not None:
            self.sign = by_pod(sign_spec) if sign is None else _first_by_spec(sign_spec, sign)
        self.requeues = 0
        """The number of requeues by the plugin, each of which ends its kept answers."""
        self._handle = handle
        self._resources = [need.resource for need in needs if need.kind is NeedKind.OBJECT]
        self._readers: Sequence[Versioned] | None = None
        self._warned = False

    # --- the pod ---------------------------------------------------------------------------------

    def signature(self, state: CycleState, pod: Pod, nodes: NodeTable, versions: Hashable) -> Hashable:
        """Return the pod's signature, made once in a cycle; if signing fails, one that equals no other.

        `versions`: the current ones. Sets `state.signed_at` to the versions at which the pod was signed. If
        they differ from `versions`, an object has changed within the cycle, and the signature may be wrong.
        """
        if state.signature is None:
            state.signed_at = versions
            state.signature = wishes(pod) if self.sign is None else self._own(self.sign, pod, nodes)
        return state.signature

    def _own(self, sign: Sign, pod: Pod, nodes: NodeTable) -> Hashable:
        try:
            signature = sign(pod, nodes)
            hash(signature)
        except Exception as err:  # noqa: BLE001 (without a signature, the plugin may still answer)
            if not self._warned:
                self._warned = True
                _LOG.warning(
                    "%s cannot sign pod %s, and shares nothing for it: %r", self.plugin, pod.key, err
                )
            return object()
        return signature

    # --- the cluster -----------------------------------------------------------------------------

    @property
    def by_row(self) -> bool:
        """True for a plugin whose answers are kept row by row."""
        return self.depends_on in BY_ROW

    @property
    def is_readable(self) -> bool:
        """False if the plugin declares objects and there is no handle to read their versions."""
        return self._handle is not None or not self._resources

    @property
    def has_objects(self) -> bool:
        """True for a plugin that reads declared objects beside the tables."""
        return bool(self._resources)

    def forget(self) -> None:
        """End all kept answers, also those of open calls.

        Called when the plugin has requeued pods, and when its copy of the state was wrong.
        """
        self.requeues += 1

    def versions(self) -> tuple[int, ...]:
        """Return the number of requeues and the versions of the declared objects.

        Kept answers hold while these are equal.
        """
        readers = self._readers
        if readers is None:
            readers = self.readers()
        if not readers:
            return (self.requeues,)
        return (self.requeues, *[reader.version for reader in readers])

    def readers(self) -> Sequence[Versioned]:
        """Return the readers of the declared objects."""
        if self._readers is None:
            handle = self._handle
            self._readers = () if handle is None else [handle.objects(one) for one in self._resources]
        return self._readers


class JointVersions:
    """The versions of several plugins, read in one step. The host reads them for every pod."""

    __slots__ = ("_follows", "_readers")

    def __init__(self, follows: Iterable[Follows]) -> None:
        self._follows = tuple(follows)
        self._readers: Sequence[Versioned] | None = None

    def read(self) -> tuple[int, ...]:
        """Return the number of requeues of each plugin, then the version of each reader."""
        if self._readers is None:
            # Plugins that read all fields of a resource share its reader.
            readers = {id(one): one for follows in self._follows for one in follows.readers()}
            self._readers = tuple(readers.values())
        return (*[one.requeues for one in self._follows], *[one.version for one in self._readers])


class StaleSlots:
    """The slots whose answers have ended since the last call.

    NODE, ROW: the slots whose node or row changed. NODES: all slots, after a change of any Node object.
    """

    __slots__ = ("_follower", "_of_all")

    def __init__(self, depends_on: DependsOn | None, columns: NodeColumns | None = None) -> None:
        """Begin. `columns`: the table of the owner's answers, which hold now; None: it has no answers yet."""
        self._follower = SlotFollower(Moved.ROW if depends_on is DependsOn.ROW else Moved.NODE, columns)
        self._of_all = depends_on is DependsOn.NODES

    def since_last(self, columns: NodeColumns) -> list[int] | None:
        """Return the slots, each once; None: all slots, also after too many changes or for another table."""
        moved = self._follower.moved_in(columns)
        return None if moved and self._of_all else moved


class BySignature(Generic[V]):
    """One value per signature, `most` at most. A new value replaces the least recently used one."""

    __slots__ = ("_values", "_version", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._version: Hashable = None

    def __len__(self) -> int:
        return len(self._values)

    def as_of(self, version: Hashable) -> bool:
        """Drop all values that were kept under another version; return True if they were dropped."""
        if self._version == version:
            return False
        self._version = version
        self._values.clear()
        return True

    def get(self, signature: Hashable) -> V | None:
        """Return the value of a signature, or None."""
        value = self._values.get(signature)
        if value is not None:
            self._values.move_to_end(signature)
        return value

    def keep(self, signature: Hashable, value: V) -> V | None:
        """Keep a value, in place of an earlier one; return a dropped value of another signature, if any."""
        self._values[signature] = value
        if len(self._values) > self.most:
            return self._values.popitem(last=False)[1]
        return None

    def drop(self, signature: Hashable) -> None:
        """Drop the value of a signature, if there is one."""
        self._values.pop(signature, None)

    def clear(self) -> None:
        """Drop all values."""
        self._values.clear()


def by_pod(sign_pod: Callable[[Pod], Hashable]) -> Sign:
    """Return `sign_pod`, which reads only the pod, as a function that also takes the nodes."""

    def sign(pod: Pod, nodes: NodeTable) -> Hashable:
        return sign_pod(pod)

    return sign


def _first_by_spec(sign_spec: Callable[[Pod], Hashable], sign_rest: Sign) -> Sign:
    """Return a function that calls `sign_rest` for the pods whose spec does not decide."""

    def sign(pod: Pod, nodes: NodeTable) -> Hashable:
        by_spec = sign_spec(pod)
        return sign_rest(pod, nodes) if by_spec is None else by_spec

    return sign


def by_fields(fields: Iterable[PodField]) -> tuple[Sign | None, Callable[[Pod], Hashable] | None]:
    """Return `sign` and `sign_spec` of `Follows` for pods that are equal in these fields; one is None.

    Both are None for all fields: the pod's wishes.
    """
    chosen = frozenset(fields)
    if len(chosen) == len(ALL_FIELDS):
        return None, None
    read = signing(chosen)
    return (None, read) if are_of_spec(chosen) else (by_pod(read), None)
