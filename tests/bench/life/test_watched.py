"""The page of a recorded life: each moment has its own answers, and Chromium shows them by the slider."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from berth_bench.life.life import Result, live
from berth_bench.life.recording import MOST_MOMENTS, Recording
from berth_bench.life.watched import LIFE, Watched, serving
from berth_bench.ui.chromium import Page
from berth_host.endpoints.pages import PREFIX
from berth_host.endpoints.request_response import Answer, Request

DAYS = 0.004
SHORT_DAYS = 0.0005
SEED = 2
MOVE = (
    "(() => {{ const slider = document.getElementById('time');"
    " slider.value = {}; slider.dispatchEvent(new Event('input')); }})()"
)


@pytest.fixture(scope="module")
def lived() -> tuple[Result, Recording]:
    recording = Recording(DAYS)
    return live(SEED, DAYS, hosts=1, recording=recording), recording


async def asked(watched: Watched, path: str, **query: str) -> Any:
    values = {name: (value,) for name, value in query.items()}
    answer = await watched.answer(Request(method="GET", path=f"{PREFIX}{path}", query=values))
    return answer.status, json.loads(answer.body)


def test_recorded_life_is_the_same_life(lived: tuple[Result, Recording]) -> None:
    result, recording = lived
    assert live(SEED, DAYS, hosts=1, keeps_trace=False).trace_sha256 == result.trace_sha256
    assert recording.moments_s == sorted(recording.moments_s)
    assert recording.moments_s[-1] > 86400 * DAYS
    assert len(recording.moments_s) > 20


async def test_life_with_two_hosts_is_recorded_by_the_host_that_leads() -> None:
    recording = Recording(SHORT_DAYS)
    result = await asyncio.to_thread(live, SEED, SHORT_DAYS, hosts=2, recording=recording)
    again = await asyncio.to_thread(live, SEED, SHORT_DAYS, hosts=2, keeps_trace=False)
    assert (result.broken, result.trace_sha256) == ("", again.trace_sha256)
    watched = Watched(result, recording)
    assert (await asked(watched, "queue"))[0] == 200
    assert len(recording.moments_s) > 5


def test_long_life_has_moments_further_apart() -> None:
    assert Recording(2.0).every_s == 2 * 86400 / MOST_MOMENTS


async def test_each_moment_has_its_own_answers(lived: tuple[Result, Recording]) -> None:
    result, recording = lived
    watched = Watched(result, recording)
    waiting, times = set(), []
    for moment in range(len(recording.moments_s)):
        status, life = await asked(watched, "life", moment=str(moment))
        assert (status, life["moment"], life["seed"], life["broken"]) == (200, moment, SEED, "")
        _, queue = await asked(watched, "queue")
        times.append(queue["answeredAt"])
        waiting.add(tuple(one["key"] for one in queue["pods"]))
        for path in ("nodes", "plugins", "podgroups"):
            assert (await asked(watched, path))[0] == 200
    assert times == sorted(times)
    assert times[0].startswith("2026-01-01T00:00:05")
    assert len(waiting) > 3
    assert max(map(len, waiting)) > 0


async def test_pod_that_has_left_the_queue_has_an_answer_and_an_unknown_one_has_none(
    lived: tuple[Result, Recording],
) -> None:
    result, recording = lived
    watched = Watched(result, recording)
    seen: str = ""
    for watched.moment in range(len(recording.moments_s)):
        _, queue = await asked(watched, "queue")
        keys = [one["key"] for one in queue["pods"]]
        if seen and seen not in keys:
            break
        seen = seen or (keys[0] if keys else "")
    status, pod = await asked(watched, f"pods/{seen}")
    assert status == 200
    assert "answeredAt" in pod
    status, problem = await asked(watched, "pods/default/never-was")
    assert status == 404
    assert problem["message"] == "this life has no record of pods/default/never-was at this moment"


@pytest.mark.parametrize("moment", ["-1", "x", "99999"])
async def test_moment_that_the_life_does_not_have_is_refused(
    moment: str, lived: tuple[Result, Recording]
) -> None:
    watched = Watched(*lived)
    answer: Answer = await watched.answer(Request(method="GET", path=LIFE, query={"moment": (moment,)}))
    assert answer.status == 400


@pytest.mark.slow
async def test_slider_moves_every_view_to_its_moment(page: Page, lived: tuple[Result, Recording]) -> None:
    result, recording = lived
    names = "[...document.querySelectorAll('.scroll tbody a')].map((one) => one.textContent)"
    watched = Watched(result, recording)
    counts = []
    for watched.moment in range(len(recording.moments_s)):
        counts.append(len((await asked(watched, "queue"))[1]["pods"]))
    most = counts.index(max(counts))
    async with serving(result, recording) as server:
        await page.open(server.url)
        await page.until("document.getElementById('time')")
        last = len(recording.moments_s) - 1
        assert await page.value("document.getElementById('time').valueAsNumber") == last
        await page.until(f"{names}.length === 0")
        await page.value(MOVE.format(most))
        await page.until(f"{names}.length === {counts[most]}")
        said = await page.value("document.querySelector('#life output').textContent")
        seconds = int(recording.moments_s[most])
        assert said == f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        await page.value(MOVE.format(last))
        await page.until(f"{names}.length === 0")
        assert not page.problems
        await page.open("about:blank")
