"""Calls to the cluster that are sent again after errors that may pass: status patches and Bindings.

The pauses between tries are real time, as deadlines of calls are, also in a simulation.
Source: kube-scheduler `pkg/scheduler/util/utils.go` (Retriable, BindPod, PatchPodStatus), client-go
`util/retry` (DefaultBackoff), v1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from berth_sdk import chance
from berth_sdk.kube_object import ObjectRef

from berth_host.errors.cluster import ClusterError, RepeatableError, UnavailableError

T = TypeVar("T")
TRIES: Final = 4
FIRST_WAIT_S: Final = 0.01
WAIT_FACTOR: Final = 5
WAIT_JITTER: Final = 0.1


class Binder(Protocol):
    """Posts Bindings."""

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Post the Binding. Raises ClusterError."""
        ...


async def repeated(call: Callable[[], Awaitable[T]], may_help: Callable[[ClusterError], bool]) -> T:
    """Await `call()` up to TRIES times, as long as it raises errors for which `may_help` returns True.

    Raises the error of the last try.
    """
    wait_s = FIRST_WAIT_S
    for _ in range(TRIES - 1):
        try:
            return await call()
        except ClusterError as err:
            if not may_help(err):
                raise
        await asyncio.sleep(wait_s * (1 + WAIT_JITTER * chance.share()))
        wait_s *= WAIT_FACTOR
    return await call()


class RepeatingBinder:
    """A binder that sends a Binding again after an internal error, an unavailable service or a refused
    connection. A conflict is final.
    """

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Post the Binding, up to TRIES times. Raises ClusterError.

        If an earlier try may have bound the pod, the error is one whose outcome is unknown.
        """
        tries = 0

        async def post() -> None:
            nonlocal tries
            tries += 1
            await self._binder.bind(pod, node_name)

        try:
            await repeated(post, lambda err: isinstance(err, RepeatableError))
        except ClusterError as err:
            if tries > 1 and err.outcome_known:
                raise UnavailableError(
                    err.resource, err.key, err.text, server_message=err.server_message
                ) from err
            raise
