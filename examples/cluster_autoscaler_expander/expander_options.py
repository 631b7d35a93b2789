"""The options of cluster-autoscaler, what berth says of each, and the choice of the best."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import grpc
import kube_wire
from berth_sdk.errors import ObjectError
from berth_sdk.node import Node
from berth_sdk.pod import Pod

LOG: Final = logging.getLogger("expander")
SAME: Final = 1e-9
"""Two options whose unused shares differ by less are equally good."""
_PODS_KEPT: Final = 10_000


class RefusedError(Exception):
    """The error that the autoscaler gets. `code`: the gRPC code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One node group that the autoscaler could grow by `count` nodes of the kind `node`, for `pods`."""

    group: str
    count: int
    node: Node
    pods: Sequence[Pod]

    def unused(self, placed: Sequence[Pod]) -> float:
        """Return the share of the new nodes that these pods leave unused, 0 to 1.

        It is the mean over CPU, memory and each extended resource, such as GPUs.
        """
        shares = []
        for name, amount in self.node.allocatable.items():
            if amount > 0 and (name in ("cpu", "memory") or "/" in name):
                wanted = sum(pod.requests.get(name, 0) for pod in placed)
                shares.append(1 - wanted / (amount * self.count))
        return sum(shares) / len(shares) if shares else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The answer about one option. `placed`: the pods that fit; `reason`: why most of the others do not."""

    option: Option
    placed: Sequence[Pod]
    reason: str

    @property
    def rank(self) -> tuple[int, float]:
        """The place among the options; the smallest is the best."""
        return -len(self.placed), self.option.unused(self.placed)

    def __str__(self) -> str:
        of = f"{len(self.placed)} of {len(self.option.pods)} pods fit"
        return f"{of}, {100 * self.rank[1]:.0f} % unused" + (f"; {self.reason}" if self.reason else "")


Try = Callable[[Option, float], Awaitable[Tried]]
"""Asks berth about an option, within seconds. Raises RefusedError."""


def options_of(request: bytes) -> list[Option]:
    """Read a BestOptionsRequest. Raises RefusedError.

    Pods and nodes come as bytes of their own, or from an older cluster-autoscaler as messages, which are
    encoded alike. Where both are there, the bytes count.
    """
    try:
        content = kube_wire.decode("BestOptionsRequest", request)
        nodes = {**content.get("nodeMap", {}), **content.get("nodeBytesMap", {})}
        return [_option(one, nodes) for one in content.get("options", ())]
    except (kube_wire.WireError, ObjectError) as err:
        text = f"the question of cluster-autoscaler cannot be read: {err}"
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err


def _option(content: dict[str, Any], nodes: dict[str, bytes]) -> Option:
    group = content.get("nodeGroupId", "")
    if group not in nodes:
        text = f"node group {group!r}: the question has no node of it, so nobody can say what fits there"
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, text)
    return Option(
        group=group,
        count=content.get("nodeCount", 0),
        node=Node.from_object(kube_wire.node_of(nodes[group])),
        pods=[_pod(data) for data in content.get("podBytes") or content.get("pod", ())],
    )


@lru_cache(maxsize=_PODS_KEPT)
def _pod(data: bytes) -> Pod:
    """Return the pod. Most options are about the same pods, and so is the autoscaler's next question."""
    return Pod.from_object(kube_wire.pod_of(data))


async def choose(options: Sequence[Option], try_option: Try, ends_s: float) -> list[Tried]:
    """Return the best options, equally good; none: no pod fits in any group. Raises RefusedError.

    Tries the option first that is the best if all its pods fit, and stops where the next one cannot be
    better. Out of time, an option that places all its pods is good enough. `ends_s`: of `time.monotonic`.
    """
    hopeful = sorted((one for one in options if one.count > 0 and one.pods), key=_hope)
    best: list[Tried] = []
    for option in hopeful:
        if best and _is_worse(_hope(option), best[0].rank):
            break
        try:
            tried = await try_option(option, ends_s - time.monotonic())
        except RefusedError as err:
            is_late = err.code is grpc.StatusCode.DEADLINE_EXCEEDED
            if is_late and best and len(best[0].placed) == len(best[0].option.pods):
                LOG.warning("node group %s: %s", option.group, err)
                break
            raise
        LOG.info("node group %s, %d nodes: %s", option.group, option.count, tried)
        if not tried.placed or (best and _is_worse(tried.rank, best[0].rank)):
            continue
        if best and _is_worse(best[0].rank, tried.rank):
            best = []
        best.append(tried)
    return best


def _hope(option: Option) -> tuple[int, float]:
    """Return the rank of the option if all its pods fit."""
    return -len(option.pods), option.unused(option.pods)


def _is_worse(one: tuple[int, float], other: tuple[int, float]) -> bool:
    return one[0] > other[0] or (one[0] == other[0] and one[1] > other[1] + SAME)
