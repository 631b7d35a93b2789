"""Any answer of an instance that is attached: it is used, or it is refused or tried again with a reason.

Hypothesis spoils one answer to a step of the attachment. What the host has no words for ("the host failed to
attach it") is a fault of the host. The number of answers: `support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from berth_host.attach import attachment, reconciling
from berth_host.attach.configured_places import Place
from berth_host.attach.peer import Peer
from berth_host.attach.state import State
from berth_host.config.berth.configuration import Transport
from berth_sdk.status import Code
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support.attached import AttachedHost, wanted
from support.fuzzing import STEPS, share
from support.honest_answers import NAME, HonestAnswers
from support.mutations import spoilt
from support.raw_channel import RawChannel
from support.waiting import PATIENCE_S

PLACE = Place(endpoint="unix:///nowhere/p.sock", plugins=(wanted(NAME),), transport=Transport.UNARY)
NO_WORDS = "the host failed to attach it"
GRACE_S = 5.0


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One loop for all the examples."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Each attachment that fails is a line of the log."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


async def attached(rpc: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Attach, with the first answer to `rpc` spoilt (none where it is empty), ask once, and let go."""
    answers = HonestAnswers(rng, {f"n{i}": [] for i in range(3)}, keeps_out=0.0)
    left = [rpc]

    def answer(name: str, request: Any) -> bytes:
        honest = answers.to(name, request)
        if name not in left:
            return bytes(honest.SerializeToString())
        left.remove(name)
        raw = spoilt(honest, rng)
        note(f"answered to {name}: {raw[:500]!r}")
        return raw

    monkeypatch.setattr(reconciling, "_FIRST_PAUSE_S", 0.001)

    async def no_socket(endpoint: str, place: Place) -> Peer:
        return Peer()

    monkeypatch.setattr(attachment, "peer_at", no_socket)
    monkeypatch.setattr(attachment, "dial", lambda endpoint, place: RawChannel(answer))
    host = AttachedHost([PLACE])
    (place,) = host.attachments.places
    try:
        place.start()
        async with asyncio.timeout(PATIENCE_S):
            await place.tried.wait()
        state, reason = place.state, place.reason
        assert state in (State.ACTIVE, State.BACKOFF, State.REJECTED)
        assert NO_WORDS not in reason
        assert (state is State.ACTIVE) == (not reason)
        # Whatever it said of itself, it can be asked now, or is absent.
        verdicts = await host.client.filter(host.cycle(), host.nodes)
        assert {status.code for status in verdicts.to_list()} <= {Code.SUCCESS, Code.ERROR}
    finally:
        await place.stop(GRACE_S if rpc == "Drain" else 0.0)
    task = place.task
    assert task is not None
    assert task.cancelled() or task.exception() is None
    assert left in ([], [""]), f"{rpc} was not asked"
    return state


def test_an_honest_instance_is_attached(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        assert runner.run(attached("", random.Random(seed), monkeypatch)) is State.ACTIVE


@pytest.mark.slow
@pytest.mark.parametrize("rpc", STEPS)
def test_spoilt_answers_lead_to_a_plugin_that_can_be_used_or_to_a_reason(
    rpc: str, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    @settings(max_examples=share(0.25, len(STEPS)), database=None)
    # The attachment is a task of its own, in which Hypothesis cannot draw.
    @given(seed=st.integers(0, 2**64 - 1))
    def check(seed: int) -> None:
        runner.run(attached(rpc, random.Random(seed), monkeypatch))

    check()
