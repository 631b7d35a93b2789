"""The page in a real Chromium, over a host on the embedded cluster: what each view shows, live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from berth_bench.ui.chromium import Page
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_sdk.kube_object import ObjectRef
from support.groups import grouped, members, pod_group
from support.holding_world import holding_world
from support.hosts import World, node, pod
from support.serving import FakeProcess

pytestmark = pytest.mark.slow
ROWS = "[...document.querySelectorAll('.scroll tbody tr:not(.spacer)')].map((row) => row.innerText)"
NAMES = "[...document.querySelectorAll('.scroll tbody a')].map((one) => one.textContent)"
SOON_S = 0.05


@asynccontextmanager
async def shown(world: World, page: Page) -> AsyncIterator[LoopbackServer]:
    """The page of a world, with looks in quick succession.

    At its end there was no error of a script, and nothing was refused by the policy.
    """
    answers = Answers(FakeProcess(world.host.configuration, world.host), SOON_S)
    server = LoopbackServer(answers.answer)
    await server.start(0)
    try:
        yield server
        assert not page.problems
        await page.open("about:blank")  # before its streams end
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with holding_world("in_process", tmp_path) as world:
        yield world


@pytest_asyncio.fixture
async def url(world: World, page: Page) -> AsyncIterator[str]:
    async with shown(world, page) as server:
        yield server.url


async def test_queue_has_each_part_with_its_number_and_the_reason_of_each_pod(page: Page, url: str) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    numbers = await page.value(
        "Object.fromEntries([...document.querySelectorAll('.parts button')].map((one) =>"
        " [one.dataset.part, one.querySelector('.count').textContent]))"
    )
    assert numbers == {
        "all": "3",
        "active": "0",
        "backoff": "0",
        "unschedulable": "1",
        "gated": "2",
        "incomplete": "0",
        "pending": "0",
    }
    rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
    assert "NodeResourcesFit: Insufficient cpu" in rows["default/huge"]
    assert "scheduling gates: example.com/approval" in rows["default/gated"]
    assert "no budget left" in rows["default/kept-out"]


async def test_queue_changes_while_it_is_shown(page: Page, url: str, world: World) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    world.server.create(pod("newcomer", cpu="100"))
    await page.until(f"{NAMES}.includes('default/newcomer')")
    world.server.delete("pods", ObjectRef(namespace="default", name="newcomer"))
    await page.until(f"!{NAMES}.includes('default/newcomer') && {NAMES}.length === 3")


async def test_queue_is_filtered_by_part_reason_and_name(page: Page, url: str) -> None:
    await page.open(url)
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.querySelector('[data-part=gated]').click()")
    assert await page.value(NAMES) == ["default/gated", "default/kept-out"]
    await page.value("[...document.querySelectorAll('[data-reason]')].at(-1).click()")
    assert len(await page.value(NAMES)) == 1
    assert "1 pod shown of 3" in await page.value("document.body.innerText")
    await page.value("document.querySelector('[data-part=all]').click()")
    await page.value("document.getElementById('queue-text').focus()")
    await page.type("BUDGET")
    assert await page.until(f"{NAMES}.length === 1 && {NAMES}") == ["default/kept-out"]


async def test_pod_view_has_attempts_verdicts_nearest_fit_and_timeline(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/huge?node=tainted")
    await page.until("document.querySelector('.timeline li')")
    text = await page.value("document.querySelector('main').innerText")
    assert "0 of 3 nodes passed every filter in attempt 1" in text
    assert "TaintToleration" in text
    assert "node small-1 lacks 2200m CPU" in text
    assert "TaintToleration rejected tainted: " in text
    steps = await page.value(
        "[...document.querySelectorAll('.timeline .step')].map((one) => one.textContent)"
    )
    assert steps == ["queued", "tried", "rejected", "unschedulable"]
    assert await page.value("document.title") == "Pod default/huge · berth"


async def test_pod_view_has_the_scores_as_numbers_and_as_bars(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/web")
    await page.until("document.querySelector('.bars i')")
    table = "[...document.querySelectorAll('section[aria-label=Scores] tbody tr')]"
    nodes = await page.value(f"{table}.map((row) => row.cells[0].innerText)")
    totals = await page.value(f"{table}.map((row) => Number(row.cells[2].innerText))")
    widths = await page.value(
        f"{table}.map((row) => [...row.querySelectorAll('.bars i')].reduce((sum, one) =>"
        " sum + one.getBoundingClientRect().width, 0))"
    )
    assert sorted(nodes) == ["small-0", "small-1"]
    assert widths[0] / widths[1] == pytest.approx(totals[0] / totals[1], rel=0.05)


async def test_pod_that_is_unknown_is_named_with_the_cure(page: Page, url: str) -> None:
    await page.open(f"{url}#/pods/default/nobody")
    said = "document.getElementById('problem').textContent"
    text = await page.until(f"!document.getElementById('problem').hidden && {said}")
    assert "no pod default/nobody is known here" in text
    # The browser writes the status of an answer into its console.
    assert all("404" in problem for problem in page.problems)
    page.problems.clear()


async def test_plugins_have_state_calls_and_breakers(page: Page, url: str) -> None:
    await page.open(f"{url}#/plugins")
    await page.until("document.querySelector('main table tbody tr')")
    rows = await page.value(
        "[...document.querySelector('main table').tBodies[0].rows].map((row) =>"
        " [...row.cells].map((cell) => cell.innerText))"
    )
    found = {row[0]: row for row in rows}
    assert found["Holding"][1:3] == ["in process", "available"]
    assert (found["Holding"][8], found["Holding"][9]) == ("closed", "preEnqueue, permit")
    assert int(found["NodeResourcesFit"][4]) > 0


async def test_nodes_are_a_map_and_a_table_with_the_same_values(page: Page, url: str) -> None:
    await page.open(f"{url}#/nodes")
    await page.until(f"{NAMES}.length === 3")
    rows = {row.split("\t")[0]: row.split("\t") for row in await page.value(ROWS)}
    assert rows["small-0"][2] == "5 %"
    label = await page.value("document.querySelector('canvas').getAttribute('aria-label')")
    assert "3 nodes: " in label
    assert "The table below has every node" in label
    await page.value("document.querySelector('canvas').focus()")
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    text = await page.until("document.querySelector('[aria-label=\"The chosen node\"]').innerText")
    assert text.startswith("small-1")
    assert "of 4 requested" in text


async def test_nodes_have_the_verdicts_about_a_chosen_pod(page: Page, url: str) -> None:
    await page.open(f"{url}#/nodes?pod=default%2Fhuge")
    await page.until(f"{NAMES}.length === 3")
    rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
    assert "NodeResourcesFit: Insufficient cpu" in rows["small-0"]
    assert "TaintToleration: " in rows["tainted"]
    await page.open("about:blank")
    await page.open(f"{url}#/nodes?pod=default%2Fweb")
    await page.until(f"{NAMES}.length === 3")
    rows = {row.split("\t")[0]: row.split("\t") for row in await page.value(ROWS)}
    assert int(rows["small-0"][6]) > 0
    assert rows["small-0"][5] == "chosen"


async def test_groups_are_listed_and_explained(page: Page) -> None:
    groups = [pod_group("big", least=5), *members("big", 5), pod_group("fits", least=2), *members("fits", 2)]
    async with grouped([node("a"), *groups]) as world, shown(world, page) as server:
        await world.settle()
        await page.open(f"{server.url}#/groups")
        await page.until(f"{NAMES}.length === 2")
        rows = {row.split("\t")[0]: row for row in await page.value(ROWS)}
        assert "scheduled" in rows["default/fits"]
        assert "0 of 5 needed" in rows["default/big"]
        await page.value("document.querySelector('.scroll tbody a').click()")
        await page.until("document.querySelector('h1').textContent === 'Group default/big'")
        text = await page.until(
            "document.querySelector('.facts') && document.querySelector('main').innerText"
        )
        assert "0 placed of 5, 5 needed" in text
