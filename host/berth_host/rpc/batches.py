"""`ask_batch`: one call about several pods of the queue, and a call per pod if the first call failed.

An in-process plugin is called about each pod by itself. A served plugin is called about many pods at once,
and an exception about one pod, or a pod that is too large, would lose the answers about all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

from berth_host.errors.plugins import PluginError, PluginRaisedError, RequestTooLargeError
from berth_host.rpc.call import Call
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.relay import PluginRelay, StandIn

Args = TypeVarTuple("Args")
P = TypeVar("P")
T = TypeVar("T")
_OF_ONE_POD: Final = (PluginRaisedError, RequestTooLargeError)
"""The failures of a batch for which one of its pods may be the reason."""


async def ask_batch(
    relay: PluginRelay,
    call: Call[*Args, Any, list[T]],
    pods: Sequence[P],
    args: Callable[[Sequence[P]], tuple[*Args]],
    without: StandIn[T],
) -> list[T]:
    """Return one answer per pod. `args`: the arguments of a call about some pods. `without`: returns the
    substitute for an answer that did not come.

    If a call about several pods raised, or one of its pods is larger than a message may be, each pod gets a
    call of its own. The circuit breaker limits the failures. After a timeout there are no such calls, because
    the plugin may still be busy.
    """
    failed: list[PluginError] = []

    def stand_in(policy: Policy, failure: PluginError) -> list[T]:
        failed.append(failure)
        return [without(policy, failure)] * len(pods)

    answers = await relay.ask(call, None, args(pods), stand_in)
    if len(pods) < 2 or not failed or not isinstance(failed[0], _OF_ONE_POD):
        return answers

    def stand_in_alone(policy: Policy, failure: PluginError) -> list[T]:
        return [without(policy, failure)]

    return [answer for pod in pods for answer in await relay.ask(call, None, args([pod]), stand_in_alone)]
