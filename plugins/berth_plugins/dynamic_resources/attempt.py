"""`Attempt`: a pod's claims in one scheduling cycle, and the search results per node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from berth_sdk.kube_object import KubeObject
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.pod import Pod
from numpy.typing import NDArray

from berth_plugins.dynamic_resources.claims import allocation_of
from berth_plugins.dynamic_resources.ledger import ClaimKey
from berth_plugins.dynamic_resources.requests import requests_of
from berth_plugins.dynamic_resources.search import Choice, ClaimToAllocate

Json = dict[str, Any]
MAX_ALTERNATIVES: Final = 8
"""The maximum of alternatives of one request. The first alternative is worth as many points."""


@dataclass(frozen=True, slots=True, eq=False)
class PodClaim:
    """One claim of the pod. `selector`: where its allocation can be used; None: on every node.

    `promised`: the allocation that another member of the pod's group reserved, or that of a write without an
    answer, until the claim has it; None: the claim is allocated, or nobody's.
    `consumer`: the group that the claim is reserved for instead of the pod; None: the pod.
    `is_allocated`: the claim has an allocation.
    """

    claim: KubeObject
    selector: NodeSelector | None = None
    promised: Json | None = None
    consumer: Json | None = None
    is_allocated: bool = field(init=False)

    def __post_init__(self) -> None:
        """Read once what is asked for every entry of the pod's list."""
        object.__setattr__(self, "is_allocated", allocation_of(self.claim) is not None)

    @property
    def key(self) -> ClaimKey:
        """Namespace and name."""
        return self.claim.ref.namespace, self.claim.ref.name

    def to_allocate(self) -> ClaimToAllocate:
        """Return the requests of the claim that the search has to satisfy."""
        spec = self.claim.get("spec") or {}
        return ClaimToAllocate(self.claim.ref.key, spec, requests_of(spec))


@dataclass(frozen=True, slots=True, eq=False)
class ExtendedDemand:
    """The pod's extended resources that device classes provide. `served`: class by resource. `others`:
    resources that only nodes offer. `stale`: the claim of an earlier attempt.
    """

    served: Mapping[str, str]
    others: tuple[str, ...] = ()
    stale: KubeObject | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FoundDevices:
    """The search result for one kind of node: the devices of each claim, those of the extended resources
    last.

    `mappings`: which container uses which of these requests.
    """

    claims: tuple[ClaimToAllocate, ...]
    choices: tuple[tuple[Choice, ...], ...]
    mappings: tuple[Json, ...] = ()

    @property
    def score(self) -> int:
        """Points for early alternatives of prioritised lists, for any number of devices."""
        return sum(
            MAX_ALTERNATIVES - index
            for chosen in self.choices
            for _, index in {
                (choice.request.full_name, choice.request.index) for choice in chosen if choice.request.parent
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The search results of one cycle by slot: `found` (object[slots], None for none), and its points
    `scores` (int64[slots]). `slot_of`: the slots by the names of nodes.
    """

    slot_of: Mapping[str, int]
    found: NDArray[np.object_]
    scores: NDArray[np.int64]

    def on(self, node_name: str) -> FoundDevices | None:
        """Return the devices found for a node; None: none were found, or none were needed."""
        slot = self.slot_of.get(node_name)
        devices: FoundDevices | None = None if slot is None else self.found[slot]
        return devices

    def take_over(self, other: Outcomes) -> None:
        """Take the results for the nodes that `other` has, too."""
        for name, slot in other.slot_of.items():
            here = self.slot_of.get(name)
            if here is not None:
                self.found[here], self.scores[here] = other.found[slot], other.scores[slot]


@dataclass(slots=True, eq=False)
class Attempt:
    """One cycle. Without claims and extended resources, the pod needs nothing from this plugin.

    `claims`: one for each entry of the pod's list; entries that name the same claim have the same object.

    `group`: the key of the pod's root group; "" for none.
    """

    pod: Pod
    claims: tuple[PodClaim, ...] = ()
    extended: ExtendedDemand | None = None
    group: str = ""
    unavailable: set[int] = field(default_factory=set)
    outcomes: Outcomes | None = None

    def outcomes_over(self, slot_count: int, slot_of: Mapping[str, int]) -> Outcomes:
        """Return the outcomes for these slots, with those of the attempt's earlier searches."""
        before = self.outcomes
        if before is not None and before.slot_of is slot_of and len(before.found) == slot_count:
            return before
        found = np.full(slot_count, None, dtype=np.object_)
        outcomes = self.outcomes = Outcomes(slot_of, found, np.zeros(slot_count, dtype=np.int64))
        if before is not None:
            # A plugin may ask about a new node in a cycle that has found devices on others.
            outcomes.take_over(before)
        return outcomes

    @property
    def is_empty(self) -> bool:
        """True if the pod needs nothing from this plugin."""
        return not self.claims and self.extended is None

    @property
    def unallocated(self) -> tuple[PodClaim, ...]:
        """The claims without an allocation, which the search is for."""
        return tuple(one for one in self.claims if not one.is_allocated and one.promised is None)
