"""Reads a pod's request and its GPUs from its annotations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from berth_sdk import Pod

PREFIX: Final = "gpu-share.berth.io/"
GPU_MILLI: Final = PREFIX + "gpu-milli"
GPU_COUNT: Final = PREFIX + "gpu-count"
GPU_MODEL: Final = PREFIX + "gpu-model"
GPU_INDEX: Final = PREFIX + "gpu-index"
GPU: Final = PREFIX + "gpu"
"""The extended resource: the number of GPUs of a node."""
MODEL: Final = PREFIX + "model"
"""The node label with the model of the GPUs."""
WHOLE: Final = 1000


class RequestError(ValueError):
    """The annotations are invalid. The text is for the pod's owner."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A pod's request: `milli` (1..1000) of each of `count` GPUs, of one of `models` (empty: any)."""

    count: int
    milli: int
    models: frozenset[str] = frozenset()


def request_of(pod: Pod) -> GpuRequest | None:
    """Return the pod's request. None: the pod needs no GPU. Raises RequestError."""
    told, requested = pod.annotations.get, pod.requests.get
    return _request(told(GPU_COUNT), told(GPU_MILLI), told(GPU_MODEL), requested(GPU), requested(GPU_MILLI))


@lru_cache(maxsize=4096)
def _request(
    count_text: str | None,
    milli_text: str | None,
    model_text: str | None,
    requested_count: int | None,
    requested_milli: int | None,
) -> GpuRequest | None:
    """Return the request, cached for all pods with the same annotations and requests."""
    # A request of 0 needs no GPU; a `gpu-milli` alone does not give the number of GPUs.
    if not (requested_count or requested_milli) and count_text is milli_text is model_text is None:
        return None
    count = _number(GPU_COUNT, count_text, requested_count or 1)
    milli = _number(GPU_MILLI, milli_text, WHOLE)
    if milli > WHOLE:
        raise RequestError(
            f"annotation {GPU_MILLI} is {milli}: one GPU has {WHOLE}, ask for several with {GPU_COUNT}"
        )
    for resource, wanted, requested in (
        (GPU, count, requested_count),
        (GPU_MILLI, count * milli, requested_milli),
    ):
        if requested is not None and requested != wanted:
            raise RequestError(
                f"the pod requests {requested} of {resource}, its annotations ask for {wanted}"
            )
    models = frozenset(filter(None, (name.strip() for name in (model_text or "").split("|"))))
    if model_text is not None and not models:
        raise RequestError(f"annotation {GPU_MODEL} names no model: write one, or several as 'A|B'")
    return GpuRequest(count, milli, models)


@lru_cache(maxsize=4096)
def read_indices(text: str, count: int, gpu_count: int) -> tuple[int, ...] | None:
    """Return the GPUs in `text` ("0,3"). None where it does not name `count` of the `gpu_count` GPUs of a
    node.
    """
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    indices = tuple(sorted({int(part) for part in parts}))
    return indices if len(indices) == len(parts) == count and indices[-1] < gpu_count else None


def write_indices(indices: tuple[int, ...]) -> str:
    """Return the text that `read_indices` reads."""
    return ",".join(map(str, indices))


def _number(key: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0):
        raise RequestError(f"annotation {key} must be a whole number above 0, but is {text[:40]!r}")
    return int(text)
