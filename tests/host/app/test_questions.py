"""The queue's questions to served plugins travel in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from berth_host.app.questions import Batcher


async def test_answer_that_cannot_be_taken_costs_no_other_question() -> None:
    answered: list[int] = []
    told: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    async def ask(questions: Sequence[int]) -> Sequence[int]:
        return [10 * question for question in questions]

    def take(question: int, answer: int) -> None:
        if question == 2:
            raise LookupError("no such pod")
        answered.append(answer)

    busy: set[asyncio.Future[Any]] = set()
    batcher = Batcher[int, int](ask, take, busy)
    for question in (1, 2, 3):
        batcher.put(question)
    await asyncio.gather(*busy)
    batcher.put(4)
    await asyncio.gather(*busy)
    assert answered == [10, 30, 40]
    assert [str(error) for error in told] == ["no such pod"]


async def test_one_answer_holds_for_all_of_a_kind() -> None:
    answered: list[tuple[int, int]] = []
    asked: list[Sequence[int]] = []

    async def ask(questions: Sequence[int]) -> Sequence[int]:
        asked.append(questions)
        return [10 * question for question in questions]

    busy: set[asyncio.Future[Any]] = set()
    batcher = Batcher[int, int](
        ask,
        lambda question, answer: answered.append((question, answer)),
        busy,
        lambda question: question % 300,
    )
    for question in range(900):
        batcher.put(question)
    await asyncio.gather(*busy)
    assert [list(questions) for questions in asked] == [list(range(256)), list(range(256, 300))]
    assert sorted(answered) == [(question, 10 * (question % 300)) for question in range(900)]
