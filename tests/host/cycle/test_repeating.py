"""Bindings that are sent again: after which errors, how often, and what the last error says."""

from __future__ import annotations

import pytest
from berth_host.cycle.repeating import TRIES, RepeatingBinder
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RepeatableError,
    TimedOutError,
    TooManyRequestsError,
    UnavailableError,
)
from berth_kube.answers import error_of
from berth_sdk.kube_object import ObjectRef

POD = ObjectRef(name="web", namespace="default", uid="u")


class Answers:
    """A binder that raises these errors one after the other, then binds."""

    def __init__(self, *errors: ClusterError) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds, which end at once."""
    seen: list[float] = []

    async def pause(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr("berth_host.cycle.repeating.asyncio.sleep", pause)
    return seen


def unavailable() -> RepeatableError:
    return RepeatableError("pods", "default/web", "down")


async def test_binding_is_sent_again_until_the_api_server_takes_it(pauses: list[float]) -> None:
    answers = Answers(unavailable(), unavailable(), unavailable())
    await RepeatingBinder(answers).bind(POD, "n1")
    assert answers.calls == TRIES
    for pause_s, least_s in zip(pauses, (0.01, 0.05, 0.25), strict=True):
        assert least_s <= pause_s <= 1.1 * least_s


async def test_binding_fails_after_the_fourth_try(pauses: list[float]) -> None:
    answers = Answers(*(unavailable() for _ in range(TRIES + 1)))
    with pytest.raises(RepeatableError):
        await RepeatingBinder(answers).bind(POD, "n1")
    assert answers.calls == TRIES


@pytest.mark.parametrize(
    "kind",
    [ConflictError, ForbiddenError, NotFoundError, TimedOutError, TooManyRequestsError, UnavailableError],
)
async def test_binding_is_not_repeated_after_other_errors(kind: type[ClusterError]) -> None:
    answers = Answers(kind("pods", "default/web", "no"))
    with pytest.raises(kind):
        await RepeatingBinder(answers).bind(POD, "n1")
    assert answers.calls == 1


async def test_outcome_is_unknown_where_an_earlier_try_may_have_bound_the_pod(pauses: list[float]) -> None:
    answers = Answers(unavailable(), ForbiddenError("pods", "default/web", "no", server_message="forbidden"))
    with pytest.raises(UnavailableError, match="forbidden") as caught:
        await RepeatingBinder(answers).bind(POD, "n1")
    assert not caught.value.outcome_known


@pytest.mark.parametrize(
    ("code", "repeats"), [(500, True), (503, True), (502, False), (504, False), (409, False), (429, False)]
)
def test_answers_that_may_pass_are_internal_errors_and_unavailable_services(code: int, repeats: bool) -> None:
    assert isinstance(error_of(code, b"", "pods", "default/web"), RepeatableError) is repeats
