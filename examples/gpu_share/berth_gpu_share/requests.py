"""What a pod asks for, and which GPUs it got, as its annotations say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_sdk import Pod

PREFIX: Final = "gpu-share.berth.io/"
GPU_MILLI: Final = PREFIX + "gpu-milli"
GPU_COUNT: Final = PREFIX + "gpu-count"
GPU_MODEL: Final = PREFIX + "gpu-model"
GPU_INDEX: Final = PREFIX + "gpu-index"
GPU: Final = PREFIX + "gpu"
"""The extended resource: how many GPUs a node has."""
MODEL: Final = PREFIX + "model"
"""The node label."""
WHOLE: Final = 1000


class RequestError(ValueError):
    """The annotations make no sense; the text is for the pod's owner."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """`milli` (1..1000) of each of `count` GPUs, of one of `models` (empty: any)."""

    count: int
    milli: int
    models: frozenset[str] = frozenset()


def request_of(pod: Pod) -> GpuRequest | None:
    """What the pod asks for; None: no GPU. Raises RequestError."""
    told = pod.annotations
    # A request of 0 asks for nothing; one of `gpu-milli` alone does not say of how many GPUs.
    requested_any = pod.requests.get(GPU, 0) or pod.requests.get(GPU_MILLI, 0)
    if not requested_any and not any(key in told for key in (GPU_MILLI, GPU_COUNT, GPU_MODEL)):
        return None
    count = _number(told, GPU_COUNT, pod.requests.get(GPU, 0) or 1)
    milli = _number(told, GPU_MILLI, WHOLE)
    if milli > WHOLE:
        raise RequestError(
            f"annotation {GPU_MILLI} is {milli}: one GPU has {WHOLE}, ask for several with {GPU_COUNT}"
        )
    for resource, wanted in ((GPU, count), (GPU_MILLI, count * milli)):
        requested = pod.requests.get(resource, wanted)
        if requested != wanted:
            raise RequestError(
                f"the pod requests {requested} of {resource}, its annotations ask for {wanted}"
            )
    models = frozenset(filter(None, (name.strip() for name in told.get(GPU_MODEL, "").split("|"))))
    if GPU_MODEL in told and not models:
        raise RequestError(f"annotation {GPU_MODEL} names no model: write one, or several as 'A|B'")
    return GpuRequest(count, milli, models)


def read_indices(text: str, request: GpuRequest, gpu_count: int) -> tuple[int, ...] | None:
    """The GPUs in `text` ("0,3"); None where it does not name as many GPUs of the node as were asked for."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    indices = tuple(sorted({int(part) for part in parts}))
    return indices if len(indices) == len(parts) == request.count and indices[-1] < gpu_count else None


def write_indices(indices: tuple[int, ...]) -> str:
    """As `read_indices` reads them."""
    return ",".join(map(str, indices))


def _number(told: Mapping[str, str], key: str, default: int) -> int:
    text = told.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0):
        raise RequestError(f"annotation {key} must be a whole number above 0, but is {text[:40]!r}")
    return int(text)
