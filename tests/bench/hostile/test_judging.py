"""The longest admitted list is found with few objects, and the reason for no longer one is kept."""

from __future__ import annotations

import pytest
from berth_bench.hostile.cases import Case, Json, Made
from berth_bench.hostile.judging import longest


def made(size: int, _nodes: int) -> Made:
    content = {"spec": {"list": ["x" * 10] * size}}
    return Made(pod=content, judged=content)


CASE = Case(name="pod/list", make=made)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100, 700, 5000])
async def test_longest_list_is_within_an_eighth_of_the_limit(limit: int) -> None:
    asked: list[int] = []

    async def judge(content: Json) -> str:
        asked.append(len(content["spec"]["list"]))
        return f"{asked[-1]} is too long" if asked[-1] > limit else ""

    size, reason = await longest(CASE, 3, 100_000, judge)
    assert limit - limit / 8 <= size + 1
    assert size <= limit
    # The last size that was refused is the reason.
    assert reason == f"{min(one for one in asked if one > limit)} is too long"
    assert len(asked) < 20


async def test_list_that_is_admitted_at_once_is_asked_about_once() -> None:
    asked: list[Json] = []

    async def judge(content: Json) -> str:
        asked.append(content)
        return ""

    size, reason = await longest(CASE, 3, 100_000, judge)
    assert (reason, len(asked)) == ("", 1)
    assert size == CASE.largest(100_000) > 5000


async def test_case_that_is_never_admitted_has_the_size_0() -> None:
    async def judge(_: Json) -> str:
        return "no"

    assert await longest(CASE, 3, 100_000, judge) == (0, "no")
