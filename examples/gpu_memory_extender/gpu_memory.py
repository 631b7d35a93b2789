"""The decisions about GPU memory: which GPU a pod gets, and how good a node is for it.

The extender and the plugin of this folder both call these functions, so they decide alike. A node offers its
GPU memory as the extended resource `gpu-memory.example.com/gib`, the sum over its GPUs, which are equally
large; the label `gpu-memory.example.com/gpus` is their number. A pod requests memory of one GPU. The
annotation `gpu-memory.example.com/gpu` says which GPU a pod got.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

PREFIX: Final = "gpu-memory.example.com/"
MEMORY: Final = f"{PREFIX}gib"
GPUS: Final = f"{PREFIX}gpus"
GPU: Final = f"{PREFIX}gpu"
BEST: Final = 10
"""The points of a node whose GPU the pod fills completely: the most that an extender gives."""
NO_GPU: Final = "node has no GPU as large as that"
FULL: Final = "no GPU of the node has enough memory left"


_UNITS: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def amount(quantity: str) -> int:
    """Return a whole quantity of Kubernetes as a number; the API server writes 1000 as 1k. Raises
    ValueError.
    """
    number = quantity.rstrip("kKMGi")
    return int(number) * _UNITS.get(quantity[len(number) :], 1)


def sizes(memory_gib: int, gpus_label: str) -> list[int]:
    """Return the GiB of each GPU of a node. Empty for a node without GPUs, or with a malformed label."""
    count = int(gpus_label) if gpus_label.isdecimal() else 0
    return [memory_gib // count] * count if count else []


def left(sizes_gib: Sequence[int], pods: Iterable[tuple[int, str]]) -> list[int]:
    """Return the GiB left on each GPU. `pods`: (GiB, annotation) of the pods on the node.

    A pod whose annotation names none of the GPUs counts on every GPU, to be safe.
    """
    rest = list(sizes_gib)
    for gib, annotation in pods:
        known = annotation.isdecimal() and int(annotation) < len(rest)
        for gpu in (int(annotation),) if known else range(len(rest)):
            rest[gpu] -= gib
    return rest


def best_gpu(left_gib: Sequence[int], wanted_gib: int) -> int | None:
    """Return the GPU on which the least is left over, the first of equal ones. None: no GPU has enough."""
    fitting = [gpu for gpu, gib in enumerate(left_gib) if gib >= wanted_gib]
    return min(fitting, key=left_gib.__getitem__) if fitting else None


def refusal(sizes_gib: Sequence[int], left_gib: Sequence[int], wanted_gib: int) -> tuple[str, bool] | None:
    """Return why a node cannot take the pod, and whether removing pods may change that. None: it can."""
    if not wanted_gib:
        return None
    if max(sizes_gib, default=0) < wanted_gib:
        return NO_GPU, False
    return (FULL, True) if best_gpu(left_gib, wanted_gib) is None else None


def points(sizes_gib: Sequence[int], left_gib: Sequence[int], wanted_gib: int) -> int:
    """Return 0 to BEST: the fuller the pod makes its GPU, the better. 0 for a node without
    room, and for a pod that requests no GPU memory.
    """
    gpu = best_gpu(left_gib, wanted_gib) if wanted_gib else None
    if gpu is None:
        return 0
    return BEST - BEST * (left_gib[gpu] - wanted_gib) // sizes_gib[gpu]
