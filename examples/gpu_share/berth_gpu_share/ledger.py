"""The free part of every GPU of every node, in columns that follow the snapshot.

The snapshot has the pods of each node, reserved ones included. The annotation of a pod has the numbers of its
GPUs. While a cycle holds GPUs for the pod, the plugin's `Reservations` has them. So each pod counts once, on
the node where the snapshot has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from berth_sdk import NodeTable, Pod, PodTable, Reservations
from numpy.typing import NDArray

from berth_gpu_share.requests import (
    GPU,
    GPU_INDEX,
    WHOLE,
    GpuRequest,
    RequestError,
    read_indices,
    request_of,
)

MAX_GPUS: Final = 64
"""The maximum of GPUs of one node. The plugin does not use more."""
MAX_KEPT: Final = 256
"""The number of kinds of requests whose fit is cached."""
MAX_MOVED: Final = 8192
"""The number of changes after which every fit is computed again."""


class Placement(NamedTuple):
    """The GPUs of a pod: `milli` of each of `indices`."""

    indices: tuple[int, ...]
    milli: int


@dataclass(slots=True)
class Fit:
    """The fit of one kind of request. `seen`: the length of the ledger's list of changes at that time."""

    left_over: NDArray[np.int64]
    seen: int


class Ledger:
    """The free GPUs. `free` is int64[GPUs, slots], in milli, 0 where a node has no such GPU. `gpu_count` is
    int64[slots].

    Slots are `NodeTable.slots`. There is one row per GPU, so that numpy runs along the nodes. `held`: the
    plugin's reservations. They count from the next snapshot on, which has the pod on its node.
    """

    def __init__(self, held: Reservations[Placement]) -> None:
        self.free: NDArray[np.int64] = np.zeros((1, 0), dtype=np.int64)
        self.gpu_count: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._generation: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._whole: NodeTable | None = None
        self._pods: PodTable | None = None
        self._held = held
        self._reserved: Mapping[str, Placement] = {}
        self._moved: list[int] = []
        self._fits: dict[tuple[int, int], Fit] = {}

    # --- following the snapshot --------------------------------------------------------------------

    def update(self, nodes: NodeTable) -> None:
        """Read the nodes that changed since the last call: usually one or two, in a cluster of any size."""
        whole = nodes.whole
        if whole is self._whole:  # no change: any change makes another table
            return
        self._whole = whole
        self._reserved = {one.pod.uid: one.value for _, one in self._held.items()}
        if whole.pods is not self._pods:  # another snapshot: generations start again
            self._pods = whole.pods
            self._generation = np.zeros(0, dtype=np.int64)
        self._grow(int(whole.slots[-1]) + 1 if len(whole) else 0)
        generation = whole.generation
        (changed,) = np.nonzero(self._generation.take(whole.slots) != generation)
        for position in changed.tolist():
            self._read(whole, position)
        self._generation[whole.slots[changed]] = generation[changed]
        if len(self._moved) > MAX_MOVED:
            self._moved.clear()
            self._fits.clear()

    def placement(self, pod: Pod, gpu_count: int) -> Placement | None:
        """Return the GPUs of a pod on a node. None: the pod has no GPU. Unknown GPUs: all of the node's, to
        be safe.
        """
        try:
            request = request_of(pod)
        except RequestError:
            return Placement(tuple(range(gpu_count)), WHOLE)
        if request is None:
            return None
        reserved = self._reserved.get(pod.uid)
        if reserved is not None:
            return reserved
        # The annotation of a pod that is only reserved, for another profile, may be from an earlier attempt.
        is_assumed = self._pods is not None and self._pods.is_assumed(pod.uid)
        told = "" if is_assumed else pod.annotations.get(GPU_INDEX, "")
        indices = read_indices(told, request.count, gpu_count)
        return Placement(tuple(range(gpu_count)) if indices is None else indices, request.milli)

    # --- choosing ----------------------------------------------------------------------------------

    def left_over(self, request: GpuRequest) -> NDArray[np.int64]:
        """Return int64[slots]: the sum left on the best-fitting GPUs, -1 where too few GPUs have enough left.

        Cached for each kind of request and updated where something changed: read the result before the next
        update.
        """
        fit = self._fits.get((request.count, request.milli))
        if fit is None or len(fit.left_over) != len(self.gpu_count):
            if len(self._fits) >= MAX_KEPT:
                self._fits.clear()
            fit = Fit(left_over_of(self.free, request), len(self._moved))
            self._fits[request.count, request.milli] = fit
        elif fit.seen < len(self._moved):
            slots = self._moved[fit.seen :]
            fit.left_over[slots] = left_over_of(self.free.take(slots, axis=1), request)
            fit.seen = len(self._moved)
        return fit.left_over

    def free_if(self, slot: int, removed: Sequence[Pod], added: Sequence[Pod]) -> NDArray[np.int64]:
        """Return int64[GPUs] of one node without the pods `removed` and with the pods `added`, each where it
        fits best.
        """
        gpu_count = int(self.gpu_count[slot])
        free: NDArray[np.int64] = self.free[:, slot].copy()
        for pod in removed:
            placement = self.placement(pod, gpu_count)
            if placement is not None:
                free[list(placement.indices)] += placement.milli
        for pod in added:
            try:
                request = request_of(pod)
            except RequestError:
                request = GpuRequest(gpu_count, WHOLE)
            if request is not None:
                indices = self.choose(free, request)
                free[list(range(gpu_count) if indices is None else indices)] -= request.milli
        return free

    @staticmethod
    def choose(free: NDArray[np.int64], request: GpuRequest) -> tuple[int, ...] | None:
        """Return the GPUs of one node that fit best, ascending: those with the least to spare. None: too few
        fit.
        """
        # A node has few GPUs: plain Python is faster here than numpy.
        fitting = sorted(
            (milli, index) for index, milli in enumerate(free.tolist()) if milli >= request.milli
        )
        if len(fitting) < request.count:
            return None
        return tuple(sorted(index for _, index in fitting[: request.count]))

    # --- plumbing ----------------------------------------------------------------------------------

    def _read(self, whole: NodeTable, position: int) -> None:
        node = whole.node(position)
        gpu_count = max(min(node.allocatable.get(GPU, 0), MAX_GPUS), 0)
        more = gpu_count - len(self.free)
        if more > 0:
            self.free = np.pad(self.free, ((0, more), (0, 0)))
        self.gpu_count[node.index] = gpu_count
        self._moved.append(node.index)
        free = [WHOLE] * gpu_count + [0] * (len(self.free) - gpu_count)
        for pod in node.pods if gpu_count else ():
            placement = self.placement(pod, gpu_count)
            if placement is not None:
                for index in placement.indices:
                    free[index] -= placement.milli
        self.free[:, node.index] = free

    def _grow(self, slots: int) -> None:
        more = slots - len(self._generation)
        if more > 0:
            self._generation = np.pad(self._generation, (0, more), constant_values=-1)
        more = slots - len(self.gpu_count)
        if more > 0:
            self.free = np.pad(self.free, ((0, 0), (0, more)))
            self.gpu_count = np.pad(self.gpu_count, (0, more))


def left_over_of(free: NDArray[np.int64], request: GpuRequest) -> NDArray[np.int64]:
    """Return int64[n] from the free parts (int64[GPUs, n]): see `Ledger.left_over`."""
    if len(free) < request.count:
        return np.full(free.shape[1], -1)
    left = free - request.milli
    left[left < 0] = WHOLE  # more than any GPU that fits has left
    if request.count == 1:
        most = total = left.min(axis=0)
    else:
        best = np.sort(left, axis=0)[: request.count]
        most, total = best[-1], best.sum(axis=0)
    return np.where(most == WHOLE, -1, total)
