"""`ask_batch`: one call about several pods of the queue, and a call per pod where the first one failed.

A plugin in the host is asked about each pod by itself. A plugin in another process is asked about many pods
in one call, and an exception about one of them would take the answers from all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

from berth_host.errors.plugins import PluginError, PluginRaisedError
from berth_host.rpc.call import Call
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.relay import PluginRelay, StandIn

Args = TypeVarTuple("Args")
P = TypeVar("P")
T = TypeVar("T")


async def ask_batch(
    relay: PluginRelay,
    call: Call[*Args, Any, list[T]],
    pods: Sequence[P],
    args: Callable[[Sequence[P]], tuple[*Args]],
    without: StandIn[T],
) -> list[T]:
    """Return one answer per pod. `args`: the arguments of a call about some pods. `without`: makes the answer
    that stands in for one that did not come.

    A call about several pods that raised is made again for each pod alone. The circuit breaker bounds how
    often that fails. A call that came too late is not: the plugin may be busy with it still.
    """
    failed: list[PluginError] = []

    def stand_in(policy: Policy, failure: PluginError) -> list[T]:
        failed.append(failure)
        return [without(policy, failure)] * len(pods)

    answers = await relay.ask(call, None, args(pods), stand_in)
    if len(pods) < 2 or not failed or not isinstance(failed[0], PluginRaisedError):
        return answers

    def stand_in_alone(policy: Policy, failure: PluginError) -> list[T]:
        return [without(policy, failure)]

    return [answer for pod in pods for answer in await relay.ask(call, None, args([pod]), stand_in_alone)]
