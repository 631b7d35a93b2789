"""Where a pod is, is asked until the cluster answers; a claim that the pod is bound has ten seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from berth_host.cycle.readback import CLAIM_S, FIRST_PAUSE_S, MAX_PAUSE_S, ReadBack
from berth_host.errors.cluster import UnavailableError
from berth_host.errors.state import InvariantError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.testing.builders import make_pod
from support.frameworks import cycle_of

POD = make_pod("web", uid="u")
T = TypeVar("T")
Answer = str | None | Exception
AWAY = UnavailableError("pods", "default/web", "etcd is away")


class AnsweringCluster:
    """A cluster that answers `get` as the test says; the last answer stands. `calls`: when each came."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.clock = ManualClock()
        self.calls: list[float] = []
        calls: Any = self  # it calls `get` alone
        self.read_back = ReadBack(calls, self.clock)

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        assert (resource, ref.name) == ("pods", "web")
        self.calls.append(self.clock.monotonic_s())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else KubeObject.of({"spec": {"nodeName": answer} if answer else {}})

    async def run(self, asking: Coroutine[Any, Any, T]) -> T:
        """Return the answer, and move the clock to the end of each pause."""
        task = asyncio.ensure_future(asking)
        while not task.done():
            for _ in range(5):
                await asyncio.sleep(0)
            if not task.done() and (due_s := self.clock.next_timer_s()) is not None:
                self.clock.advance_to(due_s)
        return task.result()


@pytest.mark.parametrize("node", ["n0", "", None])
async def test_first_answer_about_the_pod_is_final(node: str | None) -> None:
    told = AnsweringCluster(node)
    assert await told.run(told.read_back.node_of(POD)) == node
    assert told.calls == [0.0]


async def test_failed_read_of_the_pod_is_repeated_after_growing_pauses() -> None:
    told = AnsweringCluster(*[AWAY] * 9, ValueError("nonsense"), "n0")
    assert await told.run(told.read_back.node_of(POD)) == "n0"
    pauses = [after - before for before, after in zip(told.calls, told.calls[1:], strict=False)]
    assert pauses[:3] == pytest.approx([FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S])
    assert max(pauses) == pytest.approx(MAX_PAUSE_S)
    assert pauses == sorted(pauses)


async def test_read_of_the_pod_is_not_repeated_after_an_invariant_error() -> None:
    told = AnsweringCluster(InvariantError("two and two are five"))
    with pytest.raises(InvariantError):
        await told.run(told.read_back.node_of(POD))
    assert len(told.calls) == 1


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        pytest.param(("", "", "n0"), "n0", id="late, and there"),
        pytest.param(("", "n1"), "n1", id="elsewhere"),
        pytest.param(("", None), None, id="gone"),
        pytest.param(("", AWAY, "n0"), "n0", id="after trouble"),
    ],
)
async def test_claimed_binding_is_checked_until_the_pod_has_a_node(
    answers: tuple[Answer, ...], found: str | None
) -> None:
    told, cycle = AnsweringCluster(*answers), cycle_of(POD, ["n0"])
    assert await told.run(told.read_back.comes_to(POD, cycle)) == found
    assert not cycle.idle


async def test_claimed_binding_without_a_node_fails_after_its_time() -> None:
    told, cycle = AnsweringCluster(""), cycle_of(POD, ["n0"])
    assert await told.run(told.read_back.comes_to(POD, cycle)) == ""
    assert CLAIM_S <= told.calls[-1] <= CLAIM_S + MAX_PAUSE_S
